"""Four workers add to one cart what they make of what they have read: on every store, nothing is lost of it."""

from __future__ import annotations

import json
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver import Transaction, sqs_consumer
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.contexts import Context
from tests.simulation.world import sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.engines.engine import Engine

WORKERS, CHECKOUT = 4, 5
CART = {"account": "cart"}
Work = "Callable[[int, str, Transaction, Callable[[], None]], None]"


def as_attributes(number: int, table: str, tx: Transaction, read: Callable[[], None]) -> None:
    """Each article is an attribute of the item, which nobody names; their count is read and written."""
    cart = tx.get(TableName=table, Key=CART, attributes=["articles"])
    read()
    tx.update(
        TableName=table,
        Key=CART,
        UpdateExpression="SET articles = :count, #own = :own",
        ExpressionAttributeNames={"#own": f"article-{number}"},
        ExpressionAttributeValues={":count": 1 if cart is None else cart["articles"] + 1, ":own": number},
    )


def in_a_map(number: int, table: str, tx: Transaction, read: Callable[[], None]) -> None:
    """All articles are one attribute, a map, which whoever finds no cart makes."""
    cart = tx.get(TableName=table, Key=CART, attributes=["articles"])
    read()
    if cart is None:
        return tx.put(TableName=table, Item={**CART, "articles": {str(number): number}})
    articles = {**cart["articles"], str(number): number}
    expression, values = "SET articles = :articles", {":articles": articles}
    return tx.update(TableName=table, Key=CART, UpdateExpression=expression, ExpressionAttributeValues=values)


def and_checked_out(number: int, table: str, tx: Transaction, read: Callable[[], None]) -> None:
    """Some messages add nothing, but make the cart an order and delete it."""
    if number % CHECKOUT:
        return in_a_map(number, table, tx, read)
    cart = tx.get(TableName=table, Key=CART, attributes=["articles"])
    read()
    if cart is None:
        return None
    tx.put(TableName=table, Item={"account": f"order-{number}", "articles": cart["articles"]})
    return tx.delete(TableName=table, Key=CART)


def contents(engine: Engine, work: Work, messages: int) -> list[int]:
    """The articles of the cart and of all orders, sorted."""
    places = [engine.account(name) or {} for name in ("cart", *(f"order-{number}" for number in range(messages)))]
    if work is as_attributes:
        (cart, *_) = places
        assert cart["articles"] == messages
        return sorted(int(value) for name, value in cart.items() if name.startswith("article-"))
    return sorted(int(number) for place in places for number in place.get("articles", {}).values())


def expected(work: Work, messages: int) -> list[int]:
    return [number for number in range(messages) if work is not and_checked_out or number % CHECKOUT]


class Workers:
    """Workers that deliver messages, each as often as it takes. `read` is called when a handler has read."""

    def __init__(self, engine: Engine, work: Work, effects: str, messages: int, read: Callable[[], None]) -> None:
        def handler(body: dict, tx: Transaction) -> None:
            work(body["number"], engine.accounts, tx, read)

        made = (sqs_consumer(engine.store, effects=effects, logger=SILENT, metrics=SILENT) for _ in range(WORKERS))
        self.consumers = [consumer(handler) for consumer in made]
        self.waiting = deque((number, 1) for number in range(messages))
        self.left = 20 * messages

    def deliver(self, worker: int, most: int = 1) -> None:
        """Have a worker handle a batch of what waits."""
        batch = {}
        while self.waiting and len(batch) < most:
            number, receives = self.waiting.popleft()
            batch[str(number)] = sqs_record(str(number), json.dumps({"number": number}), receives=receives)
        self.left -= len(batch)
        assert self.left > 0, "some never succeed"
        for id in failed_ids(self.consumers[worker]({"Records": [*batch.values()]}, Context())):
            self.waiting.append((int(id), int(batch[id]["attributes"]["ApproximateReceiveCount"]) + 1))


both_modes = pytest.mark.parametrize("effects", ["any", "transaction"])
every_way = pytest.mark.parametrize("work", [as_attributes, in_a_map, and_checked_out], ids=lambda work: work.__name__)
as_many = pytest.mark.parametrize("messages", [12, pytest.param(60, marks=pytest.mark.nightly)])


@as_many
@every_way
@both_modes
def test_what_others_add_right_after_a_read_is_not_lost(
    engine: Engine, effects: str, work: Work, messages: int
) -> None:
    """While a worker's handler has read, the others handle some of their messages, one within another."""
    random, running = Random(messages), [0]

    def read() -> None:
        while workers.waiting and running[0] < WORKERS and random.random() < 0.5:
            deliver()

    def deliver() -> None:
        running[0] += 1
        workers.deliver(running[0] - 1)
        running[0] -= 1

    workers = Workers(engine, work, effects, messages, read)
    while workers.waiting:
        deliver()
    assert contents(engine, work, messages) == expected(work, messages)


@as_many
@every_way
@both_modes
def test_what_four_workers_add_at_the_same_time_is_all_there(
    shared_engine: Engine, effects: str, work: Work, messages: int
) -> None:
    """In batches, whose messages take turns within a worker and race with the other workers'."""
    workers = Workers(shared_engine, work, effects, messages, lambda: None)

    def drain(worker: int) -> None:
        while workers.waiting:
            workers.deliver(worker, most=5)

    while workers.waiting:
        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(drain, range(WORKERS)))
    assert contents(shared_engine, work, messages) == expected(work, messages)
