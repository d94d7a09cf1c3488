"""Keeps an exploration inside: what a handler would send to AWS by a client of its own is refused, and told."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from botocore.httpsession import URLLib3Session


@contextmanager
def closed() -> Iterator[list[str]]:
    """Let boto3 send nothing. What it would have sent is named in the list: `DynamoDB_20120810.UpdateItem`.

    A library that answers in AWS's place, as moto does, does so before anything is sent, and goes on doing so.
    """
    requests: list[str] = []

    def refuse(session: URLLib3Session, request: Any) -> Any:
        target = request.headers.get("X-Amz-Target", b"")
        requests.append(target.decode() if isinstance(target, bytes) and target else f"{request.method} {request.url}")
        raise RuntimeError(f"{requests[-1]} was not sent: an exploration reaches nothing outside")

    with patch.object(URLLib3Session, "send", refuse):
        yield requests
