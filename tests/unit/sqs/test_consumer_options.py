"""From a decorated handler to its options, and to the same consumer with others."""

from __future__ import annotations

import inspect
from dataclasses import fields, replace
from functools import partial
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Message, Transaction, body_field, sqs_consumer
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS
from tests.contexts import Context
from tests.manual_clock import START_MS, ManualClock
from tests.simulation.world import sqs_record
from tests.unit.batch.at_once import AtOnce

CONTEXT = Context()
EVENT = {"Records": [sqs_record("m", '{"id": "order-1"}')]}


def handle(order: dict, message: Message) -> None:
    """Handles an order."""
    if order.get("fails"):
        raise ValueError


def test_a_consumer_says_what_it_was_made_of() -> None:
    """Its store and its options by their names, and its function."""
    store = MemoryStore("orders")
    consumer = sqs_consumer(store, key=body_field("id"), concurrency=3)(handle)

    assert consumer.options.store is store
    assert consumer.options.concurrency == 3
    options = {each.name for each in fields(consumer.options) if each.init}
    assert options == set(inspect.signature(sqs_consumer).parameters)
    assert inspect.unwrap(consumer) is handle


def test_a_consumer_looks_like_its_function() -> None:
    """To tools that ask for names. An object that is called has no name, and keeps what it has."""
    consumer: Any = sqs_consumer(MemoryStore())(handle)
    assert (consumer.__name__, consumer.__doc__) == ("handle", "Handles an order.")

    class Named:
        def __init__(self) -> None:
            self.options = "its own"

        def __call__(self, order: dict) -> None:
            """Handles an order."""

    unnamed: Any = sqs_consumer(MemoryStore())(Named())
    assert unnamed.__name__ == "lambda_handler"
    assert unnamed.options.concurrency == 1


def test_an_object_or_a_partial_may_ask_for_a_transaction() -> None:
    """Though neither has a name. What a partial has bound is no parameter any more."""

    class Booking:
        def __call__(self, order: dict, tx: Transaction) -> None:
            tx.put(TableName="orders", Item={"id": order["id"]})

    def book(table: str, order: dict, tx: Transaction) -> None:
        tx.put(TableName=table, Item={"id": order["id"]})

    for function in (Booking(), partial(book, "orders")):
        store = MemoryStore(tables={"orders": "id"})
        assert sqs_consumer(store)(function)(EVENT, CONTEXT) == {"batchItemFailures": []}
        assert store.tables["orders"].items == {("order-1",): {"id": "order-1"}}


def test_the_same_consumer_with_another_store_shares_nothing_else() -> None:
    """The options stay, the namespace may be the same, and the first consumer is as it was."""
    mine, other = MemoryStore("orders"), MemoryStore("orders")
    consumer = sqs_consumer(mine, key=body_field("id"))(handle)
    copy = consumer.with_options(replace(consumer.options, store=other))

    assert copy(EVENT, CONTEXT) == {"batchItemFailures": []}
    assert (list(mine.items), list(other.items)) == ([], ["orders#order-1"])
    assert (copy.options.key, copy.options.store) == (consumer.options.key, other)


def test_the_same_consumer_in_one_store_may_be_made_twice() -> None:
    """One namespace, one function: the copy is the same function, so nobody else's results are given away."""
    consumer = sqs_consumer(MemoryStore("orders"), key=body_field("id"))(handle)
    copy = consumer.with_options(replace(consumer.options, concurrency=2))
    assert copy(EVENT, CONTEXT) == {"batchItemFailures": []}


def test_a_copy_keeps_its_clock_and_its_executor_unless_it_is_given_others() -> None:
    """So that a test that replaces a store goes on in its own time."""
    store, made = MemoryStore("orders"), []

    def executor() -> AtOnce:
        made.append(AtOnce())
        return made[-1]

    consumer = sqs_consumer(MemoryStore("orders"), key=body_field("id"))(handle)
    consumer = consumer.with_options(consumer.options, clock=ManualClock(), executor=executor)
    copy = consumer.with_options(replace(consumer.options, store=store))

    assert copy(EVENT, CONTEXT) == {"batchItemFailures": []}
    assert store.items["orders#order-1"]["expiration"] == START_MS // 1000 + DEFAULT_RETENTION_SECONDS
    assert len(made) == 1


def test_the_same_consumer_may_run_another_function() -> None:
    """One that watches the first, for example."""
    seen: list[Any] = []

    def watched(order: dict) -> None:
        seen.append(order)

    consumer = sqs_consumer(MemoryStore())(handle)
    consumer.with_options(replace(consumer.options, store=MemoryStore()), watched)(EVENT, CONTEXT)
    assert seen == [{"id": "order-1"}]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"stores": MemoryStore()}, "stores"),
        ({"concurrency": 0}, "concurrency"),
        ({"backoff": None}, "backoff must not be None: leave it out"),
    ],
)
def test_another_option_that_cannot_be_is_refused_by_its_name(other: dict[str, Any], told: str) -> None:
    """As at set-up."""
    options = sqs_consumer(MemoryStore())(handle).options
    with pytest.raises((TypeError, ValueError), match=told):
        replace(options, **other)
