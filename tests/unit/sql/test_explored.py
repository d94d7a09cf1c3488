"""`explore` on a handler with a session: a good one survives every fault, and what breaks the promise is found."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from sqlalchemy import Column, Connection, Engine, Integer, MetaData, String, Table, create_engine, insert, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from idempotent_receiver import Message, PermanentError, body_field, message_id, sqs_consumer
from idempotent_receiver.sql import SQLStore, current_session, records_table
from idempotent_receiver.testing import explore
from idempotent_receiver.testing.relational import ANSWER_LOST, CONTENDED, ELSEWHERE, FAILS, LOSES, NO_RACES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SQS = boto3.client("sqs", region_name="us-east-1")
metadata = MetaData()
RECORDS = records_table(metadata, "explored_records")
ORDERS = Table("explored_orders", metadata, Column("id", Integer, primary_key=True), Column("name", String(64)))
STOCK = Table("explored_stock", metadata, Column("item", String(64), primary_key=True), Column("count", Integer))


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path / 'own'}")
    yield engine
    engine.dispose()


@pytest.fixture
def consumer(own: Engine) -> Callable[..., Any]:
    return sqs_consumer(SQLStore(own, table=RECORDS))


def helper(name: str) -> None:
    current_session().execute(insert(ORDERS).values(name=name))
    current_session().commit()


def good(body: dict[str, Any], session: Session) -> None:
    helper(body["name"])
    session.execute(update(STOCK).where(STOCK.c.item == "a").values(count=STOCK.c.count - 1))


def test_a_handler_that_keeps_to_its_session_survives_every_fault(consumer: Callable[..., Any], own: Engine) -> None:
    """On a database of the explorer's: the consumer's own is not touched."""
    found = explore(consumer(good), [{"name": "one"}, {"name": "two"}])

    assert found.complete
    assert found.violations == []
    assert found.effects["explored_orders"] == [{"name": "one"}, {"name": "two"}]
    assert {what for _, what in found.played} == {LOSES, FAILS, CONTENDED, ELSEWHERE, ANSWER_LOST}
    assert found.schedules > 30
    assert NO_RACES in str(found)
    with own.connect() as at:
        assert not at.dialect.has_table(at, RECORDS.name)


def test_it_plays_on_the_database_that_the_test_gives(consumer: Callable[..., Any], postgresql: Engine) -> None:
    """Its rows are the initial state of each schedule, and are there afterwards."""
    engine = create_engine(postgresql.url)
    metadata.create_all(engine)
    with engine.begin() as at:
        at.execute(insert(STOCK).values(item="a", count=5))

    found = explore(consumer(good), [{"name": "one"}], store=lambda: SQLStore(engine, table=RECORDS))

    assert found.complete
    assert found.effects["explored_stock"] == [{"item": "a", "count": 4}]
    with engine.connect() as at:
        assert at.execute(STOCK.select()).all() == [("a", 5)]
    metadata.drop_all(engine)
    engine.dispose()


def test_a_swallowed_error_is_found(consumer: Callable[..., Any]) -> None:
    def handle(body: dict[str, Any], session: Session) -> None:
        with suppress(SQLAlchemyError):
            session.execute(insert(ORDERS).values(name="lost"))

    with pytest.raises(AssertionError, match=r"explored_orders differs[\s\S]*INSERT INTO explored_orders[\s\S]* fails"):
        explore(consumer(handle), [{}])


def test_a_connection_of_its_own_is_found(consumer: Callable[..., Any], own: Engine) -> None:
    metadata.create_all(own)

    def handle(body: dict[str, Any], session: Session) -> None:
        with own.begin() as at:
            at.execute(insert(ORDERS).values(name="apart"))

    with pytest.raises(AssertionError, match="opens a connection of its own"):
        explore(consumer(handle), [{}])


def test_a_commit_of_its_own_is_found(consumer: Callable[..., Any]) -> None:
    def handle(body: dict[str, Any], at: Connection) -> None:
        at.execute(insert(ORDERS).values(name="early"))
        at.connection.commit()

    with pytest.raises(AssertionError, match=r"never acknowledged: FAILED .*ended its database transaction"):
        explore(consumer(handle), [{}])


def test_an_effect_that_depends_on_the_attempt_is_found_and_replayed(consumer: Callable[..., Any]) -> None:
    tries: list[int] = []

    def handle(body: dict[str, Any], session: Session) -> None:
        tries.append(1)
        session.execute(insert(ORDERS).values(name="first" if len(tries) % 7 else "seventh"))

    found = explore(consumer(handle), [{}], check=False)

    assert found.violations
    assert "Replay" in str(found.violations[0])


@pytest.mark.parametrize("key", [message_id, body_field("name")])
def test_a_dead_letter_is_named_with_its_reason_and_the_schedules_log_nothing(
    own: Engine, caplog: pytest.LogCaptureFixture, key: Any
) -> None:
    """A failing test of a project shows the reason, not the log of hundreds of deliveries."""

    def handle(body: dict[str, Any], session: Session) -> None:
        if body["name"] == "bad":
            raise PermanentError("no such name")
        good(body, session)

    store = SQLStore(own, "orders", table=RECORDS)
    dead = "https://sqs.us-east-1.amazonaws.com/1/dead"
    found = explore(
        sqs_consumer(store, key=key, sqs=SQS, dead_letter_queue=dead)(handle), [{"name": "bad"}, {"name": "good"}]
    )

    assert found.violations == []
    assert sorted(found.acknowledged.values()) == ["completed", "dead letter"]
    assert "message-1: dead letter:\n  FAILED" in str(found)
    assert "no such name" in str(found)
    assert caplog.records == []


def test_a_key_that_changes_with_each_delivery_is_found(own: Engine) -> None:
    def by_receive(message: Message) -> str:
        return f"{message.id}-{message.receive_count}"

    consume = sqs_consumer(SQLStore(own, "orders", table=RECORDS), key=by_receive)(good)
    with pytest.raises(AssertionError, match="changes with each delivery, so no duplicate is ever recognised"):
        explore(consume, [{"name": "one"}])


def test_what_fails_even_without_faults_is_told_in_its_own_words(consumer: Callable[..., Any]) -> None:
    def handle(body: dict[str, Any], session: Session) -> None:
        raise TypeError("nights is no column")

    with pytest.raises(AssertionError, match=r"never acknowledged: FAILED .*nights is no column"):
        explore(consumer(handle), [{}])


def test_tables_that_the_store_does_not_know_cannot_be_compared(own: Engine) -> None:
    with pytest.raises(ValueError, match=r"records_table\(Base.metadata\)"):
        explore(sqs_consumer(SQLStore(own))(good), [{}])
