"""What a database's errors mean: whether nothing happened, whether trying again may help, and what may be told."""

from collections.abc import Iterator

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, SQLAlchemyError

from idempotent_receiver.protocol.store import NotApplied, Unknown

LOCK_WAIT_TIMEOUT = "1205"
"""InnoDB has waited for a row's lock as long as it may. The transaction goes on without that statement."""

CONTENTION = frozenset(
    {"40001", "40P01", "55P03"}
    | {"1020", LOCK_WAIT_TIMEOUT, "1213", "3572"}
    | {"SQLITE_BUSY", "SQLITE_BUSY_SNAPSHOT", "SQLITE_LOCKED"}
)
"""PostgreSQL's serialization failure, deadlock and lock not available; InnoDB's row that changed since it was read, its
lock wait timeout, deadlock and NOWAIT; SQLite's lock on the whole database.
"""

MISSING = frozenset({"42P01", "42703", "42501", "3F000", "1146", "1054", "1142", "SQLITE_READONLY", "SQLITE_PERM"})
"""A table, column, schema or permission is missing, so no retry helps."""


def database_code(error: BaseException) -> str | None:
    """The driver's code: a SQLSTATE, MySQL's number, or the name of SQLite's code. None for an error of no driver."""
    original = getattr(error, "orig", None) or error
    if all(each.__name__ != "Error" for each in type(original).__mro__):  # as PEP 249 names what drivers raise
        return None
    first = original.args[0] if original.args else None
    if isinstance(number := getattr(original, "errno", first), int):
        return str(number)  # MySQL's SQLSTATE of a lock wait timeout is the one of most errors
    if isinstance(first, dict):  # pg8000
        return str(first.get("C"))
    for name in ("sqlstate", "pgcode", "sqlite_errorname"):
        if isinstance(code := getattr(original, name, None), str):
            return code
    return None


def contended(error: BaseException | None) -> bool:
    """Whether other transactions were in the way: of the error itself, or of one that it was raised from."""
    return any(database_code(each) in CONTENTION for each in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def lost(error: BaseException | None) -> bool:
    """Whether the connection broke: of the error itself, or of one that it was raised from."""
    return any(isinstance(each, DBAPIError) and each.connection_invalidated for each in _chain(error))


def broke(at: Connection, error: BaseException) -> bool:
    """Whether a raw cursor's error says that this connection broke: SQLAlchemy learns of its own cursors' alone."""
    driver, connection = at.dialect.loaded_dbapi, at.connection.driver_connection
    errors = [each for each in _chain(error) if isinstance(each, driver.Error)]
    return any(at.dialect.is_disconnect(each, connection, None) for each in errors)


def told(error: SQLAlchemyError) -> str:
    """The error for people: its class and code, never its text, which may quote a statement's values."""
    original = getattr(error, "orig", None) or error
    code = database_code(error)
    return f"the database answered {type(original).__name__}{'' if code is None else f' ({code})'}"


def _permanent(error: SQLAlchemyError) -> bool:
    # A key may not fit in a table that somebody altered. SQLite names no code for a table that is not there.
    if isinstance(error, DataError) or database_code(error) in MISSING:
        return True
    return "no such table" in str(getattr(error, "orig", ""))


def after_read(error: SQLAlchemyError) -> Unknown:
    """The answer to a read that failed."""
    return Unknown(told(error), retry=not _permanent(error))


def after_write(error: SQLAlchemyError) -> NotApplied | Unknown:
    """The answer to a write that failed: unknown if its COMMIT may have taken effect."""
    if not isinstance(error, DBAPIError) or error.connection_invalidated:
        return Unknown(told(error))
    return NotApplied(told(error), retry=not _permanent(error), contended=contended(error))
