"""What DynamoDBStore sends, and how it handles answers and errors that no engine on this machine produces.

A real client talks over a scripted wire: botocore checks and serialises each request, and parses, raises and sends
again as it does in production; only the network is not there.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from functools import cache
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any, cast

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.config import Config
from botocore.exceptions import (
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)

from idempotent_receiver import DynamoDBStore, Transaction
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import ActionFailed, Applied, Conflict, NotApplied, Unknown
from idempotent_receiver.protocol.transaction import Action
from tests.many_operations import commit_one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_dynamodb import DynamoDBClient

    from idempotent_receiver.protocol.store import Written

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

    @property
    def operations(self) -> list[str]:
        return [operation for operation, _ in self.sent]

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
    return [change(f"key-{number}") for number in range(count)]


def statements(*codes: str | None) -> dict[str, Any]:
    """The answer to a batch: each statement's error code, or None for a success."""
    return {
        "Responses": [
            {"TableName": TABLE} if code is None else {"Error": {"Code": code, "Message": SECRET}} for code in codes
        ]
    }


def cancelled(*codes: str) -> Refusal:
    """A cancelled transaction: each action's reason, the record's own first."""
    return Refusal("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])


def adding() -> Transaction:
    tx = Transaction()
    tx.put(TableName="accounts", Item={"account": SECRET})
    return tx


def why(answer: Written | ActionFailed | Record | None) -> str:
    """The reason of an answer. It says what went wrong, and shows nothing of the records and items."""
    assert isinstance(answer, NotApplied | Unknown)
    assert SECRET not in answer.why
    return answer.why


def is_final(answer: Written | ActionFailed) -> bool:
    return isinstance(answer, NotApplied) and not answer.retry


def is_contended(answer: Written | ActionFailed) -> bool:
    return isinstance(answer, NotApplied) and answer.contended


def may_be_tried_again(answer: Written | ActionFailed) -> bool:
    return isinstance(answer, NotApplied) and answer.retry


# What is sent


def test_one_insert_is_one_put() -> None:
    """One record goes out as a PutItem that is conditional on absence and asks for what is there."""
    wire = Wire({})

    assert wire.store.insert([record()]) == [Applied()]

    assert wire.sent == [
        (
            "PutItem",
            {
                "TableName": TABLE,
                "Item": {
                    "id": {"S": "key"},
                    "status": {"S": "INPROGRESS"},
                    "version": {"S": "v1"},
                    "owner": {"S": "worker"},
                    "expiration": {"N": "7"},
                },
                "ConditionExpression": "attribute_not_exists(#id)",
                "ExpressionAttributeNames": {"#id": "id"},
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            },
        )
    ]


def test_one_replace_is_one_update() -> None:
    """One change goes out as an UpdateItem: every attribute that differs, on condition of the version seen."""
    wire = Wire({})

    assert wire.store.replace([change()]) == [Applied()]

    ((operation, body),) = wire.sent
    assert operation == "UpdateItem"
    assert body["Key"] == {"id": {"S": "key"}}
    assert body["UpdateExpression"] == ("SET #status = :status, #version = :version, #data = :data REMOVE #owner")
    assert body["ConditionExpression"] == "attribute_exists(#id) AND #version = :expected_version"
    assert body["ExpressionAttributeValues"][":expected_version"] == {"S": "v1"}
    assert body["ExpressionAttributeValues"][":version"] == {"S": "v2"}
    assert body["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"


def test_the_text_of_an_insert() -> None:
    """Every name of an INSERT stands in single quotes, every value is a parameter."""
    wire = Wire(statements(None, None))

    wire.store.insert(records(2))

    first = wire.sent[0][1]["Statements"][0]
    names = "'id': ?, 'status': ?, 'version': ?, 'owner': ?, 'expiration': ?"
    assert first == {
        "Statement": f'INSERT INTO "{TABLE}" VALUE {{{names}}}',
        "Parameters": [{"S": "key-0"}, {"S": "INPROGRESS"}, {"S": "v1"}, {"S": "worker"}, {"N": "7"}],
    }


def test_the_text_of_an_update() -> None:
    """Every name of an UPDATE stands in double quotes in a clause of its own; unchanged attributes are left out."""
    wire = Wire(statements(None, None))

    wire.store.replace(changes(2))

    assert wire.sent[0][1]["Statements"][0] == {
        "Statement": (
            f'UPDATE "{TABLE}" SET "status"=? SET "version"=? SET "data"=? REMOVE "owner" WHERE "id"=? AND "version"=?'
        ),
        "Parameters": [
            {"S": "COMPLETED"},
            {"S": "v2"},
            {"S": f'"{SECRET}"'},
            {"S": "key-0"},
            {"S": "v1"},
        ],
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def test_the_text_of_an_update_of_a_record_without_a_version() -> None:
    """The condition says what a record of Powertools must still have, and what it must still lack."""
    wire = Wire(statements(None, None))
    seen = [record(id, version=None, owner=None) for id in "ab"]

    wire.store.replace([Change(record(old.id), old) for old in seen])

    statement = wire.sent[0][1]["Statements"][0]
    assert 'REMOVE "data" REMOVE "validation"' in statement["Statement"], "it is written whole"
    assert statement["Statement"].endswith(
        ' WHERE "id"=? AND "status"=? AND "expiration"=?'
        ' AND "version" IS MISSING AND "in_progress_expiration" IS MISSING'
    )
    assert statement["Parameters"][-3:] == [{"S": "a"}, {"S": "INPROGRESS"}, {"N": "7"}]


@pytest.mark.scenario("S20", mutant="a request takes 26 statements")
@pytest.mark.parametrize(("count", "requests"), [(2, 1), (25, 1), (26, 2), (50, 2), (60, 3)])
def test_25_writes_are_one_request(count: int, requests: int) -> None:
    """Inserts and replaces of n records take n/25 requests, rounded up."""
    inserting, replacing = Wire(*batches(count)), Wire(*batches(count))

    assert inserting.store.insert(records(count)) == [Applied()] * count
    assert replacing.store.replace(changes(count)) == [Applied()] * count
    assert len(inserting.sent) == len(replacing.sent) == requests


def batches(count: int) -> list[Reply]:
    """The answers to `count` statements that all succeed; one left over is no batch."""
    sizes = [min(25, count - start) for start in range(0, count, 25)]
    return [{} if size == 1 else statements(*[None] * size) for size in sizes]


@pytest.mark.scenario("S22", mutant="a read that may be stale")
@pytest.mark.parametrize(("count", "requests"), [(1, 1), (100, 1), (101, 2), (250, 3)])
def test_100_reads_are_one_request(count: int, requests: int) -> None:
    """Reads of n ids take n/100 requests, rounded up, and every one of them is consistent."""
    wire = Wire({"Responses": {TABLE: []}, "UnprocessedKeys": {}})

    assert wire.store.read([str(number) for number in range(count)]) == [None] * count

    assert wire.operations == ["BatchGetItem"] * requests
    assert all(body["RequestItems"][TABLE]["ConsistentRead"] is True for _, body in wire.sent)


def test_nothing_to_do_is_no_request() -> None:
    """Empty sequences cost no request."""
    wire = Wire({})

    assert [wire.store.insert([]), wire.store.replace([]), wire.store.read([])] == [[], [], []]
    assert wire.sent == []


# What cannot be sent


UNSENDABLE = {
    "key with a lone surrogate": (record("a\ud800b"), "lone surrogate"),
    "value with a lone surrogate": (record(data='"\udfff"'), "lone surrogate"),
    "empty key": (record(""), "bytes"),
    "key of 2049 bytes": (record("ß" * 1024 + "k"), "2049 bytes"),
    "number of 39 digits": (record(expiration=10**38), "38 digits"),
}


@pytest.mark.scenario("S19", mutant="a key of any length is sent")
@pytest.mark.parametrize(("poison", "why"), UNSENDABLE.values(), ids=UNSENDABLE)
def test_what_dynamodb_cannot_store_sinks_nothing_else(poison: Record, why: str) -> None:
    """A record that would sink its whole batch, or be confused with another, is left out and answered by itself."""
    inserting, replacing = Wire(statements(None, None)), Wire(statements(None, None))

    inserted = inserting.store.insert([record("a"), poison, record("b")])
    replaced = replacing.store.replace([change("a"), Change(poison, record(poison.id)), change("b")])

    for wire, written in ((inserting, inserted), (replacing, replaced)):
        assert [len(body["Statements"]) for _, body in wire.sent] == [2]
        assert [written[0], written[2]] == [Applied(), Applied()]
        assert is_final(written[1])
        assert why in written[1].why


def test_what_dynamodb_cannot_store_is_not_there() -> None:
    """A key that no item can have is absent, and is not read: it would sink the other keys of its request."""
    wire = Wire({"Responses": {TABLE: [{"id": {"S": "a"}, "status": {"S": "COMPLETED"}}]}})

    assert wire.store.read(["\ud800", "a", ""]) == [None, Record(id="a", status="COMPLETED"), None]
    assert wire.sent[0][1]["RequestItems"][TABLE]["Keys"] == [{"id": {"S": "a"}}]


@pytest.mark.parametrize("name", ["a b", 'a"b', "arn:aws:dynamodb:us-east-1:123456789012:table/records", "x" * 256])
def test_a_table_is_named(name: str) -> None:
    """An invalid table name is refused at set-up, before it becomes part of a statement."""
    with pytest.raises(ValueError, match=r"not a DynamoDB table's name [(]an ARN"):
        DynamoDBStore(name)


@pytest.mark.parametrize("name", ["", None])
def test_a_table_whose_variable_is_not_set_is_refused(name: Any) -> None:
    """It is refused when the store is created, and not by an error of `re`."""
    with pytest.raises(ValueError, match="not a DynamoDB table's name: is a variable not set"):
        DynamoDBStore(name)


# The answers to a statement


@pytest.mark.scenario("S17", mutant="contention is refused for good")
@pytest.mark.parametrize(
    "code", ["ThrottlingError", "ProvisionedThroughputExceeded", "RequestLimitExceeded", "TransactionConflict"]
)
def test_a_statement_that_may_be_retried(code: str) -> None:
    """A throttled or contending statement took no effect and may be retried, on its own."""
    written = Wire(statements(None, code, None)).store.replace(changes(3))

    assert [written[0], written[2]] == [Applied(), Applied()]
    assert may_be_tried_again(written[1])
    assert code in why(written[1])
    assert TABLE in why(written[1])
    assert is_contended(written[1]) == (code == "TransactionConflict")


@pytest.mark.parametrize("is_conflict", [True, False])
def test_a_write_that_was_in_a_transaction_s_way(is_conflict: bool) -> None:
    """It is told so, as it has lost to somebody else's progress; a throttled one has not."""
    store = Wire(Refusal("TransactionConflictException" if is_conflict else "ThrottlingException")).store

    for (written,) in (store.insert(records(1)), store.replace(changes(1))):
        assert may_be_tried_again(written)
        assert is_contended(written) == is_conflict


def test_a_statement_that_met_a_write_of_another_region() -> None:
    """In a global table with strong consistency: it took no effect and may be retried, with its own reason."""
    written, _ = Wire(statements("ReplicatedWriteConflict", None)).store.replace(changes(2))

    assert may_be_tried_again(written)
    assert "was being written in another region" in why(written)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("ResourceNotFound", "create it"),
        ("AccessDenied", "allow dynamodb:PartiQLInsert"),
        ("ValidationError", "400 KB"),
        ("ItemCollectionSizeLimitExceeded", "index"),
    ],
)
def test_a_statement_that_was_refused(code: str, remedy: str) -> None:
    """A statement that DynamoDB will not execute took no effect and never will; the reason says what to do."""
    written = Wire(statements(code, None)).store.insert(records(2))

    assert is_final(written[0])
    assert written[1] == Applied()
    assert all(part in why(written[0]) for part in (code, TABLE, remedy))


@pytest.mark.scenario("S18", mutant="an internal error means that nothing was written")
@pytest.mark.parametrize("code", ["InternalServerError", "SomethingNew"])
def test_a_statement_with_an_unknown_result(code: str) -> None:
    """The result is unknown if the error does not say whether the statement took effect, or is itself unknown."""
    written = Wire(statements(None, code)).store.insert(records(2))

    assert written[0] == Applied()
    assert isinstance(written[1], Unknown)
    assert code in why(written[1])


def test_a_statement_that_met_another_record() -> None:
    """An INSERT never returns the record that is there; an UPDATE does, if there is one."""
    item = {"id": {"S": "key-0"}, "status": {"S": "FAILED"}, "tenant": {"S": "blue"}}
    told = {
        "Responses": [{"Error": {"Code": "ConditionalCheckFailed", "Item": item}}, {"Error": {"Code": "DuplicateItem"}}]
    }

    assert Wire(told).store.replace(changes(2)) == [Conflict(Record(id="key-0", status="FAILED")), Conflict(None)]


# The results of a request


@pytest.mark.parametrize("trouble", UNREACHED, ids=lambda trouble: type(trouble).__name__)
@pytest.mark.parametrize("count", [1, 2])
def test_after_a_lost_answer_the_result_is_unknown(trouble: Exception, count: int) -> None:
    """If the answer to a request does not come, the result of each of its records is unknown."""
    wire = Wire(trouble)

    for answers in (wire.store.insert(records(count)), wire.store.replace(changes(count)), wire.store.read(["a", "b"])):
        assert all(isinstance(answer, Unknown) for answer in answers)
        assert type(trouble).__name__ in why(answers[0])
    assert isinstance(commit_one(wire.store, change(), ()), Unknown)


@pytest.mark.parametrize("status", [200, 400, 500])
@pytest.mark.parametrize("body", [b"[]", b'"Bad Gateway"', b"\xff"])
@pytest.mark.parametrize("count", [1, 2])
def test_after_an_unreadable_answer_the_result_is_unknown(status: int, body: bytes, count: int) -> None:
    """A proxy may have sent it: botocore's parsers then raise AttributeError and the like."""
    wire = Wire(Garbled(body, status))

    for answers in (wire.store.insert(records(count)), wire.store.replace(changes(count)), wire.store.read(["a", "b"])):
        assert all(isinstance(answer, Unknown) and answer.retry for answer in answers)
        assert "UnreadableAnswer" in why(answers[0])
    assert isinstance(commit_one(wire.store, change(), ()), Unknown)


@pytest.mark.parametrize("body", [b"", b"{}", b"not JSON", b"<html>", b'{"Responses": [{}]}'])
def test_after_an_incomplete_answer_the_result_is_unknown(body: bytes) -> None:
    """It is unknown which answers are missing."""
    wire = Wire(Garbled(body))

    for answers in (wire.store.insert(records(2)), wire.store.replace(changes(2)), wire.store.read(["a", "b"])):
        assert len(answers) == 2
        assert all(isinstance(answer, Unknown) and answer.retry for answer in answers)


@pytest.mark.parametrize("kind", ["text/html", "text/html; charset=utf-8", "application/json", ""])
def test_a_web_page_with_status_200_has_written_nothing_that_we_know_of(kind: str) -> None:
    """Botocore reads it as an empty answer, which is DynamoDB's answer to a successful write."""
    wire = Wire(Garbled(b"<html>Sign in to this network</html>", Content_Type=kind))

    for answers in (wire.store.insert(records(1)), wire.store.replace(changes(1)), wire.store.read(["a"])):
        assert [isinstance(answer, Unknown) and answer.retry for answer in answers] == [True]
        assert "UnreadableAnswer" in why(answers[0])
    assert isinstance(commit_one(wire.store, change(), ()), Unknown)


@pytest.mark.parametrize("kind", ["application/x-amz-json-1.0", "application/x-amz-json-1.1; charset=utf-8"])
def test_dynamodb_s_own_empty_answer_to_a_write_is_one(kind: str) -> None:
    wire = Wire(Garbled(b"{}", Content_Type=kind))

    assert wire.store.insert(records(1)) == wire.store.replace(changes(1)) == [Applied()]
    assert commit_one(wire.store, change(), ()) == Applied()


def test_what_a_client_raises_before_it_has_sent_anything_is_raised() -> None:
    """It is a defect, not an answer of DynamoDB."""
    wire = Wire({})

    def broken(**_: object) -> None:
        raise AttributeError

    wire.client.meta.events.register("provide-client-params.dynamodb", broken)
    for ask in (lambda: wire.store.insert(records(1)), lambda: wire.store.read(["a"])):
        with pytest.raises(AttributeError):
            ask()


@pytest.mark.scenario("S20", mutant="an internal error means that nothing was written")
@pytest.mark.parametrize("code", ["InternalServerError", "ServiceUnavailable", "SomethingNew"])
@pytest.mark.parametrize("count", [1, 2])
def test_after_an_internal_error_the_result_is_unknown(code: str, count: int) -> None:
    """A 5xx does not say whether anything was written."""
    wire = Wire(Refusal(code, status=500))

    for answers in (wire.store.insert(records(count)), wire.store.replace(changes(count)), wire.store.read(["a"])):
        assert all(isinstance(answer, Unknown) for answer in answers)
    assert isinstance(commit_one(wire.store, change(), ()), Unknown)


@pytest.mark.parametrize(
    "code", ["ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded"]
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_throttled_request_may_be_retried(code: str, count: int) -> None:
    """A throttled write took no effect; the result of a throttled read is unknown."""
    wire = Wire(Refusal(code))

    assert all(may_be_tried_again(written) for written in wire.store.insert(records(count)))
    assert all(may_be_tried_again(written) for written in wire.store.replace(changes(count)))
    assert may_be_tried_again(commit_one(wire.store, change(), ()))
    assert isinstance(wire.store.read(["a"])[0], Unknown)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        ("ResourceNotFoundException", "create it, or correct the table's name"),
        ("AccessDeniedException", "allow dynamodb:"),
        ("UnrecognizedClientException", "credentials"),
        ("ExpiredTokenException", "credentials"),
        ("InvalidSignatureException", "credentials"),
    ],
)
@pytest.mark.parametrize("count", [1, 2])
def test_a_refused_request_is_final(code: str, remedy: str, count: int) -> None:
    """A request that DynamoDB refused took no effect and never will; the reason names table, code and remedy."""
    wire = Wire(Refusal(code))

    answers = [
        *wire.store.insert(records(count)),
        *wire.store.replace(changes(count)),
        commit_one(wire.store, change(), ()),
    ]

    assert all(is_final(written) for written in answers)
    assert all(part in why(written) for written in answers for part in (code, TABLE, remedy))
    assert remedy in why(wire.store.read(["a"])[0])


def test_a_missing_permission_is_named() -> None:
    """For each kind of request, the reason names the action to allow, and whom AWS refused what."""
    message = "User: arn:aws:sts::1:assumed-role/consumer/f is not authorized to perform: dynamodb:X on resource: Y"
    store = Wire(Refusal("AccessDeniedException", message)).store

    told = [store.insert(records(1)), store.replace(changes(1)), store.insert(records(2)), store.replace(changes(2))]
    needed = ["PutItem", "UpdateItem", "PartiQLInsert", "PartiQLUpdate"]
    for answers, action in zip(told, needed, strict=True):
        assert f"allow dynamodb:{action} on it" in why(answers[0])
        assert message in why(answers[0])
    assert "allow dynamodb:BatchGetItem on it" in why(store.read(["a"])[0])
    assert "allow dynamodb:UpdateItem on the records" in why(commit_one(store, change(), ()))


@pytest.mark.scenario("S20", mutant="an invalid batch has written nothing")
def test_an_invalid_batch_may_have_been_written_in_part() -> None:
    """If a later statement makes a batch invalid, its result is unknown; a single invalid write is refused."""
    wire = Wire(Refusal("ValidationException"))

    assert all(isinstance(written, Unknown) for written in wire.store.insert(records(2)))
    assert all(isinstance(written, Unknown) for written in wire.store.replace(changes(2)))
    assert is_final(wire.store.insert(records(1))[0])
    assert is_final(wire.store.replace(changes(1))[0])


@pytest.mark.parametrize("second", ["ThrottlingException", "AccessDeniedException"])
@pytest.mark.parametrize("first", [UNREACHED[-1], Refusal("InternalServerError", status=500)])
def test_a_refusal_of_the_second_copy_says_nothing_of_the_first(
    first: Reply, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK retries by itself: if the first answer was lost and the second copy refused, the result is unknown."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
    wire = Wire(first, Refusal(second), attempts=2)

    (written,) = wire.store.insert(records(1))

    assert wire.operations == ["PutItem", "PutItem"]
    assert isinstance(written, Unknown)
    assert second in why(written)


def test_a_resent_write_meets_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first copy took effect, the second is refused for it, and returns that record to be recognised."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
    ours = {"id": {"S": "key"}, "status": {"S": "INPROGRESS"}, "version": {"S": "v1"}}
    wire = Wire(UNREACHED[-1], Refusal("ConditionalCheckFailedException", Item=ours), attempts=2)

    assert wire.store.insert([record()]) == [Conflict(Record(id="key", status="INPROGRESS", version="v1"))]


def test_without_credentials_nothing_was_sent() -> None:
    """A request that could not even be signed was not sent; the reason says what is missing."""
    (written,) = Wire(NoCredentialsError()).store.insert(records(1))

    assert is_final(written)
    assert "credentials" in why(written)


# Reads that come back incomplete


def unprocessed(*ids: str) -> dict[str, Any]:
    return {TABLE: {"Keys": [{"id": {"S": id}} for id in ids], "ConsistentRead": True}}


def found(*ids: str) -> dict[str, Any]:
    return {TABLE: [{"id": {"S": id}, "status": {"S": "COMPLETED"}} for id in ids]}


def test_unprocessed_keys_are_read_again() -> None:
    """Unprocessed keys are read again, consistently, and then are there or not."""
    wire = Wire(
        {"Responses": found("a"), "UnprocessedKeys": unprocessed("b", "c")},
        {"Responses": found("c"), "UnprocessedKeys": {}},
    )

    answers = wire.store.read(["a", "b", "c"])

    assert answers == [Record(id="a", status="COMPLETED"), None, Record(id="c", status="COMPLETED")]
    assert wire.sent[1][1]["RequestItems"] == unprocessed("b", "c")


@pytest.mark.scenario("S23", mutant="keys left unprocessed count as absent")
def test_keys_that_stay_unprocessed_are_unknown() -> None:
    """After a bounded number of requests, a key that was never read is unknown: neither absent nor completed."""
    wire = Wire({"Responses": found("a"), "UnprocessedKeys": unprocessed("b")})

    answers = wire.store.read(["a", "b", "c"])

    assert answers[0] == Record(id="a", status="COMPLETED")
    assert isinstance(answers[1], Unknown)
    assert answers[2] is None
    assert "capacity" in why(answers[1])
    assert len(wire.sent) == 5


def test_a_read_that_breaks_off_keeps_what_it_has() -> None:
    """If the second read fails, only the unprocessed keys are unknown."""
    wire = Wire({"Responses": found("a"), "UnprocessedKeys": unprocessed("b")}, UNREACHED[-1])

    answers = wire.store.read(["a", "b", "c"])

    assert answers[0] == Record(id="a", status="COMPLETED")
    assert isinstance(answers[1], Unknown)
    assert answers[2] is None
    assert "ReadTimeoutError" in why(answers[1])


# Transactions


@pytest.mark.scenario("S30", mutant="a transaction's token is drawn at each sending")
def test_a_transaction_is_sent_the_same_each_time() -> None:
    """The record's update comes first, and the token is the same, and at most 36 characters, for the same claim."""
    wire, tx = Wire({}), adding()
    tx.check(TableName="accounts", Key={"account": "b"}, ConditionExpression="attribute_exists(account)")

    assert [commit_one(wire.store, change(), tx.actions) for _ in range(2)] == [Applied(), Applied()]

    (operation, body), again = wire.sent
    assert operation == "TransactWriteItems"
    assert again == (operation, body)
    assert [*(kind for item in body["TransactItems"] for kind in item)] == ["Update", "Put", "ConditionCheck"]
    update = body["TransactItems"][0]["Update"]
    assert update["ConditionExpression"] == "attribute_exists(#id) AND #version = :expected_version"
    assert update["ReturnValuesOnConditionCheckFailure"] == "ALL_OLD"
    assert body["TransactItems"][1]["Put"] == {"TableName": "accounts", "Item": {"account": {"S": SECRET}}}
    assert 1 <= len(body["ClientRequestToken"]) <= 36


@pytest.mark.scenario("S30", mutant="a transaction's token is used again by the next claim")
def test_another_claim_has_another_token() -> None:
    """The tokens of two claims differ, whether of one key or of two keys with the same version."""
    wire = Wire({})
    other = Change(record(version="v3"), record(version="v2"))

    for each in (change("a"), change("b"), change(), other):
        commit_one(wire.store, each, ())

    assert len({body["ClientRequestToken"] for _, body in wire.sent}) == 4


@pytest.mark.scenario("S32", mutant="contention is refused for good")
@pytest.mark.parametrize("code", ["TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"])
@pytest.mark.parametrize("position", [0, 1])
def test_a_transaction_that_may_be_retried(code: str, position: int) -> None:
    """A transaction that was cancelled for contention or throttling took no effect and may be retried."""
    reasons = ["None", "None"]
    reasons[position] = code

    assert may_be_tried_again(commit_one(Wire(cancelled(*reasons)).store, change(), adding().actions))


@pytest.mark.scenario("S31", mutant="a transaction's lost claim is a condition like any other")
@pytest.mark.parametrize(
    ("reasons", "answer"),
    [
        (("ConditionalCheckFailed", "ConditionalCheckFailed", "None"), Conflict(None)),
        (("ConditionalCheckFailed", "TransactionConflict", "None"), Conflict(None)),
        (("None", "ConditionalCheckFailed", "None"), ActionFailed(0)),
        (("None", "TransactionConflict", "ConditionalCheckFailed"), ActionFailed(1)),
    ],
)
def test_the_reason_that_counts(reasons: tuple[str, ...], answer: Written | ActionFailed) -> None:
    """The record's own refusal comes first, then a failed condition of the handler, then what may be retried."""
    assert commit_one(Wire(cancelled(*reasons)).store, change(), adding().actions * 2) == answer


def test_a_failed_condition_waits_for_the_record() -> None:
    """While the record's own part may be retried, the claim's owner is unknown: the handler's condition must wait."""
    refused = cancelled("TransactionConflict", "ConditionalCheckFailed")

    assert may_be_tried_again(commit_one(Wire(refused).store, change(), adding().actions))


def test_a_transaction_that_was_refused_names_the_action() -> None:
    """If an action is invalid, the reason names it, its kind and its table."""
    written = commit_one(Wire(cancelled("None", "ValidationError")).store, change(), adding().actions)

    assert is_final(written)
    assert "ValidationError from TransactWriteItems, action 1 (Put on accounts)" in why(written)


def test_an_invalid_expression_is_shown() -> None:
    """AWS's message about an expression shows only the developer's own text, and is passed on."""
    message = "Invalid UpdateExpression: Attribute name is a reserved keyword; reserved keyword: status"

    written = commit_one(Wire(Refusal("ValidationException", message)).store, change(), adding().actions)

    assert is_final(written)
    assert message in why(written)


@pytest.mark.parametrize("code", ["TransactionInProgressException", "IdempotentParameterMismatchException"])
def test_a_transaction_that_is_under_way_elsewhere(code: str) -> None:
    """If DynamoDB knows the token already, a read must show whether the record was written."""
    assert isinstance(commit_one(Wire(Refusal(code)).store, change(), ()), Unknown)


def test_after_a_cancellation_without_reasons_the_result_is_unknown() -> None:
    """A cancellation without a reason proves nothing."""
    assert isinstance(commit_one(Wire(Refusal("TransactionCanceledException")).store, change(), ()), Unknown)


def put(table: str, **item: Any) -> Action:
    return Action("Put", {"TableName": table, "Item": item})


def delete(table: str, **key: Any) -> Action:
    return Action("Delete", {"TableName": table, "Key": key})


ARN = f"arn:aws:dynamodb:us-east-1:123456789012:table/{TABLE}"
REFUSED_ACTIONS = {
    "the record put": (
        [put("accounts", account="a"), put(TABLE, id="key")],
        r"action 2 \(Put on records\) .* own record",
    ),
    "the record deleted": ([delete(TABLE, id="key")], "own record"),
    "the record by ARN": ([delete(ARN, id="key")], "own record"),
    "one item twice": ([delete("accounts", account="a"), put("accounts", account="a", n=1)], "1 and 2 are on one item"),
    "one record twice": ([put(TABLE, id="other"), put(TABLE, id="other", n=1)], "one item"),
    "two numbers that are one": ([delete("lines", line=1), delete("lines", line=Decimal("1.0"))], "one item"),
    "39 digits": ([put("accounts", account="a", balance=10**38 + 1)], "38 digits"),
    "a number too large": ([put("accounts", account="a", balance=Decimal("1E+127"))], r"1E\+126"),
    "a lone surrogate": ([put("accounts", account=f"{SECRET}\ud800")], "lone surrogates"),
    "4 MB": ([put("accounts", account=str(number), blob=b"x" * 390_000) for number in range(11)], "4 MB"),
}


@pytest.mark.scenario("S33", mutant="a handler may write its own record")
@pytest.mark.parametrize(("actions", "reason"), REFUSED_ACTIONS.values(), ids=REFUSED_ACTIONS)
def test_actions_that_no_transaction_may_hold(actions: list[Action], reason: str) -> None:
    """What DynamoDB would refuse, or must not be sent, is refused for good before anything is sent."""
    wire = Wire({})

    written = commit_one(wire.store, change(), actions)

    assert is_final(written)
    assert re.search(reason, why(written))
    assert wire.sent == []


def test_actions_at_the_limits() -> None:
    """99 actions, other records of the same table, and equal keys in two tables are all allowed."""
    wire = Wire({})
    others = [delete("accounts", id="key"), put("lines", id="key"), delete(TABLE, id="other")]
    actions = [*others, *(put("entries", entry=str(number), blob=b"x" * 42_000) for number in range(96))]

    assert commit_one(wire.store, change(), actions) == Applied()


def test_a_record_that_cannot_be_stored_is_not_committed() -> None:
    """A result that DynamoDB cannot store as a string is refused for good, with the handler's writes."""
    wire = Wire({})
    unsendable = Change(record(data="\ud800", version="v2"), record())

    assert is_final(commit_one(wire.store, unsendable, adding().actions))
    assert wire.sent == []


def test_an_argument_that_boto3_does_not_know_is_final() -> None:
    """A misspelt argument of an action was never sent, and the reason holds none of its value."""
    wire = Wire({})
    action = Action("Put", {"TableName": "accounts", "Item": {"account": "a"}, "ConditionExpresion": SECRET})

    written = commit_one(wire.store, change(), [action])

    assert is_final(written)
    assert "ParamValidationError" in why(written)
    assert wire.sent == []


# The client


def test_a_client_is_built_once_on_first_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads start at once, they share one client, with time-outs that suit a function."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    built: list[DynamoDBClient] = []
    session, barrier = boto3.session.Session, Barrier(8)

    class Counting(session):  # type: ignore[misc, valid-type]  # a variable, but the class it is
        def client(self, *arguments: Any, **options: Any) -> Any:
            built.append(super().client(*arguments, **options))
            return built[-1]

    monkeypatch.setattr("boto3.session.Session", Counting)
    store = DynamoDBStore(TABLE)
    assert built == []

    def first_use() -> None:
        barrier.wait()
        assert store.client is not None

    threads = [Thread(target=first_use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(built) == 1
    with closing(store.client) as client:
        config: Any = client.meta.config
        assert (config.connect_timeout, config.read_timeout) == (1, 3)
        assert config.retries == {"mode": "standard", "total_max_attempts": 2}


@pytest.mark.slow
def test_a_trail_shows_whose_requests_these_are() -> None:
    """The configured user agent is sent as it is; boto3 would build its own for each request."""
    sent: list[bytes] = []

    def end(request: AWSPreparedRequest, **_: object) -> AWSResponse:
        sent.append(request.headers["User-Agent"])
        return AWSResponse(request.url, 200, HTTPHeaders(), Raw(b"{}"))

    session = boto3.session.Session(aws_access_key_id="unit", aws_secret_access_key="test", region_name="us-east-1")
    client: Any = session.client("dynamodb", config=client_config())
    client.meta.events.register("before-send.dynamodb", end)
    client.batch_execute_statement(Statements=[])
    (name,) = sent
    assert name.startswith(f"idempotent-receiver Boto3/{boto3.__version__}".encode())
    assert b"lang/" not in name, "it was built anew"


@pytest.mark.slow
def test_the_import_is_lean() -> None:
    """Importing the store loads neither boto3 nor a session's data; the first use does."""
    code = "import sys, idempotent_receiver.dynamodb.store; print({'boto3', 'botocore.session'} & sys.modules.keys())"

    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert told.stdout.strip() == "set()"
