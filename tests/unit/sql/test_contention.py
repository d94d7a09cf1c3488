"""What other transactions and broken connections cause is not the message's failure."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, create_engine, event, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from idempotent_receiver import PermanentError, Transaction, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.sql import SQLStore
from idempotent_receiver.sql.course import MOST_TRIES
from tests.unit.sql.bank import Bank, deliver
from tests.unit.sql.test_batches import SQS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine


@pytest.fixture
def of() -> Iterator[Callable[..., Bank]]:
    """The same tables, by another engine."""
    with ExitStack() as stack:

        def made(bank: Bank, **options: Any) -> Bank:
            engine = create_engine(bank.engine.url, **options)
            stack.callback(engine.dispose)
            return bank.by(engine)

        yield made


def raised(code: str) -> Any:
    """A statement of PostgreSQL that fails with this SQLSTATE."""
    return text(f"DO $$ BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = '{code}'; END $$")


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_it_runs_again_at_once_after_contention(on_postgresql: Bank, code: str, wrapped: bool) -> None:
    """Also if the handler raises an error of its own from the database's, and even a permanent one."""
    bank, runs = on_postgresql, list[int]()

    def handle(body: dict[str, Any], session: Session) -> None:
        runs.append(1)
        session.execute(bank.note())
        if len(runs) < 3:
            try:
                session.execute(raised(code))
            except Exception as error:
                if wrapped:
                    raise PermanentError("too bad") from error
                raise

    assert deliver(bank.consumer(handle)) == []
    assert len(runs) == 3
    assert bank.noted == ["x"]
    record = bank.record()
    assert record is not None
    assert record.attempts == 1


def test_an_error_that_only_looks_like_contention_is_the_messages_failure(bank: Bank) -> None:
    """A handler's own error may have any number: 1213 is MySQL's for a deadlock."""
    runs: list[int] = []

    def handle(body: dict[str, Any], session: Session) -> None:
        runs.append(1)
        raise LookupError(1213)

    assert deliver(bank.consumer(handle)) == ["message-1"]
    record = bank.record()
    assert record is not None
    assert (len(runs), record.status) == (1, "FAILED")


def test_contention_without_end_is_retried_later_and_leaves_no_record(
    on_postgresql: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After pauses whose bound doubles: 10, 20, 40 and 80 ms."""
    bank, runs, pauses = on_postgresql, list[int](), list[float]()
    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: pauses.append(seconds))
    monkeypatch.setattr(SystemClock, "fraction", lambda clock: 0.5)

    def handle(body: dict[str, Any], session: Session) -> None:
        runs.append(1)
        session.execute(raised("40001"))

    assert deliver(bank.consumer(handle)) == ["message-1"]
    assert len(runs) == MOST_TRIES
    assert bank.record() is None
    assert pauses == [0.005, 0.01, 0.02, 0.04]


def test_a_transaction_that_others_overtake_runs_again(on_postgresql: Bank, of: Any) -> None:
    """Under SERIALIZABLE, which the engine's isolation level asks for: it survives, and no update is lost."""
    bank, runs, levels = of(on_postgresql, isolation_level="SERIALIZABLE"), list[int](), list[str]()

    def handle(body: dict[str, Any], at: Connection) -> None:
        runs.append(1)
        levels.append(at.execute(text("SHOW transaction_isolation")).scalar_one())
        balance = at.execute(text(f"SELECT balance FROM {bank.accounts.name} WHERE id = 'a'")).scalar_one()
        if len(runs) == 1:
            with on_postgresql.engine.begin() as other:
                other.execute(on_postgresql.pay(30))
        at.execute(update(bank.accounts).where(bank.accounts.c.id == "a").values(balance=balance - 10))

    assert deliver(bank.consumer(handle)) == []
    assert bank.balance == 60
    assert levels == ["serializable"] * 2
    with bank.engine.connect() as at:
        assert at.connection.driver_connection.autocommit is False  # type: ignore[union-attr]
        assert at.execute(text("SHOW transaction_isolation")).scalar_one() == "serializable"


def test_a_row_that_others_changed_since_it_was_read_runs_again(mariadb: Engine) -> None:
    """MariaDB refuses to update it from release 11.6 on, and before if `innodb_snapshot_isolation` is on."""
    with mariadb.connect() as at:
        if not at.execute(text("SHOW VARIABLES LIKE 'innodb_snapshot_isolation'")).all():
            pytest.skip("this release does not know it")
    bank, runs = Bank(create_engine(mariadb.url, connect_args={"init_command": SNAPSHOTS})), list[int]()

    def handle(body: dict[str, Any], at: Connection) -> None:
        runs.append(1)
        balance = at.execute(text(f"SELECT balance FROM {bank.accounts.name} WHERE id = 'a'")).scalar_one()
        if len(runs) == 1:
            with bank.engine.begin() as other:
                other.execute(bank.pay(30))
        at.execute(update(bank.accounts).where(bank.accounts.c.id == "a").values(balance=balance - 10))

    assert deliver(bank.consumer(handle)) == []
    assert (len(runs), bank.balance) == (2, 60)
    bank.engine.dispose()


SNAPSHOTS = "SET SESSION innodb_snapshot_isolation = ON"


def test_two_handlers_that_deadlock_both_take_effect_once(on_server: Bank) -> None:
    bank, both, first = on_server, threading.Barrier(2), {"a": True, "b": True}

    def handle(body: dict[str, Any], session: Session) -> None:
        for place, account in enumerate(body["accounts"]):
            query = update(bank.accounts).where(bank.accounts.c.id == account)
            session.execute(query.values(balance=bank.accounts.c.balance + 1))
            if place == 0 and first.pop(account, False):
                both.wait(20)

    consumer = bank.consumer(handle, concurrency=2)
    assert deliver(consumer, {"accounts": ["a", "b"]}, {"accounts": ["b", "a"]}) == []
    assert bank.balance == 102


def test_a_deadlock_whose_error_is_caught_loses_no_effect(on_server: Bank) -> None:
    """InnoDB has then rolled back the whole transaction, and what comes next would begin another one."""
    bank, both, first = on_server, threading.Barrier(2), {"a": True, "b": True}

    def handle(body: dict[str, Any], session: Session) -> None:
        with suppress(DBAPIError):
            for place, account in enumerate(body["accounts"]):
                query = update(bank.accounts).where(bank.accounts.c.id == account)
                session.execute(query.values(balance=bank.accounts.c.balance + 1))
                if place == 0 and first.pop(account, False):
                    both.wait(20)
        with suppress(DBAPIError):
            session.execute(bank.note())

    consumer = bank.consumer(handle, concurrency=2)
    bodies = {"0": {"accounts": ["a", "b"]}, "1": {"accounts": ["b", "a"]}}
    failed = deliver(consumer, *bodies.values(), ids=list(bodies))
    assert (len(failed), bank.noted) == (1, ["x"])
    assert deliver(consumer, bodies[failed[0]], ids=failed, receive_count=2) == []
    assert bank.noted == ["x", "x"]
    assert bank.balance == 102


def test_a_commit_that_a_deferred_constraint_refuses_is_the_messages_failure(on_postgresql: Bank) -> None:
    bank = on_postgresql
    name = f"orders_{bank.accounts.name}"
    with bank.engine.begin() as at:
        at.execute(
            text(f"CREATE TABLE {name} (of VARCHAR REFERENCES {bank.accounts.name} (id) DEFERRABLE INITIALLY DEFERRED)")
        )

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())
        session.execute(text(f"INSERT INTO {name} VALUES (:of)"), {"of": body["of"]})

    assert deliver(bank.consumer(handle), {"of": "nobody"}, {"of": "a"}, ids=["bad", "good"]) == ["bad"]

    assert bank.noted == ["x"]
    bad = bank.record("bad")
    assert bad is not None
    assert bad.status == "FAILED"
    assert "IntegrityError" in (bad.error or "")


OTHERS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND usename = 'tests'",
    "mariadb": "SELECT id FROM information_schema.processlist WHERE id <> connection_id() AND user = 'root'",
}


def cut(bank: Bank) -> None:
    """End all other connections of the server, as a restart does."""
    end = "SELECT pg_terminate_backend({})" if bank.engine.dialect.name == "postgresql" else "KILL CONNECTION {}"
    with bank.engine.connect() as at:
        for number in at.execute(text(OTHERS[bank.engine.dialect.name])).scalars().all():
            with suppress(DBAPIError):  # it has ended meanwhile
                at.execute(text(end.format(number)))


def test_a_stale_connection_costs_no_receive(on_server: Bank, of: Any) -> None:
    """Several that died in the pool while the function was frozen: no handler has run, so the message runs now."""
    bank = of(on_server, pool_size=MOST_TRIES + 2)

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())

    consumer = bank.consumer(handle)
    held = [bank.engine.connect() for _ in range(MOST_TRIES + 2)]
    for one in held:
        one.execute(text("SELECT 1"))
        one.close()
    cut(on_server)

    assert deliver(consumer) == []
    assert bank.noted == ["x"]


@pytest.mark.parametrize("swallowed", [False, True])
def test_a_connection_lost_while_the_handler_runs_is_nobodys_failure(
    on_server: Bank, of: Any, swallowed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Whether or not the handler notices: nothing is recorded, and the redelivery runs."""
    bank, cuts = of(on_server), [True]

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())
        if cuts:
            cuts.pop()
            cut(on_server)
            try:
                session.execute(bank.note("late"))
            except Exception:
                if not swallowed:
                    raise

    consumer = bank.consumer(handle, logger=logging.getLogger("bank"))
    assert deliver(consumer) == ["message-1"]
    why = "the connection to the database was lost while the handler ran"
    assert (why in [getattr(each, "why", None) for each in caplog.records]) == swallowed, "else its own error is told"
    assert bank.record() is None
    assert deliver(consumer, receive_count=2) == []
    assert bank.noted == ["x"]


def test_a_connection_lost_at_the_commit_is_unknown(on_server: Bank, of: Any) -> None:
    """The message comes again, and meets its record or runs."""
    bank, cuts = of(on_server), [True]

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())
        if cuts:
            cuts.pop()
            cut(on_server)

    consumer = bank.consumer(handle)
    assert deliver(consumer) == ["message-1"]
    assert bank.noted == []
    assert deliver(consumer, receive_count=2) == []
    assert bank.noted == ["x"]


def test_a_frozen_worker_loses_its_transaction_when_its_time_is_over(on_postgresql: Bank, of: Any) -> None:
    """The server ends a transaction that is idle for longer than the invocation can last, and the key is free."""
    bank, thawed, frozen = of(on_postgresql), threading.Event(), threading.Event()

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note("frozen"))
        frozen.set()
        assert thawed.wait(30)

    def other(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note("other"))

    late: list[list[str]] = []
    slow = bank.consumer(handle, lease_margin_seconds=0.2)
    worker = threading.Thread(target=lambda: late.append(deliver(slow, seconds=1.6)))
    worker.start()
    assert frozen.wait(20)
    quick = of(on_postgresql).consumer(other)
    for _ in range(200):
        if not deliver(quick):
            break
        threading.Event().wait(0.05)
    assert on_postgresql.noted == ["other"]
    thawed.set()
    worker.join()
    assert late == [["message-1"]]
    assert on_postgresql.noted == ["other"]


def test_an_early_commit_and_a_death_run_again(on_server: Bank, of: Any) -> None:
    """A raw COMMIT, and the worker is gone: its placeholder counts as FAILED, has no error, and is no answer."""
    bank, deaths, left = of(on_server), [True], list[Any]()

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note("early"))
        if deaths:
            deaths.pop()
            session.connection().connection.commit()
            left.append(on_server.record())
            cut(on_server)

    consumer = bank.consumer(handle)
    assert deliver(consumer) == ["message-1"]
    assert [(one.status, one.error, one.data) for one in left] == [("FAILED", None, None)]
    assert deliver(consumer, receive_count=2) == []
    assert on_server.noted == ["early", "early"]


def test_a_failure_that_another_worker_overtakes_is_not_recorded(on_server: Bank, of: Any) -> None:
    """It locks the key again after its rollback; if another worker has, that worker's run decides, and nothing is sent
    to the dead-letter queue.
    """
    bank, started, go_on = of(on_server), threading.Event(), threading.Event()

    def slow(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note())
        started.set()
        assert go_on.wait(20)

    other = of(on_server).consumer(slow)
    worker = threading.Thread(target=deliver, args=(other,))
    failing = of(on_server)

    def handle(body: dict[str, Any], session: Session) -> None:
        raise PermanentError("no such account")

    @event.listens_for(failing.engine, "checkin")
    def begin_the_other(*_: Any) -> None:
        if not started.is_set():
            worker.start()
            assert started.wait(20)

    sqs, queue = SQS(), "https://sqs.us-east-1.amazonaws.com/123456789012/dead"
    assert deliver(failing.consumer(handle, sqs=sqs, dead_letter_queue=queue)) == ["message-1"]
    assert bank.record() is None
    assert sqs.sent == []
    go_on.set()
    worker.join()
    record = bank.record()
    assert record is not None
    assert record.status == "COMPLETED"
    assert bank.noted == ["x"]


def test_a_database_that_is_away_stops_the_batch(database: Engine) -> None:
    """One message finds out; the others are not tried, and come again after a backoff."""
    if database.dialect.name == "sqlite":
        pytest.skip("a file is never away")
    tried: list[int] = []
    engine = create_engine(database.url.set(port=1))

    @event.listens_for(engine, "do_connect")
    def connects(*_: Any) -> None:
        tried.append(1)

    consumer = sqs_consumer(SQLStore(engine))(_nothing)
    assert len(deliver(consumer, *[{}] * 20)) == 20
    assert len(tried) == 1


def _nothing(body: dict[str, Any], session: Session, tx: Transaction) -> None: ...
