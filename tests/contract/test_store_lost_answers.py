"""Answers that are lost between a real engine and the store: the protocol finds the result of every write.

The request takes effect, or is not sent at all, and its answer never arrives or is an internal error.
"""

from __future__ import annotations

import json
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ReadTimeoutError
from botocore.httpsession import URLLib3Session

from idempotent_receiver import DynamoDBStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.answers import Settled
from idempotent_receiver.protocol.exchange import Operation, ask, commit
from idempotent_receiver.protocol.store import Applied, Conflict, Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed, complete
from tests.engines.engine import client_of
from tests.engines.sample_records import claimed, credit, insert_all, settling
from tests.manual_clock import ManualClock
from tests.many_operations import run_to_completion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from botocore.awsrequest import AWSPreparedRequest
    from mypy_boto3_dynamodb import DynamoDBClient

    from tests.engines.engine import DynamoDB

LOSSES = ["unsent", "unanswered", "broken"]


NO_BODY: Any = SimpleNamespace(stream=lambda **_: iter([b"{}"]))


@contextmanager
def hearing(client: DynamoDBClient, **heard: Callable[..., Any]) -> Iterator[None]:
    """Let functions hear, or answer, the client's events: `before_call_BatchGetItem=…`."""
    events: Any = client.meta.events
    named = {"{}-{}.dynamodb.{}".format(*name.split("_")): function for name, function in heard.items()}
    for name, function in named.items():
        events.register_first(name, function)
    try:
        yield
    finally:
        for name, function in named.items():
            events.unregister(name, function)


@contextmanager
def losing(client: DynamoDBClient, loss: str, times: int = 1) -> Iterator[None]:
    """Lose the next answers to writes."""
    left = times

    def lose(request: AWSPreparedRequest, **_: object) -> AWSResponse | None:
        nonlocal left
        if left == 0:
            return None
        left -= 1
        if loss != "unsent":
            with closing(URLLib3Session()) as session:
                session.send(request)
        if loss == "broken":
            return AWSResponse(request.url, 500, {}, NO_BODY)
        raise ReadTimeoutError(endpoint_url=request.url)

    names = ("PutItem", "UpdateItem", "BatchExecuteStatement", "TransactWriteItems")
    with hearing(client, **{f"before_send_{name}": lose for name in names}):
        yield
    assert left == 0, "nothing was lost, and nothing tested"


def claims(count: int) -> list[Claim]:
    until = 2_000_000_000_000
    return [Claim(id=f"key-{at}", fingerprint="f", owner="w", lease_until_ms=until) for at in range(count)]


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

    with closing(client_of(wired_engine.place, attempts=1)) as once, losing(once, loss):
        written = DynamoDBStore(wired_engine.records, client=once).insert(records)

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
    records = [claimed(f"other-{number}") for number in range(count)]
    with closing(client_of(wired_engine.place, attempts=3)) as sdk:
        store = DynamoDBStore(wired_engine.records, client=sdk)
        with losing(sdk, loss):
            written = store.insert(records)
        with losing(sdk, loss):
            answers = run_to_completion([Operation(claim, None) for claim in claims(count)], store, deadline)

    assert all(isinstance(answer, Conflict) for answer in written)
    assert all(isinstance(answer, Claimed) for answer in answers)
    assert list(wired_engine.store.read([record.id for record in records])) == records


def test_a_statement_with_an_internal_error_after_it_was_applied(wired_engine: DynamoDB, deadline: Deadline) -> None:
    """One statement of a batch has an internal error: only its result is unknown, and all are claimed."""

    def spoil(parsed: dict[str, Any], **_: object) -> None:
        parsed["Responses"][1] = {"Error": {"Code": "InternalServerError", "Message": "x"}}

    with hearing(wired_engine.client, after_call_BatchExecuteStatement=spoil):
        written = wired_engine.store.insert([claimed(id) for id in "abc"])
        answers = run_to_completion([Operation(claim, None) for claim in claims(3)], wired_engine.store, deadline)

    assert written[0] == written[2] == Applied()
    assert isinstance(written[1], Unknown)
    assert all(isinstance(answer, Claimed) for answer in answers)


def test_every_read_is_consistent_and_unprocessed_keys_are_read_again(wired_engine: DynamoDB) -> None:
    """An engine may return only some of the keys; the others are neither absent nor unknown."""
    records = [claimed(f"key-{number}") for number in range(120)]
    insert_all(wired_engine, *records)
    asked: list[dict[str, Any]] = []

    def note(params: dict[str, Any], **_: object) -> None:
        asked.append(json.loads(params["body"])["RequestItems"][wired_engine.records])

    def keep_back(parsed: dict[str, Any], **_: object) -> None:
        """Withhold half of what was found."""
        found = parsed["Responses"][wired_engine.records]
        if len(found) > 20:
            parsed["Responses"][wired_engine.records] = found[1::2]
            keys = [{"id": item["id"]} for item in found[::2]]
            parsed["UnprocessedKeys"] = {wired_engine.records: {"Keys": keys, "ConsistentRead": True}}

    with hearing(wired_engine.client, before_call_BatchGetItem=note, after_call_BatchGetItem=keep_back):
        read = wired_engine.store.read([*(record.id for record in records), "nobody"])

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
