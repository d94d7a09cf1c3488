"""What messages cost whose items several workers write at the same time, on the virtual clock.

Four workers without claims get the same hundreds of messages at once. A transaction is under way for about 5 ms, and
others on its items conflict meanwhile, as in DynamoDB.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from harness.dynamodb.in_process import answered, client_of
from harness.dynamodb.tables import Surroundings, Tables
from idempotent_receiver import DynamoDBStore, Message, Transaction
from idempotent_receiver.dynamodb import client as store_client
from idempotent_receiver.dynamodb import client_config
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.testing.world import World
from tests.simulation.wire import GreenletLocal
from tests.simulation.world import Worker, sqs_record

if TYPE_CHECKING:
    from unittest.mock import Mock

WORKERS, BATCHES, MESSAGES, WRITES = 4, 3, 100, 2
UNDER_WAY_SECONDS, HALF_A_ROUND_TRIP_SECONDS = 0.005, 0.0025


class Contended(Surroundings):
    """Tables in a world: what a transaction does takes a while, in which others are served."""

    def __init__(self, seed: int = 1) -> None:
        self.random = Random(seed)
        self.world = World(Random(seed).random)
        self.tables = Tables(self)
        for name in ("records", "accounts"):
            self.tables.execute("CreateTable", {"TableName": name, "KeySchema": [{"AttributeName": "id"}]})
        self.client = client_of(self._send, client_config())

    def seconds(self) -> float:
        """The world's time."""
        return self.world.now

    def between(self) -> None:
        """A transaction is under way."""
        self._wait(UNDER_WAY_SECONDS)

    def _send(self, operation: str, body: bytes) -> tuple[int, bytes]:
        self._wait(HALF_A_ROUND_TRIP_SECONDS)
        answer = answered(self.tables, operation, body)
        self._wait(HALF_A_ROUND_TRIP_SECONDS)
        return answer

    def _wait(self, seconds: float) -> None:
        self.world.sleep(seconds * self.random.uniform(0.5, 1.5))


def post(body: dict, tx: Transaction) -> None:
    for account in body["accounts"]:
        tx.update(
            TableName="accounts",
            Key={"id": str(account)},
            UpdateExpression="ADD balance :one",
            ExpressionAttributeValues={":one": 1},
        )


def cost(accounts: int, *, singly: bool = False) -> tuple[float, float]:
    """Write units and requests a message."""
    contended, random = Contended(), Random(2)
    for number in range(WORKERS):
        store = DynamoDBStore("records", client=contended.client)
        if singly:
            store._packs.bound.shrink(1)
            store._packs.bound.grow = lambda: None  # type: ignore[method-assign]
        options: Any = {"effects": "transaction", "logger": SILENT, "metrics": SILENT}
        worker = Worker(contended.world, store, post, name=f"w{number}", **options)
        for batch in range(BATCHES):
            names = [f"{number}-{batch}-{message}" for message in range(MESSAGES)]
            bodies = [json.dumps({"accounts": random.sample(range(accounts), WRITES)}) for _ in names]
            worker.deliver(*map(sqs_record, names, bodies), seconds=60.0, after=batch * 30.0)
    contended.world.run()
    balances = contended.tables.tables["accounts"].items.values()
    messages = WORKERS * BATCHES * MESSAGES
    assert sum(int(one.item["balance"]["N"]) for one in balances) == messages * WRITES
    bill = contended.tables.bill
    return bill.write_units / messages, bill.requests.total() / messages


@pytest.fixture(autouse=True)
def in_greenlets() -> Any:
    """Each worker's calls are its own."""
    local: Mock | GreenletLocal = GreenletLocal()
    with patch.object(store_client, "_thread", local):
        yield


@pytest.mark.slow
@pytest.mark.parametrize(
    ("accounts", "singly", "units", "requests"),
    [(200, True, 6.3, 1.05), (200, False, 7.67, 0.81), (2_000, False, 7.94, 0.42), (20_000, False, 7.3, 0.19)],
)
def test_what_two_writes_cost_that_four_workers_contend_for(
    accounts: int, singly: bool, units: float, requests: float
) -> None:
    """Without contention six units. A larger request conflicts more often, and saves requests and time."""
    assert cost(accounts, singly=singly) == (pytest.approx(units, abs=0.005), pytest.approx(requests, abs=0.005))


class Reading:
    """A handler that reads an account and writes what follows, and how often it has run for each message."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()

    def post(self, body: dict, message: Message, tx: Transaction) -> None:
        self.runs[message.id] += 1
        account = {"TableName": "accounts", "Key": {"id": str(body["account"])}}
        found = tx.get(**account, attributes=["balance"])
        values = {":balance": 1 if found is None else found["balance"] + 1}
        tx.update(**account, UpdateExpression="SET balance = :balance", ExpressionAttributeValues=values)


@pytest.mark.slow
@pytest.mark.parametrize("effects", ["any", "transaction"])
def test_no_message_fails_whose_account_three_other_workers_read_and_write(effects: str) -> None:
    """Each is delivered once, and its handler runs half again as often as without contention."""
    contended, random, reading = Contended(), Random(2), Reading()
    for number in range(WORKERS):
        store = DynamoDBStore("records", client=contended.client)
        options: Any = {"effects": effects, "logger": SILENT, "metrics": SILENT}
        worker = Worker(contended.world, store, reading.post, name=f"w{number}", **options)
        for batch in range(BATCHES):
            names = [f"{number}-{batch}-{message}" for message in range(MESSAGES)]
            bodies = [json.dumps({"account": random.randrange(20)}) for _ in names]
            worker.deliver(*map(sqs_record, names, bodies), seconds=60.0, after=batch * 60.0)
    contended.world.run()
    balances = contended.tables.tables["accounts"].items.values()
    assert sum(int(one.item["balance"]["N"]) for one in balances) == len(reading.runs) == WORKERS * BATCHES * MESSAGES
    assert sum(reading.runs.values()) <= 2 * len(reading.runs)
