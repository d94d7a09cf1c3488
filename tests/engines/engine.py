"""One face for every engine: the store under test, and a way round it to prepare and look at the table's items."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Protocol

import boto3
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config

from idempotent_receiver import DynamoDBStore, MemoryStore

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from idempotent_receiver.store import TransactionalStore

Item = dict[str, Any]


class Engine(Protocol):
    """A store with an empty table of records, and an empty table by whose key `account` a handler's items are found."""

    accounts: str

    @property
    def store(self) -> TransactionalStore:
        """The store under test."""

    def put(self, item: Item) -> None:
        """Put an item of the records' table as somebody else would: another version of us, or Powertools."""

    def item(self, id: str) -> Item | None:
        """The item of the records' table, with everything that it carries."""

    def vanish(self, id: str) -> None:
        """Delete a record, as TTL does."""

    def account(self, account: str) -> Item | None:
        """The item that a handler's transaction wrote."""


class Memory:
    """The store in memory."""

    def __init__(self) -> None:
        self.accounts = "Accounts"
        self.store = MemoryStore(tables={self.accounts: "account"})

    def put(self, item: Item) -> None:
        self.store.items[item["id"]] = dict(item)

    def item(self, id: str) -> Item | None:
        return self.store.items.get(id)

    def vanish(self, id: str) -> None:
        del self.store.items[id]

    def account(self, account: str) -> Item | None:
        return self.store.tables[self.accounts].items.get((account,))


class DynamoDB:
    """Whatever speaks DynamoDB's protocol, with two new tables."""

    _numbers = itertools.count()

    def __init__(self, client: DynamoDBClient) -> None:
        self._client = client
        number = next(self._numbers)
        self.records, self.accounts = f"records-{number}.test", f"accounts-{number}"
        self._create(self.records, "id")
        self._create(self.accounts, "account")
        self.store = DynamoDBStore(self.records, client=client)

    def put(self, item: Item) -> None:
        typed = {name: TypeSerializer().serialize(value) for name, value in item.items()}
        self._client.put_item(TableName=self.records, Item=typed)

    def item(self, id: str) -> Item | None:
        return self._get(self.records, "id", id)

    def vanish(self, id: str) -> None:
        self._client.delete_item(TableName=self.records, Key={"id": {"S": id}})

    def account(self, account: str) -> Item | None:
        return self._get(self.accounts, "account", account)

    def _create(self, table: str, key: str) -> None:
        self._client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )

    def _get(self, table: str, key: str, value: str) -> Item | None:
        found = self._client.get_item(TableName=table, Key={key: {"S": value}}, ConsistentRead=True).get("Item")
        return None if found is None else {name: TypeDeserializer().deserialize(held) for name, held in found.items()}


def client(endpoint_url: str | None = None) -> DynamoDBClient:
    """A client that finds nothing in the environment, and waits for nobody's proxy."""
    return boto3.session.Session(
        aws_access_key_id="contract", aws_secret_access_key="unchecked", region_name="us-east-1"
    ).client(
        "dynamodb",
        endpoint_url=endpoint_url,
        config=Config(retries={"mode": "standard", "total_max_attempts": 1}, max_pool_connections=32, proxies={}),
    )
