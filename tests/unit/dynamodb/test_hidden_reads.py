"""A stale read that a conflict hides: no message fails for good because of it.

Two accounts hold all the money between them, and messages move it to and fro. A payment takes it from the one in which
it has read that the money is. So a payment that is refused as overdrawn has read what was no longer there. A
transaction is under way for about 5 ms, and others on its items conflict meanwhile: then DynamoDB evaluates the
payment's own condition on one account, but not the condition that what it has read of the other still stands.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial
from typing import Any

import pytest

from idempotent_receiver import DynamoDBStore, PermanentError, Transaction, http_endpoint
from idempotent_receiver.testing.events import LambdaContext
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.testing.world import WorldClock
from tests.simulation.contended import Contended, in_greenlets
from tests.simulation.world import Worker, sqs_record
from tests.unit.http.api import request

WORKERS = 4
EVERY_SECONDS = 0.02
"""How often each worker gets a message, whether or not the one before has ended."""

MONEY = 10_000
SECONDS = 60.0
FEW, MANY = 84, 504


def at(account: str) -> dict[str, Any]:
    return {"TableName": "accounts", "Key": {"id": account}}


def balance(tx: Transaction, account: str) -> int:
    return int(tx.get(**at(account), attributes=["balance"])["balance"])


def move(tx: Transaction) -> None:
    """Move all the money to the account without any."""
    balances = [balance(tx, account) for account in "ab"]
    for account, value in zip("ab", reversed(balances), strict=True):
        tx.update(**at(account), UpdateExpression="SET balance = :b", ExpressionAttributeValues={":b": value})


def pay(tx: Transaction) -> None:
    """Pay from where the money is. Only `a` is read."""
    tx.update(
        **at("a" if balance(tx, "a") else "b"),
        UpdateExpression="SET balance = balance - :one",
        ConditionExpression="balance >= :one",
        ExpressionAttributeValues={":one": 1},
        otherwise=PermanentError("overdrawn"),
    )


def touch(tx: Transaction) -> None:
    """Write to `a`, and leave its balance as it is."""
    tx.update(**at("a"), UpdateExpression="ADD touched :one", ExpressionAttributeValues={":one": 1})


def ask(body: dict, tx: Transaction) -> None:
    (move, touch, pay)[body["kind"]](tx)


def bank(seed: int) -> Contended:
    contended = Contended(seed)
    for account, money in (("a", MONEY), ("b", 0)):
        item = {"id": {"S": account}, "balance": {"N": str(money)}}
        contended.tables.execute("PutItem", {"TableName": "accounts", "Item": item})
    return contended


def bodies(worker: int, count: int) -> list[dict[str, Any]]:
    """So many messages of a worker, of each kind in turn."""
    return [{"kind": (worker + number) % 3, "n": f"{worker}-{number}"} for number in range(count)]


@pytest.fixture(autouse=True)
def greenlets() -> Any:
    with in_greenlets():
        yield


SIZES = [pytest.param(FEW, marks=pytest.mark.slow), pytest.param(MANY, marks=pytest.mark.nightly)]


def failed_for_good(contended: Contended) -> list[str]:
    """The errors in the records that say overdrawn."""
    records = contended.tables.tables["records"].items.values()
    errors = [record.item["error"]["S"] for record in records if "error" in record.item]
    return [error for error in errors if PermanentError.__name__ in error]


@pytest.mark.parametrize("messages", SIZES)
@pytest.mark.parametrize("effects", ["any", "transaction"])
def test_no_payable_message_fails_for_good(effects: str, messages: int) -> None:
    """With and without claims."""
    contended = bank(seed=7)
    for number in range(WORKERS):
        store = DynamoDBStore("records", client=contended.client)
        options: Any = {"effects": effects, "logger": SILENT, "metrics": SILENT}
        worker = Worker(contended.world, store, ask, name=f"w{number}", **options)
        for place, body in enumerate(bodies(number, messages // WORKERS)):
            worker.deliver(sqs_record(body["n"], json.dumps(body)), seconds=SECONDS, after=place * EVERY_SECONDS)
    contended.world.run()

    assert failed_for_good(contended) == []


@pytest.mark.parametrize("requests", SIZES)
def test_no_payable_request_gets_an_error_that_is_stored(requests: int) -> None:
    """Over HTTP, where each function handles one request at a time, and clients repeat what gets 503."""
    contended = bank(seed=8)
    statuses: Counter[int] = Counter()

    def serve(number: int) -> None:
        clock = WorldClock(contended.world, name=f"w{number}")
        store = DynamoDBStore("records", namespace="pay", client=contended.client)

        @http_endpoint(store, on_exception="replay", clock=clock, logger=SILENT, metrics=SILENT)
        def handler(event: dict[str, Any], context: object, tx: Transaction) -> Any:
            ask(json.loads(event["body"]), tx)
            return {"statusCode": 200, "body": "paid"}

        for body in bodies(number, requests // WORKERS):
            status = 503
            while status == 503:
                status = handler(request(body["n"], body), LambdaContext(SECONDS, clock))["statusCode"]
            statuses[status] += 1

    for number in range(WORKERS):
        contended.world.spawn(partial(serve, number))
    contended.world.run()

    assert statuses == {200: requests}
