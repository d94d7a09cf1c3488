"""Packs on DynamoDB Local, AWS's own engine: they are atomic and isolated, whoever reads meanwhile.

The readers read with TransactGetItems, as only that shows a moment.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.protocol.store import ActionFailed, Applied, Commit
from tests.engines.engine import DynamoDB, client_of
from tests.engines.sample_records import committing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

ACCOUNTS = 20
READERS = 3
ROUNDS = 30
OPENING_BALANCE = 100


@pytest.fixture
def bank(dynamodb_local_client: DynamoDBClient) -> DynamoDB:
    """The engine, with accounts of 100 each."""
    engine = DynamoDB(dynamodb_local_client)
    for number in range(ACCOUNTS):
        item: Any = {"account": {"S": f"account-{number}"}, "balance": {"N": str(OPENING_BALANCE)}}
        engine.client.put_item(TableName=engine.accounts, Item=item)
    return engine


def moving(engine: DynamoDB, number: int, payer: int, payee: int, amount: int) -> Commit:
    """A commit that moves money, provided that the payer has it."""
    tx = Transaction()
    for account, change in ((payer, -amount), (payee, amount)):
        tx.update(
            TableName=engine.accounts,
            Key={"account": f"account-{account}"},
            UpdateExpression="SET balance = balance + :change",
            ConditionExpression="balance >= :least",
            ExpressionAttributeValues={":change": change, ":least": max(0, -change)},
        )
    return committing(engine, number, tx)


def read(reader: DynamoDBClient, engine: DynamoDB) -> list[int]:
    """All balances at one moment."""
    keys: Any = [
        {"Get": {"TableName": engine.accounts, "Key": {"account": {"S": f"account-{number}"}}}}
        for number in range(ACCOUNTS)
    ]
    found = reader.transact_get_items(TransactItems=keys)["Responses"]
    return [int(one["Item"]["balance"]["N"]) for one in found]


@contextmanager
def read_meanwhile(engine: DynamoDB) -> Iterator[tuple[list[list[int]], list[str]]]:
    """What several threads read during the block, and the requests that the store sends."""
    seen: list[list[int]] = []
    requests: list[str] = []
    ended, events = Event(), cast("Any", engine.client.meta.events)
    events.register("before-call.dynamodb", lambda model, **_: requests.append(model.name), unique_id="noting")

    def reading(_: int) -> None:
        with closing(client_of(engine.place)) as reader:
            while not ended.is_set():
                seen.append(read(reader, engine))

    with ThreadPoolExecutor(READERS) as pool:
        readers = pool.map(reading, range(READERS))
        try:
            yield seen, requests
        finally:
            events.unregister("before-call.dynamodb", unique_id="noting")
            ended.set()
            list(readers)
    assert len(seen) > READERS


def test_a_pack_is_seen_whole_or_not_at_all(bank: DynamoDB) -> None:
    """Each pack moves one from every even account to its odd neighbour, in ten commits: at any moment all have moved
    the same.
    """
    with read_meanwhile(bank) as (seen, requests):
        for round in range(ROUNDS):
            pack = [moving(bank, round * ACCOUNTS + payer, payer, payer + 1, 1) for payer in range(0, ACCOUNTS, 2)]
            assert list(bank.store.commit(pack)) == [Applied()] * len(pack)

    moments = {tuple(balances) for balances in seen}
    assert moments <= {
        (OPENING_BALANCE - moved, OPENING_BALANCE + moved) * (ACCOUNTS // 2) for moved in range(ROUNDS + 1)
    }
    assert len(moments) > 2
    assert requests == ["TransactWriteItems"] * ROUNDS


def test_a_pack_with_failing_conditions_leaves_nothing_of_them(bank: DynamoDB) -> None:
    """Some payers have too little. Money is neither made nor lost at any moment, and each answer says what happened."""
    random, expected, failed = Random(7), [OPENING_BALANCE] * ACCOUNTS, 0
    with read_meanwhile(bank) as (seen, requests):
        for round in range(ROUNDS):
            order = random.sample(range(ACCOUNTS), ACCOUNTS)
            moves = [
                (payer, payee, random.randint(1, 60)) for payer, payee in zip(order[::2], order[1::2], strict=True)
            ]
            pack = [moving(bank, round * ACCOUNTS + number, *move) for number, move in enumerate(moves)]
            for (payer, payee, amount), answer in zip(moves, bank.store.commit(pack), strict=True):
                enough = expected[payer] >= amount
                assert answer == (Applied() if enough else ActionFailed(0))
                failed += not enough
                expected[payer] -= amount * enough
                expected[payee] += amount * enough

    assert {sum(balances) for balances in seen} == {OPENING_BALANCE * ACCOUNTS}
    assert all(min(balances) >= 0 for balances in seen)
    assert read(bank.client, bank) == expected
    assert failed > ROUNDS
    assert len(requests) <= 2 * ROUNDS
