"""A scripted network for a real client, and sample records.

botocore checks and serialises each request, and parses, raises and sends again as it does in production; only the
network is not there.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import boto3
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, ReadTimeoutError

from idempotent_receiver import DynamoDBStore, Transaction
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import NotApplied, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.awsrequest import AWSPreparedRequest

    from idempotent_receiver.protocol.store import ActionFailed, Written

TABLE = "records"
SECRET = "4111-1111"
"""What stands in records and items here, and must stand in no explanation."""

URL = "https://dynamodb.test"
UNREACHED = [
    EndpointConnectionError(endpoint_url=URL),
    ConnectTimeoutError(endpoint_url=URL),
    ReadTimeoutError(endpoint_url=URL),
]


class Refusal:
    """DynamoDB's error for a whole request."""

    def __init__(self, code: str, message: str = SECRET, *, status: int = 400, **fields: Any) -> None:
        self.status = status
        self.body = {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": message} | fields


class Garbled:
    """An answer that is not DynamoDB's."""

    def __init__(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.content = content
        self.status = status
        self.headers = HTTPHeaders.from_dict({name.replace("_", "-"): value for name, value in headers.items()})


Reply = dict[str, Any] | Refusal | Garbled | Exception


@cache
def session() -> boto3.session.Session:
    """One session, so that the service's description is read only once."""
    return boto3.session.Session(aws_access_key_id="unit", aws_secret_access_key="test", region_name="us-east-1")


class Wire:
    """A scripted network: it records what is sent, and replies in order, repeating the last reply for ever."""

    def __init__(self, *replies: Reply, attempts: int = 1) -> None:
        self.replies = list(replies)
        self.sent: list[tuple[str, dict[str, Any]]] = []
        config = Config(retries={"mode": "standard", "total_max_attempts": attempts})
        self.client = session().client("dynamodb", config=config)
        # The stubs have no type for a handler that answers.
        self.client.meta.events.register("before-send.dynamodb", cast("Any", self._answer))

    @property
    def store(self) -> DynamoDBStore:
        return DynamoDBStore(TABLE, client=self.client)

    def _answer(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        assert isinstance(request.body, bytes)
        target: Any = request.headers["X-Amz-Target"]
        self.sent.append((target.decode().partition(".")[2], json.loads(request.body)))
        reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Garbled):
            return AWSResponse(request.url, reply.status, reply.headers, Raw(reply.content))
        status, content = (reply.status, reply.body) if isinstance(reply, Refusal) else (200, reply)
        return AWSResponse(request.url, status, HTTPHeaders(), Raw(json.dumps(content).encode()))


class Raw:
    """A response's body, as botocore reads it."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def stream(self, **_: object) -> Iterator[bytes]:
        yield self._content


def record(id: str = "key", **given: Any) -> Record:
    usual: dict[str, Any] = {"status": "INPROGRESS", "version": "v1", "expiration": 7, "owner": "worker"}
    return Record(id=id, **usual | given)


def change(id: str = "key") -> Change:
    old = record(id)
    return Change(old._replace(status="COMPLETED", version="v2", data=f'"{SECRET}"', owner=None), old)


def records(count: int) -> list[Record]:
    return [record(f"key-{number}") for number in range(count)]


def changes(count: int) -> list[Change]:
    return [change(one.id) for one in records(count)]


def statements(*codes: str | None) -> dict[str, Any]:
    """The answer to a batch: each statement's error code, or None for a success."""
    return {
        "Responses": [
            {"TableName": TABLE} if code is None else {"Error": {"Code": code, "Message": SECRET}} for code in codes
        ]
    }


def cancelled(*codes: str) -> Refusal:
    """A cancelled transaction: each action's reason, the record's own first; "-" for one without a code."""
    reasons = [{} if code == "-" else {"Code": code} for code in codes]
    return Refusal("TransactionCanceledException", CancellationReasons=reasons)


def adding() -> Transaction:
    tx = Transaction()
    tx.put(TableName="accounts", Item={"account": SECRET})
    return tx


def why(answer: Written | ActionFailed | Record | None) -> str:
    """The reason of an answer. It says what went wrong, and shows nothing of the records and items."""
    assert isinstance(answer, NotApplied | Unknown)
    assert SECRET not in answer.why
    return answer.why


NEVER, LATER, CONTENDED, UNKNOWN = "never", "later", "contended", "unknown"


def effect_of(answer: Any) -> str:
    """What it says of its write. If that is unknown, a read tells."""
    if isinstance(answer, Unknown):
        assert answer.retry
        return UNKNOWN
    assert isinstance(answer, NotApplied)
    assert answer.retry or not answer.contended
    return CONTENDED if answer.contended else LATER if answer.retry else NEVER
