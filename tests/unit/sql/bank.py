"""A bank in a relational database: accounts, entries, and what consumers of its messages need."""

from __future__ import annotations

import itertools
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import CheckConstraint, Column, Engine, Integer, MetaData, String, Table, func, insert, select, update

from idempotent_receiver import sqs_consumer
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.sql import SQLStore, records_table
from idempotent_receiver.testing import lambda_context, sqs_event

if TYPE_CHECKING:
    from collections.abc import Callable

_numbers = itertools.count()


@dataclass
class Bank:
    """Tables of its own in a database, and the store beside them."""

    engine: Engine

    def __post_init__(self) -> None:
        number, metadata = next(_numbers), MetaData()
        self.accounts = Table(
            f"accounts_{number}", metadata,
            Column("id", String(64), primary_key=True), Column("balance", Integer, CheckConstraint("balance >= 0")),
            mysql_engine="InnoDB",
        )  # fmt: skip
        self.entries = Table(
            f"entries_{number}", metadata,
            Column("number", Integer, primary_key=True, autoincrement=True), Column("of", String(64)),
            mysql_engine="InnoDB",
        )  # fmt: skip
        self.records = records_table(metadata, f"records_{number}")
        metadata.create_all(self.engine)
        self.store = SQLStore(self.engine, table=self.records)
        with self.engine.begin() as at:
            at.execute(insert(self.accounts), [{"id": "a", "balance": 100}, {"id": "b", "balance": 0}])

    def by(self, engine: Engine) -> Bank:
        """The same tables, by another engine."""
        other = copy(self)
        other.engine, other.store = engine, SQLStore(engine, table=self.records)
        return other

    def note(self, of: object = "x") -> Any:
        """The effect that tests count."""
        return insert(self.entries).values({"of": str(of)})

    def pay(self, cents: int) -> Any:
        return update(self.accounts).where(self.accounts.c.id == "a").values(balance=self.accounts.c.balance - cents)

    @property
    def noted(self) -> list[str]:
        with self.engine.connect() as at:
            return sorted(at.execute(select(self.entries.c.of)).scalars())

    @property
    def balance(self) -> int:
        with self.engine.connect() as at:
            return int(
                at.execute(select(func.max(self.accounts.c.balance)).where(self.accounts.c.id == "a")).scalar_one()
            )

    def record(self, id: str = "message-1") -> Record | None:
        (found,) = self.store.read([id])
        assert found is None or isinstance(found, Record)
        return found

    def consumer(self, function: Callable[..., Any], **options: Any) -> Any:
        """The consumer; `deliver` returns the ids that SQS redelivers."""
        return sqs_consumer(options.pop("store", self.store), **options)(function)


def deliver(consumer: Any, *bodies: object, seconds: float = 30.0, **options: Any) -> list[str]:
    """The messageIds that SQS must redeliver after this delivery."""
    answer = consumer(sqs_event(*(bodies or ({},)), **options), lambda_context(seconds))
    return [one["itemIdentifier"] for one in answer["batchItemFailures"]]
