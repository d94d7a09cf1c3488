"""One message's transaction: what a worker finds, what the handler does, and what stands afterwards."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, create_engine, event, text
from sqlalchemy.orm import Session

from idempotent_receiver import Backoff, PermanentError, body_field
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.protocol.answers import HeldElsewhere
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Applied, Conflict
from idempotent_receiver.sql import SQLStore
from idempotent_receiver.sqs.message import messages_of
from idempotent_receiver.sqs.visibility import visibility_seconds
from idempotent_receiver.testing import sqs_event
from tests.unit.sql.bank import Bank, deliver

if TYPE_CHECKING:
    from pathlib import Path


def test_the_effects_commit_with_the_record(bank: Bank) -> None:
    """A first delivery runs once, and a second one not at all."""

    def handle(body: dict[str, Any], session: Session) -> str:
        session.execute(bank.note())
        return "done"

    consumer = bank.consumer(handle)

    assert deliver(consumer) == []
    assert deliver(consumer, receive_count=2) == []
    assert deliver(consumer) == []  # a redelivery, whatever SQS counts

    assert bank.noted == ["x"]
    record = bank.record()
    assert record is not None
    assert (record.status, record.data, record.error, record.attempts) == ("COMPLETED", '"done"', None, 1)
    assert record.in_progress_expiration is None


def test_a_store_says_what_it_wrote_and_what_it_met(bank: Bank) -> None:
    record, other = (Record("a", "FAILED", version=version) for version in "vw")
    assert bank.store.insert([record]) == [Applied()]
    assert bank.store.insert([other]) == [Conflict(record)]
    assert bank.store.replace([Change(other, other)]) == [Conflict(record)]
    assert bank.store.replace([Change(other, record)]) == [Applied()]


def test_a_connection_is_lent_too(bank: Bank) -> None:
    def handle(body: dict[str, Any], at: Connection) -> None:
        at.execute(bank.note(body["n"]))

    assert deliver(bank.consumer(handle), {"n": 1}, {"n": 2}, {"n": 3}) == []
    assert bank.noted == ["1", "2", "3"]


def test_nothing_of_a_failed_run_stands_but_its_failure(bank: Bank) -> None:
    """It is FAILED with the error; the next delivery runs again, and counts as the second attempt."""
    failing = [True]

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())
        if failing:
            raise ValueError(failing.pop())

    consumer = bank.consumer(handle)

    assert deliver(consumer) == ["message-1"]
    assert bank.noted == []
    record = bank.record()
    assert record is not None
    assert record.status == "FAILED"
    assert json.loads(record.error or "")["type"] == "ValueError"

    assert deliver(consumer, receive_count=2) == []
    assert bank.noted == ["x"]
    record = bank.record()
    assert record is not None
    assert (record.status, record.attempts, record.error) == ("COMPLETED", 2, None)


def test_what_the_session_holds_back_is_flushed_and_its_error_is_the_messages(bank: Bank) -> None:
    """A constraint that only the flush meets fails the run, and is recorded."""
    from sqlalchemy.orm import DeclarativeBase  # noqa: PLC0415

    class Base(DeclarativeBase):
        pass

    class Account(Base):
        __table__ = bank.accounts.to_metadata(Base.metadata)

    def handle(body: dict[str, Any], session: Session) -> None:
        session.add(Account(id=body["id"], balance=0))

    consumer = bank.consumer(handle)

    assert deliver(consumer, {"id": "c"}, {"id": "a"}, ids=["good", "bad"]) == ["bad"]
    bad = bank.record("bad")
    assert bad is not None
    assert bad.status == "FAILED"
    assert "IntegrityError" in (bad.error or "")


def test_a_key_that_another_transaction_holds_is_held_elsewhere(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first delivery runs, a second one neither waits, nor tries again, nor runs, and its neighbours do."""
    pauses: list[float] = []
    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: pauses.append(seconds))
    if bank.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer: the second waits for the whole database")
    started, go_on, runs = threading.Event(), threading.Event(), []

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())
        runs.append(1)
        started.set()
        assert go_on.wait(20)

    consumer = bank.consumer(handle)
    first = threading.Thread(target=deliver, args=(consumer,))
    first.start()
    assert started.wait(20)

    def quick(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note("neighbour"))

    second = bank.consumer(quick, store=type(bank.store)(bank.engine, table=bank.records))
    assert deliver(second, {}, {}, ids=["message-1", "message-2"]) == ["message-1"]

    go_on.set()
    first.join()
    assert (len(runs), pauses) == (1, [])
    assert bank.noted == ["neighbour", "x"]


def test_a_key_that_a_transaction_holds_backs_off_like_a_failure() -> None:
    """There is no lease to wait for, and coming back each second would use up its receives."""
    event = sqs_event({}, receive_count=6)
    (message,) = messages_of(event)
    backoff, clock = Backoff(first_seconds=2, longest_seconds=1000), SystemClock()
    waits = [visibility_seconds(message, HeldElsewhere(0), backoff, 10**12, clock) for _ in range(50)]
    assert max(waits) > 10
    assert max(waits) <= 64


def test_another_payload_under_a_key_is_a_permanent_failure(bank: Bank) -> None:
    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())

    consumer = bank.consumer(handle)
    assert deliver(consumer, {"n": 1}) == []
    before = bank.record()

    assert deliver(consumer, {"n": 2}) == ["message-1"]

    assert bank.noted == ["x"]
    assert bank.record() == before


AWKWARD = """a'b"c\\d%e%%(f)s:g{h}\n; COMMIT; -- größe \N{GRINNING FACE}"""


def test_whatever_a_key_holds_is_text(bank: Bank) -> None:
    """Quotes, backslashes, percents and colons, in keys, results and errors."""
    store = SQLStore(bank.engine, "orders", table=bank.records)
    fails = [True]

    def handle(body: dict[str, Any], session: Session) -> str:
        session.execute(bank.note("x"))
        if fails:
            fails.pop()
            raise PermanentError(AWKWARD)
        return AWKWARD

    consumer = bank.consumer(handle, store=store, key=body_field("key"))
    assert deliver(consumer, {"key": AWKWARD}) == ["message-1"]
    failed = bank.record(f"orders#{AWKWARD}")
    assert failed is not None
    assert json.loads(failed.error or "")["text"] == AWKWARD
    assert deliver(consumer, {"key": AWKWARD}) == []
    done = bank.record(f"orders#{AWKWARD}")
    assert done is not None
    assert json.loads(done.data or "") == AWKWARD
    assert bank.noted == ["x"]


@pytest.mark.parametrize("begins", [True, False], ids=["with SQLAlchemy's recipe", "without"])
def test_a_driver_of_sqlite_that_commits_each_statement_needs_a_begin(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, begins: bool
) -> None:
    """With SQLAlchemy's recipe for `isolation_level=None` it is a transaction like any other; without, nothing runs."""
    engine = create_engine(f"sqlite:///{tmp_path / 'bank'}", connect_args={"isolation_level": None})
    if begins:
        event.listen(engine, "begin", lambda at: at.exec_driver_sql("BEGIN IMMEDIATE"))
    bank = Bank(engine)

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())

    assert deliver(bank.consumer(handle)) == ([] if begins else ["message-1"])
    assert bank.noted == (["x"] if begins else [])
    assert ("the driver commits each statement" in str([vars(one) for one in caplog.records])) is not begins
    engine.dispose()


@pytest.mark.parametrize("driver", ["psycopg2", "pymysql"])
def test_a_driver_that_commits_each_statement_runs_nothing(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, driver: str
) -> None:
    """Its effects would stand whatever the handler does, and its lock would keep nobody out."""
    if driver == "pymysql":
        engine = create_engine(request.getfixturevalue("mariadb").url, connect_args={"autocommit": True})
    else:
        engine = create_engine(request.getfixturevalue("postgresql").url.set(drivername="postgresql+psycopg2"))
    bank = Bank(engine)
    if driver == "psycopg2":
        engine.dispose()
        event.listen(engine, "connect", lambda at, record: setattr(at, "autocommit", True))

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())

    assert deliver(bank.consumer(handle)) == ["message-1"]
    assert bank.noted == []
    assert "the driver commits each statement" in str([vars(one) for one in caplog.records])
    engine.dispose()


def test_an_expired_record_counts_as_absent(bank: Bank) -> None:
    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())

    consumer = bank.consumer(handle)
    bank.store.insert([Record("message-1", "COMPLETED", version="v", validation="other", expiration=1, attempts=7)])

    assert deliver(consumer) == []

    assert bank.noted == ["x"]
    record = bank.record()
    assert record is not None
    assert record.attempts == 1


def test_a_permanent_error_is_recorded_as_such(bank: Bank) -> None:
    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())
        raise PermanentError("no such account")

    assert deliver(bank.consumer(handle)) == ["message-1"]

    record = bank.record()
    assert record is not None
    assert json.loads(record.error or "")["permanent"] is True
    assert bank.noted == []


def test_a_result_too_large_for_its_record_is_dropped(bank: Bank) -> None:
    def handle(body: dict[str, Any], session: Session) -> str:
        session.execute(bank.note())
        return "x" * 5000

    assert deliver(bank.consumer(handle)) == []

    record = bank.record()
    assert record is not None
    assert "too large" in (record.data or "")
    assert bank.noted == ["x"]


def test_a_handler_that_requests_nothing_has_its_record_all_the_same(bank: Bank) -> None:
    runs = []

    def handle(body: dict[str, Any]) -> None:
        runs.append(body)

    consumer = bank.consumer(handle)
    assert deliver(consumer) == deliver(consumer) == []
    assert len(runs) == 1


def test_a_missing_table_fails_the_delivery_and_runs_nothing(bank: Bank) -> None:
    runs = []
    bank.records.drop(bank.engine)

    assert deliver(bank.consumer(_counting(runs))) == ["message-1"]

    assert runs == []


def _counting(runs: list[Any]) -> Any:
    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(text("SELECT 1"))
        runs.append(body)

    return handle
