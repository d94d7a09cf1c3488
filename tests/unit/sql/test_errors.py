"""What a database's error means, by the driver's code."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from idempotent_receiver.protocol.store import NotApplied, Unknown
from idempotent_receiver.sql.errors import after_read, after_write, contended, database_code, lost, told


class DriverError(Exception):
    """An error of a driver, with the attributes in which drivers name codes."""

    def __init__(self, *args: object, **codes: object) -> None:
        super().__init__(*args)
        vars(self).update(codes)


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
        ((True,), {}, None),
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
    assert after_write(own) == Unknown("the database answered SQLAlchemyError")


def test_a_contended_write_says_so() -> None:
    deadlock = wrapped(sqlstate="40P01")
    assert after_write(deadlock) == NotApplied(told(deadlock), retry=True, contended=True)
