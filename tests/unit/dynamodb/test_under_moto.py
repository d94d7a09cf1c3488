"""Whole consumers under moto's `mock_aws`: what they answer and what the tables hold is what `MemoryStore` says.

No race is tried here: moto is not atomic under threads, so the store sends it one request at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from boto3.dynamodb.types import TypeDeserializer
from moto import mock_aws

from idempotent_receiver import DynamoDBStore, MemoryStore, Message, PermanentError, Transaction, sqs_consumer
from idempotent_receiver.protocol.store import Applied
from idempotent_receiver.testing import lambda_context, sqs_event
from idempotent_receiver.testing.worker import SILENT, failed_ids
from tests.unit.dynamodb.wire import Wire, records, statements

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_dynamodb import DynamoDBClient

AT_IMPORT = DynamoDBStore("records")
"""As in most functions: made before the test's `mock_aws` has started."""

KINDS = ["credit", "raises", "nothing", "overdrawn", "for good", "credit"]
CHANGING = {"version", "expiration", "in_progress_expiration"}
"""What differs from run to run."""


@pytest.fixture(autouse=True)
def region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
def dynamodb() -> Iterator[DynamoDBClient]:
    with mock_aws(), closing(boto3.client("dynamodb")) as client:
        create_tables(client)
        yield client


def create_tables(client: DynamoDBClient) -> None:
    for table, key in (("records", "id"), ("accounts", "account")):
        client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )


def items(client: DynamoDBClient, table: str, key: str) -> dict[str, dict[str, Any]]:
    """What a table holds, by its key."""
    pages = client.get_paginator("scan").paginate(TableName=table)
    plain = TypeDeserializer().deserialize
    found = [{name: plain(value) for name, value in item.items()} for page in pages for item in page["Items"]]
    return {item[key]: item for item in found}


class Bank:
    """The handlers, and how often each message has run. After `mended`, what raised does not."""

    def __init__(self) -> None:
        self.runs: Counter[str] = Counter()
        self.mended = False

    def with_transaction(self, order: dict, message: Message, tx: Transaction) -> dict:
        result = self.without_transaction(order, message)
        if order["kind"] != "nothing":
            overdraws = order["kind"] == "overdrawn" and not self.mended
            tx.update(
                TableName="accounts",
                Key={"account": order["account"]},
                UpdateExpression="ADD balance :cents",
                ConditionExpression="attribute_exists(overdraft)" if overdraws else "attribute_not_exists(closed)",
                ExpressionAttributeValues={":cents": order["cents"]},
                otherwise=PermanentError("overdrawn"),
            )
        return result

    async def as_coroutine(self, order: dict, message: Message, tx: Transaction) -> dict:
        return self.with_transaction(order, message, tx)

    def without_transaction(self, order: dict, message: Message) -> dict:
        self.runs[message.id] += 1
        if order["kind"] == "raises" and not self.mended:
            raise ValueError(order["kind"])
        if order["kind"] == "for good":
            raise PermanentError(order["kind"])
        return {"credited": order["cents"]}


def orders(count: int) -> list[dict[str, Any]]:
    """At least one of each kind, on a few accounts."""
    few = range(max(count, len(KINDS)))
    return [{"kind": KINDS[at % len(KINDS)], "account": f"account-{at % 7}", "cents": at} for at in few]


def played(
    store: Any, handler: str, size: int, *, fifo: bool = False, **options: Any
) -> tuple[list[list[str]], Counter[str]]:
    """Deliver orders in batches of `size`, then all of them again, then what failed is mended and all come once more.
    Returns what each batch answered, and how often each message has run.
    """
    bank = Bank()
    consumer = sqs_consumer(store, logger=SILENT, metrics=SILENT, **options)(getattr(bank, handler))
    messages = [(f"message-{at}", order) for at, order in enumerate(orders(size))]
    batches = [messages[start : start + size] for start in range(0, len(messages), size)]
    answers = []
    for receive_count in (1, 2, 3):
        bank.mended = receive_count == 3
        for batch in batches:
            ids, bodies = [id for id, _ in batch], [order for _, order in batch]
            groups = [order["account"] for order in bodies] if fifo else None
            event = sqs_event(*bodies, ids=ids, receive_count=receive_count, fifo=fifo, groups=groups)
            answers.append(failed_ids(consumer(event, lambda_context())))
    return answers, bank.runs


def assert_same(client: DynamoDBClient, handler: str, size: int, **options: Any) -> list[list[str]]:
    """Play the same on DynamoDB under moto and in memory, and compare all there is. Returns the answers."""
    memory = MemoryStore(tables={"accounts": "account"})

    under_moto = played(DynamoDBStore("records"), handler, size, **options)

    assert under_moto == played(memory, handler, size, **options)
    accounts = {account: item for (account,), item in memory.tables["accounts"].items.items()}
    assert items(client, "accounts", "account") == accounts
    assert lasting(items(client, "records", "id")) == lasting(memory.items)
    return under_moto[0]


def lasting(records: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {id: {name: item[name] for name in item.keys() - CHANGING} for id, item in records.items()}


@pytest.mark.parametrize(
    ("handler", "effects"),
    [("with_transaction", "any"), ("with_transaction", "transaction"), ("without_transaction", "any")],
)
@pytest.mark.parametrize("size", [1, 2, 25, 100])
def test_a_batch_of_any_size(dynamodb: DynamoDBClient, handler: str, effects: str, size: int) -> None:
    """With successes, duplicates, failures, and conditions that fail: answers, runs, records and effects."""
    answers = assert_same(dynamodb, handler, size, effects=effects)

    failed = {id for answer in answers for id in answer}
    assert {"message-1", "message-4"} <= failed
    assert {"message-0", "message-2"}.isdisjoint(failed)


@pytest.mark.parametrize("effects", ["any", "transaction"])
def test_coroutines(dynamodb: DynamoDBClient, effects: str) -> None:
    assert_same(dynamodb, "as_coroutine", 25, effects=effects, concurrency=10)


@pytest.mark.parametrize("effects", ["any", "transaction"])
def test_a_fifo_queue(dynamodb: DynamoDBClient, effects: str) -> None:
    """A failure stops its group, and no other group."""
    first, *_ = assert_same(dynamodb, "with_transaction", 10, fifo=True, effects=effects)

    assert first == [f"message-{at}" for at in (1, 3, 4, 7, 8, 9)], "message-8 would have succeeded"


# What a user writes first


@sqs_consumer(AT_IMPORT, logger=SILENT, metrics=SILENT)
def at_import(order: dict, tx: Transaction) -> None:
    tx.put(TableName="accounts", Item={"account": order["account"]})


def delivered(*accounts: str) -> list[str]:
    event = sqs_event(*({"account": account} for account in accounts), ids=accounts)
    return failed_ids(at_import(event, lambda_context()))


@pytest.mark.parametrize("_", ["the first time", "again"])
@mock_aws
def test_a_store_that_was_made_at_import_meets_the_mock_of_each_test(_: str) -> None:
    """By the decorator, and in each test anew: what another test has written is gone."""
    with closing(boto3.client("dynamodb")) as client:
        create_tables(client)
        assert delivered("a", "b", "c") == []
        assert [*items(client, "records", "id")] == [*items(client, "accounts", "account")] == ["a", "b", "c"]
        assert delivered("a", "b", "c") == []


def test_a_client_that_was_made_before_the_mock_started() -> None:
    """Its session is one that was made after moto had been imported."""
    session = boto3.session.Session(aws_access_key_id="testing", aws_secret_access_key="testing")
    with closing(session.client("dynamodb")) as client, mock_aws():
        create_tables(client)
        consumer = at_import.with_options(replace(at_import.options, store=DynamoDBStore("records", client=client)))

        assert failed_ids(consumer(sqs_event({"account": "a"}, {"account": "b"}), lambda_context())) == []
        assert len(items(client, "records", "id")) == 2


def test_a_store_sends_batches_again_once_the_mock_has_ended() -> None:
    """What moto cannot do says nothing of DynamoDB, which the next test of the same process may ask."""
    wire = Wire({})
    store = wire.store
    with mock_aws():
        assert store.insert(records(3)) == [Applied()] * 3
    wire.replies = [statements(None, None, None)]

    assert store.insert(records(3)) == [Applied()] * 3

    assert [operation for operation, _ in wire.sent] == [*["PutItem"] * 3, "BatchExecuteStatement"]


def test_dead_letters_go_to_moto_s_sqs(dynamodb: DynamoDBClient) -> None:
    """A message that failed for good is acknowledged once it is in the dead-letter queue."""
    with closing(boto3.client("sqs")) as sqs:
        letters = sqs.create_queue(QueueName="letters")["QueueUrl"]
        options: dict[str, Any] = {"dead_letter_queue": letters, "sqs": sqs}
        consumer = sqs_consumer(DynamoDBStore("records"), logger=SILENT, metrics=SILENT, **options)(
            Bank().without_transaction
        )

        assert failed_ids(consumer(sqs_event(*orders(6)), lambda_context())) == ["message-2"]

        (letter,) = sqs.receive_message(QueueUrl=letters)["Messages"]
        assert json.loads(letter["Body"])["kind"] == "for good"
