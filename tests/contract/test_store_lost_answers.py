"""Answers that are lost between a real engine and the store: the protocol finds the result of every write.

The request takes effect, or is not sent at all, and its answer never arrives or is an internal error.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

from idempotent_receiver import DynamoDBStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.exchange import Operation, ask, commit
from idempotent_receiver.protocol.store import Applied, Conflict, Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed, Settled, complete
from tests.engines.engine import client_of
from tests.engines.sample_records import claimed, credit, insert_all, settling
from tests.manual_clock import ManualClock
from tests.many_operations import run_to_completion

if TYPE_CHECKING:
    from collections.abc import Iterator

    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.engines.engine import DynamoDB

LOSSES = ["unsent", "unanswered", "broken"]


class Way:
    """The network to the engine, on which the next answers are lost: how many, and how."""

    def __init__(self, loss: str, times: int) -> None:
        self.loss = loss
        self.left = times

    def __call__(self, request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        if self.left == 0:
            return None
        self.left -= 1
        if self.loss != "unsent":
            session = URLLib3Session()
            session.send(request)
            session.close()
        if self.loss == "broken":
            return AWSResponse(request.url, 500, {}, Nothing())  # type: ignore[arg-type]  # as botocore makes its own
        raise ReadTimeoutError(endpoint_url=request.url)


class Nothing:
    """A response without a body."""

    def stream(self, **_: object) -> Iterator[bytes]:
        yield b"{}"


@contextmanager
def losing(client: DynamoDBClient, loss: str, times: int = 1) -> Iterator[Way]:
    """Lose the next answers to writes."""
    way = Way(loss, times)
    names = ["PutItem", "UpdateItem", "BatchExecuteStatement", "TransactWriteItems"]
    events: Any = client.meta.events
    for name in names:
        events.register_first(f"before-send.dynamodb.{name}", way)
    try:
        yield way
    finally:
        for name in names:
            events.unregister(f"before-send.dynamodb.{name}", way)
    assert way.left == 0, "nothing was lost, and nothing tested"


def claims(count: int) -> list[Claim]:
    return [
        Claim(id=f"key-{number}", fingerprint="f", owner="w", lease_until_ms=2_000_000_000_000)
        for number in range(count)
    ]


@pytest.fixture
def deadline() -> Deadline:
    """Half a minute of a clock that only sleeping advances."""
    return Deadline.after(ManualClock(), 30_000)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("count", [1, 3, 60])
def test_a_read_resolves_the_unknown_result_of_a_lost_answer(
    wired_engine: DynamoDB, deadline: Deadline, loss: str, count: int
) -> None:
    """Claims and completions whose answers are lost are recognised or sent again; each takes effect once."""
    store = wired_engine.store
    with losing(wired_engine.client, loss):
        claimed = run_to_completion([Operation(claim, None) for claim in claims(count)], store, deadline)
    assert all(isinstance(answer, Claimed) for answer in claimed)
    held = [answer for answer in claimed if isinstance(answer, Claimed)]

    with losing(wired_engine.client, loss):
        settled = run_to_completion([Operation(complete(one, "{}"), one.record) for one in held], store, deadline)

    assert all(isinstance(answer, Settled) for answer in settled)
    records = [answer.record for answer in settled if isinstance(answer, Settled)]
    assert list(store.read([record.id for record in records])) == records
    assert {record.attempts for record in records} == {1}


@pytest.mark.parametrize("loss", LOSSES)
def test_a_transaction_whose_answer_is_lost_takes_effect_once(
    wired_engine: DynamoDB, deadline: Deadline, loss: str
) -> None:
    """It is recognised by its version, or sent again with its token; the credit is there exactly once."""
    held = ask(claims(1)[0], None, wired_engine.store, deadline)
    assert isinstance(held, Claimed)

    with losing(wired_engine.client, loss, times=2 if loss == "unsent" else 1):
        answer = commit(complete(held, "{}"), credit(wired_engine).actions, wired_engine.store, deadline)

    assert isinstance(answer, Settled)
    assert wired_engine.account("alice") == {"account": "alice", "balance": 5}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("count", [1, 3])
def test_what_the_store_itself_says_of_a_lost_answer(wired_engine: DynamoDB, loss: str, count: int) -> None:
    """The result of each of the request's writes is unknown: neither applied nor refused."""
    records = [claimed(f"key-{number}") for number in range(count)]
    once = client_of(wired_engine.place, attempts=1)

    with losing(once, loss):
        written = DynamoDBStore(wired_engine.records, client=once).insert(records)
    once.close()

    assert len(written) == count
    assert all(isinstance(answer, Unknown) and answer.retry for answer in written)
    assert list(wired_engine.store.read([record.id for record in records])) == (
        [None] * count if loss == "unsent" else records
    )


@pytest.mark.parametrize("loss", ["unanswered", "broken"])
@pytest.mark.parametrize("count", [1, 3])
def test_the_second_copy_of_a_write_meets_the_first(
    wired_engine: DynamoDB, deadline: Deadline, loss: str, count: int
) -> None:
    """The SDK retries by itself and meets a conflict; the protocol recognises its own write."""
    sdk = client_of(wired_engine.place, attempts=3)
    store = DynamoDBStore(wired_engine.records, client=sdk)
    records = [claimed(f"other-{number}") for number in range(count)]

    with losing(sdk, loss):
        written = store.insert(records)
    with losing(sdk, loss):
        answers = run_to_completion([Operation(claim, None) for claim in claims(count)], store, deadline)
    sdk.close()

    assert all(isinstance(answer, Conflict) for answer in written)
    assert all(isinstance(answer, Claimed) for answer in answers)
    assert list(store.read([record.id for record in records])) == records


def test_a_statement_with_an_internal_error_after_it_was_applied(wired_engine: DynamoDB, deadline: Deadline) -> None:
    """One statement of a batch has an internal error: only its result is unknown, and all are claimed."""

    def spoil(parsed: dict[str, Any], **_: object) -> None:
        parsed["Responses"][1] = {"Error": {"Code": "InternalServerError", "Message": "x"}}

    events: Any = wired_engine.client.meta.events
    events.register("after-call.dynamodb.BatchExecuteStatement", spoil)
    try:
        written = wired_engine.store.insert([claimed(id) for id in "abc"])
        answers = run_to_completion([Operation(claim, None) for claim in claims(3)], wired_engine.store, deadline)
    finally:
        events.unregister("after-call.dynamodb.BatchExecuteStatement", spoil)

    assert written[0] == written[2] == Applied()
    assert isinstance(written[1], Unknown)
    assert all(isinstance(answer, Claimed) for answer in answers)


def test_every_read_is_consistent_and_unprocessed_keys_are_read_again(wired_engine: DynamoDB) -> None:
    """An engine may return only some of the keys; the others are neither absent nor unknown."""
    records = [claimed(f"key-{number}") for number in range(120)]
    insert_all(wired_engine, *records)
    asked: list[dict[str, Any]] = []

    def note(params: dict[str, Any], **_: object) -> None:
        asked.append(params["RequestItems"][wired_engine.records])

    def keep_back(parsed: dict[str, Any], **_: object) -> None:
        """Withhold half of what was found."""
        found = parsed["Responses"][wired_engine.records]
        back, parsed["Responses"][wired_engine.records] = found[::2], found[1::2]
        if len(found) > 20:
            keys = [{"id": item["id"]} for item in back]
            parsed["UnprocessedKeys"] = {wired_engine.records: {"Keys": keys, "ConsistentRead": True}}
        else:
            parsed["Responses"][wired_engine.records] = found

    events: Any = wired_engine.client.meta.events
    events.register("provide-client-params.dynamodb.BatchGetItem", note)
    events.register("after-call.dynamodb.BatchGetItem", keep_back)
    try:
        read = wired_engine.store.read([*(record.id for record in records), "nobody"])
    finally:
        events.unregister("provide-client-params.dynamodb.BatchGetItem", note)
        events.unregister("after-call.dynamodb.BatchGetItem", keep_back)

    assert list(read) == [*records, None]
    assert len(asked) > 2
    assert all(request["ConsistentRead"] is True for request in asked)


def test_a_read_sees_what_was_just_written(wired_engine: DynamoDB) -> None:
    """Also by another client, which reads each replacement as soon as it has been answered."""
    reader = client_of(wired_engine.place)
    record = claimed()
    insert_all(wired_engine, record)
    for _ in range(30):
        change = settling(record)
        assert wired_engine.store.replace([change]) == [Applied()]
        assert DynamoDBStore(wired_engine.records, client=reader).read([record.id]) == [change.new]
        record = change.new
    reader.close()
