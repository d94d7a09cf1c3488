"""One interface for every engine: the store under test, and direct access to the table's items."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.config import Config
from sqlalchemy import MetaData, delete, insert, select

from idempotent_receiver import DynamoDBStore, MemoryStore
from idempotent_receiver.sql import SQLStore, records_table

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from sqlalchemy import Engine as SQLEngine

Item = dict[str, Any]


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


class SQL:
    """A relational database, with a new table of records."""

    _numbers = itertools.count()

    def __init__(self, engine: SQLEngine) -> None:
        self.engine = engine
        self.table = records_table(MetaData(), f"records_{next(self._numbers)}")
        self.store = SQLStore(engine, table=self.table)
        self.store.create()

    def put(self, item: Item) -> None:
        self.vanish(item["id"])
        with self.engine.begin() as at:
            at.execute(insert(self.table).values(item | {"id": self._stored(item["id"])}))

    def item(self, id: str) -> Item | None:
        with self.engine.connect() as at:
            row = at.execute(select(self.table).where(self.table.c.id == self._stored(id))).mappings().one_or_none()
        return None if row is None else {"id": id} | {k: v for k, v in row.items() if k != "id" and v is not None}

    def vanish(self, id: str) -> None:
        with self.engine.begin() as at:
            at.execute(delete(self.table).where(self.table.c.id == self._stored(id)))

    def _stored(self, id: str) -> str | bytes:
        return id.encode() if self.engine.dialect.name in ("mysql", "mariadb") else id


@dataclass(frozen=True, slots=True)
class Place:
    """Where the tables are, so that another process can find them. Without a `url`, boto3 chooses the endpoint."""

    url: str | None
    records: str
    accounts: str
    named: bool = False
    """Whether it is the endpoint of `CONTRACT_ENDPOINT`: boto3 finds credentials and region, and retries."""


class DynamoDB:
    """An engine with DynamoDB's protocol: with two new tables, or with the emptied tables of a place."""

    _numbers = itertools.count()

    def __init__(self, client: DynamoDBClient, place: Place | None = None) -> None:
        self.client = client
        number = next(self._numbers)
        if place is None:
            place = create(client, Place(client.meta.endpoint_url, f"records-{number}.test", f"accounts-{number}"))
        else:
            empty(client, place)
        self.place = place
        self.records, self.accounts = place.records, place.accounts
        self.store = DynamoDBStore(self.records, client=client)

    def put(self, item: Item) -> None:
        typed = {name: TypeSerializer().serialize(value) for name, value in item.items()}
        self.client.put_item(TableName=self.records, Item=typed)

    def item(self, id: str) -> Item | None:
        return self._get(self.records, "id", id)

    def vanish(self, id: str) -> None:
        self.client.delete_item(TableName=self.records, Key={"id": {"S": id}})

    def account(self, account: str) -> Item | None:
        return self._get(self.accounts, "account", account)

    def _get(self, table: str, key: str, value: str) -> Item | None:
        found = self.client.get_item(TableName=table, Key={key: {"S": value}}, ConsistentRead=True).get("Item")
        return None if found is None else {name: TypeDeserializer().deserialize(held) for name, held in found.items()}


def create(client: DynamoDBClient, place: Place) -> Place:
    """Create a place's tables, and wait until they are there."""
    for table, key in ((place.records, "id"), (place.accounts, "account")):
        described = client.create_table(
            TableName=table,
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
        )
        if described["TableDescription"]["TableStatus"] != "ACTIVE":
            client.get_waiter("table_exists").wait(TableName=table)
    return place


def empty(client: DynamoDBClient, place: Place) -> None:
    """Delete every item of a place's tables."""
    for table, key in ((place.records, "id"), (place.accounts, "account")):
        for page in client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
            for item in page["Items"]:
                client.delete_item(TableName=table, Key={key: item[key]})


def drop(client: DynamoDBClient, place: Place) -> None:
    """Delete a place's tables."""
    for table in (place.records, place.accounts):
        client.delete_table(TableName=table)


Engine = Memory | DynamoDB | SQL
"""A store with an empty table of records, and an empty table with the key `account` for a handler's items.

`put` is how another version of the library, or Powertools, writes a record's `item`; `vanish` deletes it, as TTL does.
"""


@cache
def _session() -> boto3.session.Session:
    """One session, so that the service's description is read only once."""
    return boto3.session.Session(
        aws_access_key_id="contract", aws_secret_access_key="unchecked", region_name="us-east-1"
    )


def client(endpoint_url: str | None = None, attempts: int = 1) -> DynamoDBClient:
    """A client that ignores the environment and its proxies."""
    config = Config(proxies={}, **_config(attempts))
    return _session().client("dynamodb", endpoint_url=endpoint_url, config=config)


def named_client(endpoint_url: str, attempts: int = 5) -> DynamoDBClient:
    """A client of the named endpoint, with the credentials and the region that boto3 finds."""
    return boto3.session.Session().client("dynamodb", endpoint_url=endpoint_url, config=Config(**_config(attempts)))


def client_of(place: Place, **options: Any) -> DynamoDBClient:
    """A new client of a place."""
    if place.named:
        assert place.url is not None
        return named_client(place.url, **options)
    return client(place.url, **options)


def _config(attempts: int) -> dict[str, Any]:
    return {"retries": {"mode": "standard", "total_max_attempts": attempts}, "max_pool_connections": 32}
