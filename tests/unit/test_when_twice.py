"""What docs/when-twice.md says of conditions that do not hold: the same message then takes effect a second time."""

from __future__ import annotations

from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Transaction, body_field, sqs_consumer
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
