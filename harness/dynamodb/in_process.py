"""The model behind a real client, in this process: botocore serialises, signs, parses and retries as usual, without a
network below it.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from boto3.session import Session
from botocore.awsrequest import AWSResponse

from harness.dynamodb.writes import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.config import Config
    from mypy_boto3_dynamodb import DynamoDBClient

    from harness.dynamodb.tables import Tables

    Answer = Callable[[str, bytes], tuple[int, bytes]]
    """Answers an operation's body with a status and a body, or raises botocore's network errors."""

CONTENT_TYPE = "application/x-amz-json-1.0"


def answered(tables: Tables, operation: str, body: bytes) -> tuple[int, bytes]:
    """Status and body of DynamoDB's response to a request."""
    try:
        return 200, json.dumps(tables.execute(operation, json.loads(body))).encode()
    except Refused as error:
        return refused(error.code, str(error), **error.beside)


def refused(code: str, message: str = "", status: int = 400, **beside: Any) -> tuple[int, bytes]:
    """Status and body of a DynamoDB error response."""
    return status, json.dumps(
        {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message} | beside
    ).encode()


def client_of(answer: Answer, config: Config | None = None) -> DynamoDBClient:
    """A client whose requests are answered by this function."""

    def send(request: Any, **event: object) -> AWSResponse:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        status, body = answer(operation, request.body)
        content_type = CONTENT_TYPE if body.startswith(b"{") else "text/html"  # from a proxy in between
        headers: Any = {"Content-Length": str(len(body)), "Content-Type": content_type}
        return AWSResponse(request.url, status, headers, _Body(body))

    client: DynamoDBClient = _session().client("dynamodb", config=config)
    client.meta.events.register("before-send.dynamodb", send)  # type: ignore[arg-type]  # it may answer
    return client


class _Body:
    """A response's body, as botocore reads it."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, *args: object, **kwargs: object) -> list[bytes]:
        return [self._body]


@cache
def _session() -> Session:
    """A shared session, so that the service's description is read only once."""
    return Session(aws_access_key_id="nobody", aws_secret_access_key="unchecked", region_name="us-east-1")
