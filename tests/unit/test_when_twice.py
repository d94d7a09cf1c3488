"""What docs/when-twice.md says of conditions that do not hold: the same message then takes effect a second time. And of
functions without claims: the same message may run a second time.
"""

from __future__ import annotations

from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Transaction, body_field, sqs_consumer
from idempotent_receiver.testing import explore
from tests.contexts import Context
from tests.manual_clock import ManualClock


def book(order: dict[str, Any], tx: Transaction) -> None:
    tx.update(
        TableName="accounts",
        Key={"account": order["account"]},
        UpdateExpression="ADD balance :cents",
        ExpressionAttributeValues={":cents": 5},
    )


def deliver(store: MemoryStore, message_id: str, **options: Any) -> None:
    handler = sqs_consumer(store, **options)(book)
    event = {"Records": [{"messageId": message_id, "body": '{"account": "alice", "order": "o-1"}'}]}
    assert handler(event, Context(ManualClock())) == {"batchItemFailures": []}


def balance(store: MemoryStore) -> int:
    return store.tables["accounts"].items["alice",]["balance"]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(namespace="orders", tables={"accounts": "account"})


def test_a_message_that_is_sent_twice_under_two_message_ids_takes_effect_twice(store: MemoryStore) -> None:
    """Unless its key is in it."""
    deliver(store, "m-1")
    deliver(store, "m-2")
    assert balance(store) == 10

    deliver(store, "m-3", key=body_field("order"))
    deliver(store, "m-4", key=body_field("order"))
    assert balance(store) == 15


def test_a_message_whose_record_was_deleted_takes_effect_again(store: MemoryStore) -> None:
    deliver(store, "m-1")
    deliver(store, "m-1")
    assert balance(store) == 5

    store.items.clear()
    deliver(store, "m-1")
    assert balance(store) == 10


def test_a_message_under_another_namespace_takes_effect_again(store: MemoryStore) -> None:
    """Or under another key."""
    deliver(store, "m-1")
    deliver(store.named("v2"), "m-1")
    assert balance(store) == 10

    deliver(store, "m-1", key=body_field("order"))
    assert balance(store) == 15


def test_without_claims_two_workers_run_one_message_and_one_takes_effect(store: MemoryStore) -> None:
    """The second runs while the first one does."""
    event = {"Records": [{"messageId": "m-1", "body": '{"account": "alice"}'}]}
    responses: list[Any] = []
    runs: list[int] = []

    def slow(order: dict[str, Any], tx: Transaction) -> None:
        runs.append(1)
        book(order, tx)
        if len(runs) == 1:
            responses.append(consumer(event, Context(ManualClock())))

    consumer = sqs_consumer(store, effects="transaction")(slow)
    responses.append(consumer(event, Context(ManualClock())))

    assert len(runs) == 2
    assert responses == [{"batchItemFailures": []}] * 2
    assert balance(store) == 5


def test_without_claims_a_message_that_is_sent_again_under_its_key_runs_and_takes_no_effect(store: MemoryStore) -> None:
    """The first delivery of the copy is not read before it runs."""
    runs: list[str] = []

    def count(order: dict[str, Any], tx: Transaction) -> None:
        runs.append(order["order"])
        book(order, tx)

    consumer = sqs_consumer(store, effects="transaction", key=body_field("order"))(count)
    for message_id in ("m-1", "m-2"):
        event = {"Records": [{"messageId": message_id, "body": '{"account": "alice", "order": "o-1"}'}]}
        assert consumer(event, Context(ManualClock())) == {"batchItemFailures": []}

    assert runs == ["o-1", "o-1"]
    assert balance(store) == 5


def test_without_claims_a_crash_costs_a_run_and_no_second_effect(store: MemoryStore) -> None:
    """Wherever it happens: nothing is recorded before the commit, and all of it then."""
    runs: list[int] = []

    def count(order: dict[str, Any], tx: Transaction) -> None:
        runs.append(1)
        book(order, tx)

    seen = explore(
        sqs_consumer(store, effects="transaction")(count), {"account": "alice"}, tables={"accounts": "account"}
    )

    assert seen.effects["accounts"] == [{"account": "alice", "balance": 5}]
    assert seen.played["commit", "crash-before"] > 0
    assert len(runs) > seen.schedules
