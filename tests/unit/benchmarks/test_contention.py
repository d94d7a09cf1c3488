"""What messages cost whose items several workers write at the same time, on the virtual clock.

Four workers without claims get the same hundreds of messages at once. A transaction is under way for about 5 ms, and
others on its items conflict meanwhile, as in DynamoDB.
"""

from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from idempotent_receiver import DynamoDBStore, Message, Transaction
from idempotent_receiver.testing.worker import SILENT
from tests.simulation.contended import Contended, in_greenlets
from tests.simulation.world import Worker, sqs_record

WORKERS, BATCHES, MESSAGES, WRITES = 4, 3, 100, 2


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
def greenlets() -> Any:
    with in_greenlets():
        yield


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


@pytest.mark.parametrize("effects", ["any", "transaction"])
@pytest.mark.parametrize("batches", [1, BATCHES])
def test_no_message_fails_whose_account_three_other_workers_read_and_write(batches: int, effects: str) -> None:
    """Each is delivered once, and its handler runs half again as often as without contention."""
    contended, random, reading = Contended(), Random(2), Reading()
    for number in range(WORKERS):
        store = DynamoDBStore("records", client=contended.client)
        options: Any = {"effects": effects, "logger": SILENT, "metrics": SILENT}
        worker = Worker(contended.world, store, reading.post, name=f"w{number}", **options)
        for batch in range(batches):
            names = [f"{number}-{batch}-{message}" for message in range(MESSAGES)]
            bodies = [json.dumps({"account": random.randrange(20)}) for _ in names]
            worker.deliver(*map(sqs_record, names, bodies), seconds=60.0, after=batch * 60.0)
    contended.world.run()
    balances = contended.tables.tables["accounts"].items.values()
    assert sum(int(one.item["balance"]["N"]) for one in balances) == len(reading.runs) == WORKERS * batches * MESSAGES
    assert sum(reading.runs.values()) <= 2 * len(reading.runs)
