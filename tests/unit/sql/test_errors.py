"""What a database's error means, by the driver's code, whichever driver raised it."""

from __future__ import annotations

import sqlite3
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session

from idempotent_receiver import body_field
from idempotent_receiver.protocol.store import NotApplied, Unknown
from idempotent_receiver.sql import SQLStore
from idempotent_receiver.sql.errors import after_read, after_write, contended, database_code, lost, told
from tests.unit.sql.bank import Bank, deliver
from tests.unit.sql.test_contention import cut

if TYPE_CHECKING:
    from sqlalchemy import Engine


class Error(Exception):
    """As PEP 249 has it; drivers add attributes of their own, in which they name codes."""

    def __init__(self, *args: object, **codes: object) -> None:
        super().__init__(*args)
        vars(self).update(codes)


class DriverError(Error):
    """One of its kinds."""


def wrapped(*args: object, broken: bool = False, **codes: object) -> DBAPIError:
    """As SQLAlchemy raises it."""
    return OperationalError("SELECT secret", None, DriverError(*args, **codes), connection_invalidated=broken)


@pytest.mark.parametrize(
    ("args", "codes", "code"),
    [
        ((), {"sqlstate": "40001"}, "40001"),
        ((), {"sqlstate": None, "pgcode": "40P01"}, "40P01"),
        (("locked",), {"sqlite_errorname": "SQLITE_BUSY"}, "SQLITE_BUSY"),
        ((1213, "Deadlock found"), {}, "1213"),
        ((1213,), {"sqlstate": b"40001"}, "1213"),
        (("no number",), {}, None),
        ((), {}, None),
    ],
)
def test_each_driver_names_its_code_in_its_own_way(args: Any, codes: Any, code: str | None) -> None:
    assert database_code(wrapped(*args, **codes)) == code
    assert database_code(DriverError(*args, **codes)) == code
    suffix = "" if code is None else f" ({code})"
    assert told(wrapped(*args, **codes)) == f"the database answered DriverError{suffix}"


def test_an_error_of_sqlalchemy_itself_is_told_by_its_class() -> None:
    assert told(SQLAlchemyError("of a statement with secrets")) == "the database answered SQLAlchemyError"


def raised_from(error: BaseException, *, explicit: bool) -> BaseException:
    """An error of the handler's own, raised while it handled this one."""
    own = ValueError("mine")
    if explicit:
        own.__cause__ = error
    else:
        own.__context__ = error
    return own


@pytest.mark.parametrize("explicit", [True, False])
def test_contention_and_a_lost_connection_are_found_behind_the_handlers_own_error(*, explicit: bool) -> None:
    deadlock, broken, other = wrapped(sqlstate="40P01"), wrapped(broken=True), wrapped(sqlstate="23505")
    for error, was_contended, was_lost in ((deadlock, True, False), (broken, False, True), (other, False, False)):
        for each in (error, raised_from(raised_from(error, explicit=explicit), explicit=explicit)):
            assert (contended(each), lost(each)) == (was_contended, was_lost)
    assert (contended(None), lost(None)) == (False, False)
    assert (contended(ValueError()), lost(ValueError())) == (False, False)


def test_errors_in_a_circle_are_looked_at_once() -> None:
    one, other = ValueError(), ValueError()
    one.__context__, other.__context__ = other, one
    assert not contended(one)
    assert not lost(one)


NO_TABLE = OperationalError("SELECT", None, sqlite3.OperationalError("no such table: records"))


@pytest.mark.parametrize(
    ("error", "retry"), [(wrapped(1146, "no such thing"), False), (NO_TABLE, False), (wrapped(sqlstate="53100"), True)]
)
def test_what_is_missing_helps_no_retry(error: DBAPIError, *, retry: bool) -> None:
    assert after_read(error) == Unknown(told(error), retry=retry)
    assert after_write(error) == NotApplied(told(error), retry=retry)


def test_a_write_that_may_have_committed_is_unknown() -> None:
    """The connection broke, or SQLAlchemy itself failed."""
    broken, own = wrapped(broken=True), SQLAlchemyError()
    assert after_write(broken) == Unknown("the database answered DriverError")
    assert after_write(own) == after_read(own) == Unknown("the database answered SQLAlchemyError")


def test_a_contended_write_says_so() -> None:
    deadlock = wrapped(sqlstate="40P01")
    assert after_write(deadlock) == NotApplied(told(deadlock), retry=True, contended=True)


@pytest.mark.parametrize(
    "error",
    [
        Error(1205, "Lock wait timeout exceeded"),  # PyMySQL 1, mysqlclient
        Error(1205, "Lock wait timeout exceeded", sqlstate="HY000"),  # PyMySQL 2
        Error(1205, "1205 (HY000)", "HY000", errno=1205, sqlstate="HY000"),  # MySQL's own driver
        Error("Lock wait timeout exceeded", errno=1205, sqlstate="HY000"),  # MariaDB's own driver
        Error({"S": "ERROR", "C": "40001", "M": "could not serialize access"}),  # pg8000
        Error("could not serialize access", sqlstate="40001"),  # psycopg 3
        Error("could not serialize access", pgcode="40001"),  # psycopg2
        Error("database is locked", sqlite_errorname="SQLITE_BUSY"),
    ],
)
def test_each_drivers_code_is_found(error: Exception) -> None:
    """InnoDB's lock wait timeout has a SQLSTATE that says nothing, so its number counts."""
    assert contended(error), database_code(error)


@pytest.mark.parametrize("error", [KeyError(1205), ValueError(1213, "HY000"), OSError(1205, "no")])
def test_a_number_in_another_error_is_no_code(error: Exception) -> None:
    """Order 1205 is missing: that is the message's failure."""
    assert database_code(error) is None


def test_a_missing_order_is_the_messages_failure(bank: Bank) -> None:
    """Whatever its number: it is recorded, and runs once a delivery."""
    runs = []

    def handle(body: dict[str, Any], session: Session) -> None:
        runs.append(body)
        raise KeyError(1205)

    assert deliver(bank.consumer(handle)) == ["message-1"]
    assert len(runs) == 1
    record = bank.record()
    assert record is not None
    assert record.status == "FAILED"


def test_a_key_held_elsewhere_does_not_stop_its_batch(bank: Bank) -> None:
    """Only that message comes back: the database is not away."""
    if bank.engine.dialect.name == "sqlite":
        pytest.skip("SQLite has one writer: the second waits for the whole database")
    started, go_on = threading.Event(), threading.Event()

    def slow(body: dict[str, Any], session: Session) -> None:
        started.set()
        assert go_on.wait(20)

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note(body["n"]))

    first = threading.Thread(target=deliver, args=(bank.consumer(slow), {"n": 1}))
    first.start()
    assert started.wait(20)
    try:
        assert deliver(bank.consumer(handle), {"n": 1}, {"n": 2}, {"n": 3}) == ["message-1"]
    finally:
        go_on.set()
        first.join()
    assert bank.noted == ["2", "3"]


def test_a_lock_wait_timeout_runs_again_at_once(mariadb: Engine) -> None:
    """As a deadlock does: it is not the message's failure."""
    bank, runs = Bank(create_engine(mariadb.url)), []

    def handle(body: dict[str, Any], session: Session) -> None:
        runs.append(1)
        session.execute(bank.note())
        session.execute(text("SET innodb_lock_wait_timeout = 1"))
        if len(runs) > 1:
            session.execute(bank.pay(5))
            return
        with bank.engine.begin() as other:
            other.execute(bank.pay(1))
            session.execute(bank.pay(5))

    assert deliver(bank.consumer(handle)) == []
    assert (len(runs), bank.noted, bank.balance) == (2, ["x"], 95)  # the other one was rolled back
    bank.engine.dispose()


def test_a_connection_lost_under_a_raw_cursor_is_nobodys_failure(on_server: Bank) -> None:
    """SQLAlchemy does not notice; nothing is recorded, and the redelivery runs."""
    engine, cuts = create_engine(on_server.engine.url), [True]
    bank = on_server.by(engine)

    def handle(body: dict[str, Any], at: Connection) -> None:
        at.execute(bank.note())
        if cuts:
            cuts.pop()
            cut(on_server)
            at.connection.cursor().execute("SELECT 1")

    consumer = bank.consumer(handle)
    assert deliver(consumer) == ["message-1"]
    assert on_server.record() is None
    assert deliver(consumer, receive_count=2) == []
    assert bank.noted == ["x"]
    engine.dispose()


def test_a_key_that_the_table_cannot_hold_does_not_stop_its_batch(on_postgresql: Bank) -> None:
    """In a column that somebody made shorter, it is that message's failure alone, whenever it comes back."""
    bank = on_postgresql
    with bank.engine.begin() as at:
        at.execute(text(f"ALTER TABLE {bank.records.name} ALTER COLUMN id TYPE varchar(20)"))
    store = SQLStore(bank.engine, "orders", table=bank.records)

    def handle(body: dict[str, Any], session: Session) -> None:
        session.execute(bank.note(body["n"]))

    consumer = bank.consumer(handle, store=store, key=body_field("n"))
    assert deliver(consumer, {"n": "1" * 30}, {"n": "2"}) == ["message-1"]
    assert bank.noted == ["2"]
