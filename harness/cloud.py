"""The local cloud: this checkout's own, or the one that LOCALSTACK_HOST names.

A named cloud is used and left as it is. Other modules decide what is deployed and run on it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from harness.removal import delete_stack
from idempotent_receiver.local import cloud as library
from idempotent_receiver.local.cloud import ACCOUNT, REGION, Cloud, direct, is_ministack
from idempotent_receiver.local.container import LOOPBACK
from idempotent_receiver.local.server import ServerError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ACCOUNT", "LOOPBACK", "REGION", "Cloud", "direct"]

ROOT = Path(__file__).resolve().parent.parent
MINISTACK = ROOT / ".tools" / "ministack"

NAMED_BY = "LOCALSTACK_HOST"
"""The variable of localstack-client that names an existing cloud to use."""
GREETING_SECONDS = 5.0


@contextlib.contextmanager
def running_cloud(*, port: int | None = None, also_at: str = LOOPBACK) -> Iterator[Cloud]:
    """The cloud that LOCALSTACK_HOST names, or else one started here."""
    if not os.environ.get(NAMED_BY):
        chosen = embedded_cloud(port=port, also_at=also_at)
    elif port is None:
        chosen = named_cloud()
    else:
        raise ServerError(f"PORT is for a cloud started here, but {NAMED_BY} names another: unset one of them")
    with chosen as cloud:
        yield cloud


def in_containers() -> bool:
    """Whether the cloud runs functions in containers, as LocalStack does: these lack our loopback and our Python."""
    return bool(os.environ.get(NAMED_BY)) and not is_ministack(_named_endpoint())


@contextlib.contextmanager
def named_cloud() -> Iterator[Cloud]:
    """The cloud that LOCALSTACK_HOST names: nothing is started or stopped, and stacks created here are deleted."""
    with contextlib.closing(Cloud(_named_endpoint(), f"{NAMED_BY} names it: the stack is deleted at the end")) as cloud:
        stacks: list[str] = []
        at = urlsplit(cloud.endpoint_url)
        try:
            socket.create_connection((at.hostname or "", at.port or 443), timeout=GREETING_SECONDS).close()
            cloud.client("cloudformation").list_stacks()
        except (OSError, BotoCoreError, ClientError, ResponseParserError) as error:
            (why, *_) = f"{error}".splitlines()
            raise ServerError(
                f"{NAMED_BY}={os.environ[NAMED_BY]}: no cloud answers at {cloud.endpoint_url} ({why}). Start it, or "
                f"unset {NAMED_BY} to start a cloud here"
            ) from None
        # For code that creates a stack without knowing about this.
        cloud.client("cloudformation").meta.events.register(
            "after-call.cloudformation.CreateStack", lambda parsed, **_: stacks.append(parsed.get("StackId"))
        )
        try:
            yield cloud
        finally:
            for stack in filter(None, stacks):
                _delete(cloud, stack)


def _named_endpoint() -> str:
    # Imported here, for benchmarks that run where it is not installed.
    from localstack_client.config import get_service_endpoint  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        return str(get_service_endpoint("cloudformation"))
    except RuntimeError as error:
        raise ServerError(f"{NAMED_BY} is a host and a port, such as localhost:4566: {error}") from None


def _delete(cloud: Cloud, stack: str) -> None:
    """Delete a stack and the tables, queues and buckets that its template would retain, and say so."""
    told = stack.partition("/")[2].partition("/")[0]
    try:
        delete_stack(cloud, stack)
    except (BotoCoreError, ClientError) as error:
        print(f"stack {told} is left at {cloud.endpoint_url}: {error}", file=sys.stderr)
    else:
        print(f"stack {told} is deleted from {cloud.endpoint_url}", file=sys.stderr)


@contextlib.contextmanager
def embedded_cloud(*, port: int | None = None, also_at: str = LOOPBACK) -> Iterator[Cloud]:
    """Start a local cloud; end it, with all its processes and files, however the block is left.

    It listens on loopback, on this port or a free one. `also_at` is an additional address for functions in containers,
    which reach this machine at their network's gateway.
    """
    if not MINISTACK.exists():
        raise ServerError(f"no local cloud at {MINISTACK}: run `make setup`")
    program = library.Ministack(str(MINISTACK / "bin" / "python"), also_at=also_at)
    with library.embedded_cloud(program, port=port) as cloud:
        yield cloud
