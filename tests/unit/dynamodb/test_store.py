"""What DynamoDB's answers and errors say of each record, also those that no engine on this machine produces."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Applied, Conflict, Unknown
from tests.many_operations import commit_one
from tests.unit.dynamodb.wire import (
    CONTENDED,
    LATER,
    NEVER,
    TABLE,
    UNKNOWN,
    UNREACHED,
    Garbled,
    Refusal,
    Reply,
    Wire,
    change,
    changes,
    effect_of,
    record,
    records,
    statements,
    why,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver import DynamoDBStore


REQUESTS: dict[str, Callable[[DynamoDBStore], Sequence[Any]]] = {
    "PutItem": lambda store: store.insert(records(1)),
    "UpdateItem": lambda store: store.replace(changes(1)),
    "PartiQLInsert": lambda store: store.insert(records(2)),
    "PartiQLUpdate": lambda store: store.replace(changes(2)),
    "PutItem on the records": lambda store: [commit_one(store, Change(record(), None), ())],
    "UpdateItem on the records": lambda store: [commit_one(store, change(), ())],
    "BatchGetItem": lambda store: store.read(["a", "b"]),
    "GetItem": lambda store: [store.get(TABLE, {"id": "a"})],
}
"""Every kind of request, by what its permission is called."""

OPERATIONS = dict.fromkeys(("PartiQLInsert", "PartiQLUpdate"), "BatchExecuteStatement") | dict.fromkeys(
    ("PutItem on the records", "UpdateItem on the records"), "TransactWriteItems"
)
"""Those whose permission is called otherwise."""


# The answer to a statement


@pytest.mark.scenario("S17", mutant="contention is refused for good")
@pytest.mark.scenario("S18", mutant="an internal error means that nothing was written")
@pytest.mark.parametrize(
    ("code", "effect", "remedy"),
    [
        ("ThrottlingError", LATER, "account's limits"),
        ("ProvisionedThroughputExceeded", LATER, "account's limits"),
        ("RequestLimitExceeded", LATER, "account's limits"),
        ("TransactionConflict", CONTENDED, "no action needed unless it persists"),
        ("ReplicatedWriteConflict", LATER, "no action needed unless it persists"),
        ("ResourceNotFound", NEVER, "create it, or correct the table's name"),
        ("AccessDenied", NEVER, "allow dynamodb:PartiQLUpdate on it"),
        ("ValidationError", NEVER, "(at most 400 KB)"),
        ("ItemCollectionSizeLimitExceeded", NEVER, "drop its local secondary index"),
        ("InternalServerError", UNKNOWN, "check AWS Health"),
        ("SomethingNew", UNKNOWN, "check AWS Health"),
    ],
)
def test_what_an_error_says_of_its_statement(code: str, effect: str, remedy: str) -> None:
    """And of no other. The reason names the code, the table and the remedy."""
    written = Wire(statements(None, code, None)).store.replace(changes(3))

    assert [written[0], written[2]] == [Applied(), Applied()]
    assert effect_of(written[1]) == effect
    assert why(written[1]).startswith(f"{code} from BatchExecuteStatement: table {TABLE} ")
    assert why(written[1]).endswith(remedy)
    named = statements(code, None)
    named["Responses"][0]["Error"]["Message"] = "User: somebody"
    assert why(Wire(named).store.replace(changes(2))[0]).endswith(f"{remedy} (User: somebody)")


def test_a_statement_that_met_another_record() -> None:
    """An INSERT never returns the record that is there; an UPDATE does, if there is one."""
    item = {"id": {"S": "key-0"}, "status": {"S": "FAILED"}, "tenant": {"S": "blue"}}
    told = {
        "Responses": [{"Error": {"Code": "ConditionalCheckFailed", "Item": item}}, {"Error": {"Code": "DuplicateItem"}}]
    }

    assert Wire(told).store.replace(changes(2)) == [Conflict(Record(id="key-0", status="FAILED")), Conflict(None)]


# The answer to a request

PAGE = b"<html>Sign in to this network</html>"
FAULTS: list[tuple[Any, str, str]] = [
    *((error, UNKNOWN, type(error).__name__) for error in UNREACHED),
    # Botocore's parsers raise AttributeError and the like at what a proxy has sent.
    *(
        (Garbled(body, status), UNKNOWN, "UnreadableAnswer")
        for status in (200, 400, 500)
        for body in (b"[]", b'"Bad Gateway"', b"\xff")
    ),
    # It reads a web page as an empty answer, which is DynamoDB's answer to a successful write.
    *(
        (Garbled(PAGE, Content_Type=kind), UNKNOWN, "UnreadableAnswer")
        for kind in ("text/html", "text/html; charset=utf-8", "application/json", "")
    ),
    *(
        (Refusal(code, status=500), UNKNOWN, code)
        for code in ("InternalServerError", "ServiceUnavailable", "SomethingNew")
    ),
    *(
        (Refusal(code), LATER, "capacity")
        for code in ("ThrottlingException", "ProvisionedThroughputExceededException", "RequestLimitExceeded")
    ),
    (Refusal("TransactionConflictException"), CONTENDED, "another transaction"),
    (Refusal("ResourceNotFoundException"), NEVER, "create it, or correct the table's name"),
    *(
        (Refusal(code), NEVER, "credentials")
        for code in ("UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException")
    ),
    (NoCredentialsError(), NEVER, "credentials"),
    # As a user's own fake of a client may raise it.
    (ClientError({"Error": {"Code": "ThrottlingException"}}, "fake"), LATER, "capacity"),
]


@pytest.mark.scenario("S20", mutant="an internal error means that nothing was written")
@pytest.mark.parametrize(("fault", "effect", "told"), FAULTS)
def test_what_an_error_says_of_each_record_of_its_request(fault: Any, effect: str, told: str) -> None:
    """Of whatever kind. What is read is unknown then; to read it again helps unless the request was refused."""
    store = Wire(fault).store

    for kind, ask in REQUESTS.items():
        for answer in ask(store):
            assert f" from {OPERATIONS.get(kind, kind)}: table {TABLE} " in why(answer)
            assert told in why(answer)
            if kind in ("BatchGetItem", "GetItem"):
                assert isinstance(answer, Unknown)
                assert answer.retry == (effect != NEVER)
            else:
                assert effect_of(answer) == effect


def test_a_missing_permission_is_named() -> None:
    """For each kind of request, the reason names the action to allow, and whom AWS refused what."""
    message = "User: arn:aws:sts::1:assumed-role/consumer/f is not authorized to perform: dynamodb:X on resource: Y"
    store = Wire(Refusal("AccessDeniedException", message)).store

    for permission, ask in REQUESTS.items():
        for answer in ask(store):
            assert not answer.retry
            assert f"allow dynamodb:{permission}" in why(answer)
            assert message in why(answer)


@pytest.mark.parametrize("body", [b"", b"{}", b"not JSON", b"<html>", b'{"Responses": [{}]}'])
@pytest.mark.parametrize("kind", ["PartiQLInsert", "PartiQLUpdate", "BatchGetItem"])
def test_after_an_incomplete_answer_the_result_is_unknown(body: bytes, kind: str) -> None:
    """It is unknown which answers are missing."""
    assert [effect_of(answer) for answer in REQUESTS[kind](Wire(Garbled(body)).store)] == [UNKNOWN] * 2


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


@pytest.mark.scenario("S20", mutant="an invalid batch has written nothing")
def test_an_invalid_batch_may_have_been_written_in_part() -> None:
    """If a later statement makes a batch invalid, its result is unknown; a single invalid write is refused."""
    store = Wire(Refusal("ValidationException")).store

    for kind in ("PartiQLInsert", "PartiQLUpdate"):
        assert [effect_of(written) for written in REQUESTS[kind](store)] == [UNKNOWN] * 2
    for kind in ("PutItem", "UpdateItem"):
        assert effect_of(*REQUESTS[kind](store)) == NEVER


@pytest.mark.parametrize("second", ["ThrottlingException", "AccessDeniedException"])
@pytest.mark.parametrize("first", [UNREACHED[-1], Refusal("InternalServerError", status=500)])
def test_a_refusal_of_the_second_copy_says_nothing_of_the_first(
    first: Reply, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK retries by itself: if the first answer was lost and the second copy refused, the result is unknown."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
    wire = Wire(first, Refusal(second), attempts=2)

    (written,) = wire.store.insert(records(1))

    assert [operation for operation, _ in wire.sent] == ["PutItem", "PutItem"]
    assert effect_of(written) == UNKNOWN
    assert second in why(written)


def test_a_resent_write_meets_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the first copy took effect, the second is refused for it, and returns that record to be recognised."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)
    ours = {"id": {"S": "key"}, "status": {"S": "INPROGRESS"}, "version": {"S": "v1"}}
    wire = Wire(UNREACHED[-1], Refusal("ConditionalCheckFailedException", Item=ours), attempts=2)

    assert wire.store.insert([record()]) == [Conflict(Record(id="key", status="INPROGRESS", version="v1"))]


# Reads


@pytest.mark.scenario("S22", mutant="a read that may be stale")
@pytest.mark.parametrize(("count", "requests"), [(1, 1), (100, 1), (101, 2), (250, 3)])
def test_100_reads_are_one_request(count: int, requests: int) -> None:
    """Reads of n ids take n/100 requests, rounded up, and every one of them is consistent."""
    wire = Wire({"Responses": {TABLE: []}, "UnprocessedKeys": {}})

    assert wire.store.read([str(number) for number in range(count)]) == [None] * count

    assert [operation for operation, _ in wire.sent] == ["BatchGetItem"] * requests
    assert all(body["RequestItems"][TABLE]["ConsistentRead"] is True for _, body in wire.sent)


def test_what_dynamodb_cannot_store_is_not_there() -> None:
    """A key that no item can have is absent, and is not read: it would sink the other keys of its request."""
    wire = Wire({"Responses": {TABLE: [{"id": {"S": "a"}, "status": {"S": "COMPLETED"}}]}})

    assert wire.store.read(["\ud800", "a", ""]) == [None, Record(id="a", status="COMPLETED"), None]
    assert wire.sent[0][1]["RequestItems"][TABLE]["Keys"] == [{"id": {"S": "a"}}]


def unprocessed(*ids: str) -> dict[str, Any]:
    return {TABLE: {"Keys": [{"id": {"S": id}} for id in ids], "ConsistentRead": True}}


def found(*ids: str) -> dict[str, Any]:
    return {TABLE: [{"id": {"S": id}, "status": {"S": "COMPLETED"}} for id in ids]}


def test_unprocessed_keys_are_read_again() -> None:
    """Unprocessed keys are read again, consistently, and then are there or not."""
    wire = Wire(
        {"Responses": found("a"), "UnprocessedKeys": unprocessed("b", "c")},
        {"Responses": {}, "UnprocessedKeys": unprocessed("b", "c")},
        {"Responses": found("c"), "UnprocessedKeys": {}},
    )

    answers = wire.store.read(["a", "b", "c"])

    assert answers == [Record(id="a", status="COMPLETED"), None, Record(id="c", status="COMPLETED")]
    assert wire.sent[1][1]["RequestItems"] == unprocessed("b", "c")


@pytest.mark.scenario("S23", mutant="keys left unprocessed count as absent")
@pytest.mark.parametrize(("then", "told", "requests"), [([], "capacity", 5), ([UNREACHED[-1]], "ReadTimeoutError", 2)])
def test_keys_that_stay_unprocessed_are_unknown(then: list[Any], told: str, requests: int) -> None:
    """A key that was never read, in a bounded number of requests or until one fails, is neither absent nor done."""
    wire = Wire({"Responses": found("a"), "UnprocessedKeys": unprocessed("b")}, *then)

    first, unread, absent = wire.store.read(["a", "b", "c"])

    assert (first, absent) == (Record(id="a", status="COMPLETED"), None)
    assert effect_of(unread) == UNKNOWN
    assert told in why(unread)
    assert len(wire.sent) == requests
