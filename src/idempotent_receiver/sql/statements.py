"""The statements of one message's transaction, on each database.

======== ==================================================== ==================================================
         open: lock the key, insert a placeholder             end: write the record, and commit
======== ==================================================== ==================================================
Postgres an advisory lock, tried, and the INSERT: one         the UPDATE, an error if it finds no row, so that
         statement, which never waits                         the COMMIT behind it is skipped
MySQL    INSERT IGNORE, whose lock is not waited for          the UPDATE, its count, then COMMIT
SQLite   INSERT OR IGNORE, which locks the database           the same, after the savepoint is found to be there
======== ==================================================== ==================================================

Each also notices that a handler has ended the transaction itself, by a raw cursor: the placeholder is gone; on
PostgreSQL, the transaction's number differs; on SQLite, the savepoint is gone. On MySQL, a COMMIT is not noticed.
"""

import re
from enum import StrEnum, auto
from functools import lru_cache
from typing import Any, NamedTuple, Protocol

from sqlalchemy import Engine, Table, select, text, update
from sqlalchemy.exc import DBAPIError

from idempotent_receiver.errors import misuse
from idempotent_receiver.protocol.record import ATTRIBUTES, Change, Record
from idempotent_receiver.sql.errors import LOCK_WAIT_TIMEOUT, database_code
from idempotent_receiver.sql.lent import LentConnection
from idempotent_receiver.sql.table import COUNTED, insert_if_absent, name_in_text, record_of, row_of, stored_id

ENDED = "the handler ended its database transaction itself; what it had committed stands, and the rest is rolled back"
SWALLOWED = "a statement failed and its error was caught, which PostgreSQL allows only inside begin_nested"
COMMITS_EACH = "the driver commits each statement: leave out isolation_level=None and autocommit=True"
_SAVEPOINT = "idempotent_receiver"


class Opening(StrEnum):
    """What opening a message's transaction met."""

    HELD = auto()  # another transaction holds the key
    FRESH = auto()  # no record was there, and the placeholder is
    FOUND = auto()  # a record is there


class Opened(NamedTuple):
    """The opening, and the number of the transaction, where the database has one."""

    opening: Opening
    number: int | None = None


class Statements(Protocol):
    """How one database opens and ends a message's transaction."""

    def open(self, at: LentConnection, placeholder: Record, idle_ms: int) -> Opened:
        """Lock the key and insert the placeholder, without waiting for another worker."""

    def end(self, at: LentConnection, change: Change, number: int | None) -> None:
        """Write the record over the placeholder, and commit. Raises RuntimeError if the placeholder is not there."""


def statements_for(engine: Engine, table: Table) -> Statements:
    """The statements for this engine."""
    match engine.dialect.name, engine.dialect.driver:
        case "postgresql", "psycopg":
            return Psycopg(engine, table)
        case "postgresql", _:
            return PostgreSQL(engine, table)
        case "sqlite", _:
            return SQLite(table)
    return MySQL(engine, table)


def found(at: LentConnection, table: Table, id: str) -> Record | None:
    """The record under a key that is locked."""
    query = select(table).where(table.c.id == stored_id(id, at.dialect.name))
    if at.dialect.name in ("mysql", "mariadb"):
        query = query.with_for_update(nowait=True)  # the INSERT that met it has a shared lock on it
    row = at.execute(query).mappings().one_or_none()
    return None if row is None else record_of(row)


def replaced(at: LentConnection, table: Table, change: Change) -> bool:
    """Write a record over the one that was seen. Returns whether that was there."""
    row = row_of(change.new, at.dialect.name)
    assert change.seen is not None  # a placeholder, at least
    where = (table.c.id == row.pop("id"), table.c.version == change.seen.version)
    return at.execute(update(table).where(*where).values(row)).rowcount == 1


class SQLite:
    """One writer at a time: the first statement writes, so that no lock has to be upgraded later."""

    def __init__(self, table: Table) -> None:
        self._insert, self._table = insert_if_absent(table, "sqlite"), table

    def open(self, at: LentConnection, placeholder: Record, idle_ms: int) -> Opened:
        """Insert the placeholder."""
        inserted = at.execute(self._insert, row_of(placeholder, "sqlite"), execution_options=COUNTED).rowcount == 1
        _require_transaction(at)
        at.exec_driver_sql(f"SAVEPOINT {_SAVEPOINT}")
        return Opened(Opening.FRESH if inserted else Opening.FOUND)

    def end(self, at: LentConnection, change: Change, number: int | None) -> None:
        """Release the savepoint, write the record, and commit."""
        try:
            at.exec_driver_sql(f"RELEASE {_SAVEPOINT}")
        except DBAPIError as error:
            raise misuse(RuntimeError(ENDED)) from error
        if not replaced(at, self._table, change):
            raise misuse(RuntimeError(ENDED))
        at.outer.commit()


def _require_transaction(at: LentConnection) -> None:
    """Raise RuntimeError if the driver commits each statement. It can tell without asking the database."""
    driver: Any = at.connection.driver_connection
    if not getattr(driver, "in_transaction", True) or getattr(driver, "get_autocommit", bool)():
        raise misuse(RuntimeError(COMMITS_EACH))


class MySQL:
    """InnoDB: an INSERT comes first, because a lock on a row that is not there keeps nobody out."""

    def __init__(self, engine: Engine, table: Table) -> None:
        name, columns = name_in_text(table, engine), ", ".join(_FIRST)
        self._table = table
        self._insert = f"INSERT IGNORE INTO {name} ({columns}) VALUES ({', '.join(f':{one}' for one in _FIRST)})"

    def open(self, at: LentConnection, placeholder: Record, idle_ms: int) -> Opened:
        """Insert the placeholder. MariaDB does not wait for another worker's; MySQL does, as its settings say."""
        no_wait = "SET STATEMENT innodb_lock_wait_timeout=0 FOR " if getattr(at.dialect, "is_mariadb", False) else ""
        row = {name: value for name, value in row_of(placeholder, "mysql").items() if name in _FIRST}
        try:
            inserted = at.execute(text(no_wait + self._insert), row, execution_options=COUNTED).rowcount == 1
        except DBAPIError as error:
            if database_code(error) == LOCK_WAIT_TIMEOUT:
                return Opened(Opening.HELD)
            raise
        _require_transaction(at)
        return Opened(Opening.FRESH if inserted else Opening.FOUND)

    def end(self, at: LentConnection, change: Change, number: int | None) -> None:
        """Write the record, and commit."""
        if not replaced(at, self._table, change):
            raise misuse(RuntimeError(ENDED))
        at.outer.commit()


_FIRST = ("id", "status", "version", "validation", "owner", "expiration", "attempts")
"""The attributes of a placeholder."""


class PostgreSQL:
    """PostgreSQL, by any driver."""

    def __init__(self, engine: Engine, table: Table) -> None:
        name = name_in_text(table, engine)
        self._lock = table.fullname
        values = ", ".join(f":{one}" for one in _FIRST)
        self.open_text = (
            "WITH l AS MATERIALIZED (SELECT pg_try_advisory_xact_lock(hashtextextended(:lock, 0)) AS ok),"
            f" i AS (INSERT INTO {name} ({', '.join(_FIRST)}) SELECT {values} FROM l WHERE ok"
            " ON CONFLICT (id) DO NOTHING RETURNING 1)"
            " SELECT ok, EXISTS (SELECT 1 FROM i), txid_current(),"
            " set_config('idle_in_transaction_session_timeout', :idle, true) FROM l"
        )
        self._update, self._same = f"UPDATE {name} SET", "id = :id AND version = :was AND txid_current() = :number"
        self._open = text(self.open_text)

    def open(self, at: LentConnection, placeholder: Record, idle_ms: int) -> Opened:
        """Try the key's lock and insert the placeholder, in one statement."""
        if getattr(at.connection.driver_connection, "autocommit", False):
            raise misuse(RuntimeError(COMMITS_EACH))
        row = at.execute(self._open, self._opening(placeholder, idle_ms)).one()
        return _opened(ok=row[0], inserted=row[1], number=row[2])

    def end(self, at: LentConnection, change: Change, number: int | None) -> None:
        """Write the record, and commit."""
        query, values = self._ending(change, number)
        try:
            found = at.execute(_text(query), values, execution_options=COUNTED).rowcount
        except DBAPIError as error:
            raise _told(error) from error
        if found != 1:
            raise misuse(RuntimeError(ENDED))
        at.outer.commit()

    def _opening(self, placeholder: Record, idle_ms: int) -> dict[str, Any]:
        values = {name: getattr(placeholder, name) for name in _FIRST}
        return values | {"lock": f"{self._lock}#{placeholder.id}", "idle": f"{max(1, idle_ms)}ms"}

    def _ending(self, change: Change, number: int | None) -> tuple[str, dict[str, Any]]:
        """The UPDATE of what differs from the placeholder, and its values: naming all columns takes longer."""
        new, seen = change
        assert seen is not None  # a placeholder, at least
        # Of a placeholder, the opening's INSERT has written only `_FIRST`.
        values = {
            name: value
            for name in ATTRIBUTES
            if (value := getattr(new, name)) != getattr(seen, name) or (value is not None and name not in _FIRST)
        }
        sets = ", ".join(f"{name} = :{name}" for name in values)
        return f"{self._update} {sets} WHERE {self._same}", values | {
            "id": new.id, "was": seen.version, "number": number,
        }  # fmt: skip


_text = lru_cache(maxsize=64)(text)


def _opened(*, ok: bool, inserted: bool, number: int) -> Opened:
    return Opened(Opening.HELD if not ok else Opening.FRESH if inserted else Opening.FOUND, number)


def _told(error: DBAPIError) -> Exception:
    """The error that says what the handler did, if it was that."""
    return misuse(RuntimeError(SWALLOWED)) if database_code(error) == "25P02" else error


class Psycopg(PostgreSQL):
    """PostgreSQL by psycopg 3: BEGIN and the opening share a round trip, and so do the record and COMMIT.

    Its pipelines would do that too, but after one of them the server never starts its timer for idle transactions.
    """

    def open(self, at: LentConnection, placeholder: Record, idle_ms: int) -> Opened:
        """Begin, as the driver would, and open."""
        driver: Any = at.connection.driver_connection
        found = _sent(at, f"{_begin(driver)}; {self.open_text}", self._opening(placeholder, idle_ms))
        ok, inserted, number = (found.get_value(0, column) for column in range(3))
        return _opened(ok=ok == b"t", inserted=inserted == b"t", number=int(number))

    def end(self, at: LentConnection, change: Change, number: int | None) -> None:
        """Write the record and commit, in one round trip."""
        update, values = self._ending(change, number)
        query = f"WITH u AS ({update} RETURNING 1) SELECT 1 / count(*) FROM u; COMMIT"
        try:
            done = _sent(at, query, values)
        except DBAPIError as error:
            if database_code(error) == _DIVISION_BY_ZERO:
                raise misuse(RuntimeError(ENDED)) from error
            raise _told(error) from error
        assert done.command_status == b"COMMIT"
        at.outer.commit()  # nothing is left to commit: SQLAlchemy learns of it


_DIVISION_BY_ZERO = "22012"


def _begin(driver: Any) -> str:
    """The BEGIN that psycopg would send: with the isolation level and the access mode of the engine."""
    parts = ["BEGIN"]
    if driver.isolation_level is not None:
        parts.append(f"ISOLATION LEVEL {driver.isolation_level.name.replace('_', ' ')}")
    if driver.read_only is not None:
        parts.append("READ ONLY" if driver.read_only else "READ WRITE")
    if driver.deferrable is not None:
        parts.append("DEFERRABLE" if driver.deferrable else "NOT DEFERRABLE")
    return " ".join(parts)


_NAMED = re.compile(r":(\w+)")


def _sent(at: LentConnection, query: str, values: dict[str, Any]) -> Any:
    """The last result of several statements, sent at once. Raises DBAPIError as SQLAlchemy would."""
    import psycopg  # noqa: PLC0415  # installed, since the engine uses it
    from psycopg.pq import ConnStatus, ExecStatus  # noqa: PLC0415

    driver: Any = at.connection.driver_connection
    escape, encoding = psycopg.pq.Escaping(driver.pgconn).escape_literal, driver.info.encoding

    def literal(named: re.Match[str]) -> str:
        value = values[named[1]]
        if not isinstance(value, str):
            return "NULL" if value is None else str(value)
        assert "\0" not in value  # there the literal would end
        return str(escape(value.encode(encoding)), encoding)

    # psycopg's own way to literals, `mogrify`, takes three times as long.
    result = driver.pgconn.exec_(_NAMED.sub(literal, query).encode(encoding))
    if result.status in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
        return result
    broken = driver.pgconn.status == ConnStatus.BAD
    error = psycopg.errors.error_from_result(result, driver.info.encoding)
    raise DBAPIError.instance(
        query, None, error, psycopg.Error, hide_parameters=True, connection_invalidated=broken, dialect=at.dialect
    )
