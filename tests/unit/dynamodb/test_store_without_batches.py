"""An engine that has no batches of statements: which requests the store makes, and when it gives batches up."""

from __future__ import annotations

import json
from threading import Barrier, Thread
from typing import TYPE_CHECKING, Any

import pytest

from harness.dynamodb.in_process import answered, client_of, refused
from harness.dynamodb.tables import Tables
from idempotent_receiver import DynamoDBStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.exchange import Operation
from idempotent_receiver.protocol.store import Applied, NotApplied
from idempotent_receiver.protocol.transitions import Claim, Claimed, complete
from tests.engines.engine import Place, create
from tests.manual_clock import ManualClock
from tests.many_operations import commit_one, run_to_completion
from tests.unit.dynamodb.wire import (
    LATER,
    NEVER,
    TABLE,
    UNKNOWN,
    UNREACHED,
    Garbled,
    Refusal,
    Wire,
    change,
    changes,
    effect_of,
    records,
    statements,
    why,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.store import Written

NO_BATCHES = Refusal("UnknownOperationException", "Unsupported operation BatchExecuteStatement")

KINDS: dict[str, Callable[[DynamoDBStore, int], Sequence[Written]]] = {
    "PutItem": lambda store, count: store.insert(records(count)),
    "UpdateItem": lambda store, count: store.replace(changes(count)),
}


def asked(wire: Wire) -> list[str]:
    return [operation for operation, _ in wire.sent]


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_batch_is_unknown_and_then_each_record_has_a_request_of_its_own(kind: str) -> None:
    """60 writes are one batch that failed and 35 requests; the next 60 are 60 requests."""
    wire = Wire(NO_BATCHES, {})
    store = wire.store

    first = KINDS[kind](store, 60)

    assert [effect_of(written) for written in first[:25]] == [UNKNOWN] * 25
    assert list(first[25:]) == [Applied()] * 35
    assert asked(wire) == ["BatchExecuteStatement", *[kind] * 35]
    assert list(KINDS[kind](store, 60)) == [Applied()] * 60
    assert asked(wire)[36:] == [kind] * 60


def test_what_one_kind_of_write_has_learnt_holds_for_the_other() -> None:
    wire = Wire(NO_BATCHES, {})
    store = wire.store
    store.insert(records(2))

    assert store.replace(changes(3)) == [Applied()] * 3

    assert asked(wire) == ["BatchExecuteStatement", *["UpdateItem"] * 3]


def test_each_single_request_has_its_own_answer() -> None:
    wire = Wire(NO_BATCHES, {}, Refusal("AccessDeniedException"), {})
    store = wire.store
    store.insert(records(2))

    first, second, third = store.insert(records(3))

    assert first == third == Applied()
    assert effect_of(second) == NEVER


def test_after_a_request_without_an_answer_no_more_are_sent() -> None:
    """25 time-outs, one after the other, would outlast any deadline. What was not sent may be tried again."""
    wire = Wire(NO_BATCHES, {}, UNREACHED[-1])
    store = wire.store
    store.insert(records(2))

    first, second, *others = store.insert(records(25))

    assert first == Applied()
    assert effect_of(second) == UNKNOWN
    assert [effect_of(other) for other in others] == [LATER] * 23
    assert asked(wire) == ["BatchExecuteStatement", "PutItem", "PutItem"]


def test_a_store_of_another_table_or_client_asks_for_itself() -> None:
    """What is learnt belongs to a store, and to those that it was named from or has named."""
    wire = Wire(NO_BATCHES, {})
    store = DynamoDBStore(TABLE, namespace="orders", client=wire.client)
    other = Wire(statements(None, None))
    store.insert(records(2))

    other.store.insert(records(2))
    wire.replies = [statements(None, None)]
    wire.store.insert(records(2))
    assert asked(other) == ["BatchExecuteStatement"]
    assert asked(wire) == ["BatchExecuteStatement"] * 2

    store.named("refunds").insert(records(2))
    assert asked(wire)[2:] == ["PutItem", "PutItem"]


def test_it_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """However many threads find out at the same time. The line names the table."""
    wire = Wire(NO_BATCHES)
    store, together = wire.store, Barrier(4)

    def meet(**_: object) -> None:
        together.wait(timeout=30)

    wire.client.meta.events.register("before-call.dynamodb", meet)
    threads = [Thread(target=lambda: store.insert(records(2))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (line,) = caplog.records
    assert asked(wire) == ["BatchExecuteStatement"] * 4
    assert (line.name, line.levelname) == ("idempotent_receiver.dynamodb", "WARNING")
    assert line.getMessage().startswith(f"table {TABLE} is on an engine without BatchExecuteStatement")


OTHERS: dict[str, Any] = {
    **{code: Refusal(code) for code in ("ThrottlingException", "AccessDeniedException", "ValidationException")},
    **{code: Refusal(code) for code in ("ResourceNotFoundException", "ExpiredTokenException", "SomethingNew")},
    **{code: Refusal(code, status=500) for code in ("InternalServerError", "UnknownError")},
    "statements refused": statements("ThrottlingError", "ValidationError"),
    "statements unknown": statements("UnknownOperation", "UnknownOperationException"),
    "page not found": Garbled(b"<html>", 404, Content_Type="text/html"),
    "page": Garbled(b"<html>", Content_Type="text/html"),
    "moto's server": Garbled(b"<!doctype html>", 500, Content_Type="text/html"),
    **{type(error).__name__: error for error in UNREACHED},
}


@pytest.mark.parametrize("answer", OTHERS.values(), ids=OTHERS)
def test_nothing_else_ends_batches(answer: Any, caplog: pytest.LogCaptureFixture) -> None:
    """One bad minute of DynamoDB's must not multiply the requests: a batch of 25 stays one."""
    wire = Wire(answer)
    store = wire.store
    for _ in range(3):
        store.insert(records(25))
        store.replace(changes(25))

    assert asked(wire) == ["BatchExecuteStatement"] * 6
    assert caplog.records == []


def test_an_operation_that_nothing_can_stand_in_for_is_refused() -> None:
    """A transaction on such an engine fails at once, and the reason names the operation."""
    store = Wire(NO_BATCHES).store

    answer = commit_one(store, change(), ())

    assert isinstance(answer, NotApplied)
    assert effect_of(answer) == NEVER
    assert why(answer).startswith(f"UnknownOperationException from TransactWriteItems: table {TABLE} is on an engine")


# Whole exchanges, on the model of DynamoDB


@pytest.mark.parametrize("written", [0, 1, 25])
def test_a_read_decides_what_the_failed_batch_has_written(written: int) -> None:
    """60 claims and completions take effect once each, also where the engine did some of what it says it cannot do."""
    tables = Tables()
    sent: list[str] = []

    def answer(operation: str, body: bytes) -> tuple[int, bytes]:
        sent.append(operation)
        if operation != "BatchExecuteStatement":
            return answered(tables, operation, body)
        answered(tables, operation, json.dumps({"Statements": json.loads(body)["Statements"][:written]}).encode())
        return refused("UnknownOperationException")

    client = client_of(answer)
    create(client, Place(None, TABLE, "accounts"))
    store, deadline = DynamoDBStore(TABLE, client=client), Deadline.after(ManualClock(), 30_000)
    until = 2_000_000_000_000
    claims = [Claim(id=f"key-{at}", fingerprint="f", owner="w", lease_until_ms=until) for at in range(60)]
    sent.clear()

    claimed = run_to_completion([Operation(claim, None) for claim in claims], store, deadline)

    assert all(isinstance(one, Claimed) for one in claimed)
    assert sent == ["BatchExecuteStatement", *["PutItem"] * 35, "BatchGetItem", *["PutItem"] * (25 - written)]
    completions = [Operation(complete(one, "{}"), one.record) for one in claimed]
    run_to_completion(completions, store, deadline)
    assert sent[-60:] == ["UpdateItem"] * 60
    found: Any = store.read([claim.id for claim in claims])
    assert {(one.status, one.attempts) for one in found} == {("COMPLETED", 1)}
