"""The store in a relational database: the three methods of every store, each a short transaction of its own."""

from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from itertools import count
from typing import Any, Self

from sqlalchemy import Connection, Engine, Insert, MetaData, Table, Update, delete, select, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from idempotent_receiver.handler.lending import LentRun, NotRun, Ran
from idempotent_receiver.protocol.namespaces import checked, joined
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Applied, Conflict, NotApplied, Unknown, Written
from idempotent_receiver.sql.course import Course
from idempotent_receiver.sql.engines import require_concurrency, require_engine, require_sessions
from idempotent_receiver.sql.errors import after_read, after_write
from idempotent_receiver.sql.statements import statements_for
from idempotent_receiver.sql.table import COUNTED, insert_if_absent, record_of, records_table, row_of, stored_id

RUNS_A_DELETION = 50
EXPIRED_A_DELETION = 100
"""After so many runs, so many expired records are deleted: twice as fast as runs write new ones."""

DIALECTS = ("postgresql", "mysql", "mariadb", "sqlite")


class SQLStore:
    """A store whose records are rows of the database behind `engine`: PostgreSQL, MySQL, MariaDB or SQLite.

    `namespace` separates this consumer's keys from other consumers' keys in the table. `table` is what `records_table`
    returned; by default, a table named `idempotent_receiver`. `sessions` is the `sessionmaker` of the sessions that
    handlers request; by default, their annotation's class makes them. Expired records are deleted, a few at a time,
    after every fiftieth run. Thread-safe.

    Raises TypeError for anything but an `Engine`, and ValueError for one with which the promise could not be kept, for
    another database, and for an invalid namespace.
    """

    def __init__(
        self,
        engine: Engine,
        namespace: str | None = None,
        *,
        sessions: "sessionmaker[Any] | None" = None,
        table: Table | None = None,
    ) -> None:
        if not isinstance(engine, Engine):
            raise TypeError(f"engine must be a sqlalchemy.Engine, as create_engine returns; it is {engine!r}")
        self._dialect = engine.dialect.name
        if self._dialect not in DIALECTS:
            raise ValueError(
                f"SQLStore works on PostgreSQL, MySQL, MariaDB and SQLite; the engine is for {self._dialect}"
            )
        self.engine = engine
        self.namespace = checked(namespace)
        self.table = records_table(MetaData()) if table is None else table
        require_engine(engine)
        require_sessions(sessions)
        self._runs = count(1)
        self.sessions = sessions
        self.statements = statements_for(engine, self.table)
        self._course = Course(engine, self.table, self.statements, sessions)

    def lends(self, kind: type) -> bool:
        """Whether a handler's parameter of this class gets the session or the connection of its transaction. Raises
        TypeError for an asynchronous one.
        """
        if kind.__module__.startswith("sqlalchemy.ext.asyncio"):
            raise TypeError(f"SQLStore lends no {kind.__name__}: request a sqlalchemy.orm.Session, in a plain function")
        if issubclass(kind, Connection):
            return kind is Connection
        return issubclass(kind, Session)

    def require_concurrency(self, concurrency: int) -> None:
        """Raise ValueError if that many handlers at once are too many for the database or the pool."""
        require_concurrency(self.engine, concurrency)

    def run(self, lent: LentRun) -> Ran | NotRun:
        """Run a message's handler, and write its record, in one transaction."""
        unstorable = self._unstorable(lent.claim.id)
        if unstorable is not None:
            return NotRun(Unknown(unstorable.why, retry=False))
        ended = self._course.run(lent)
        if next(self._runs) % RUNS_A_DELETION == 0 and lent.may_start():
            self._delete_expired(lent.deadline.now_ms)
        return ended

    def _delete_expired(self, now_ms: int) -> None:
        """Delete a few expired records, which count as absent anyway: no database does so by itself."""
        expired = self.table.c.expiration <= now_ms // 1000
        few = select(self.table.c.id).where(expired).limit(EXPIRED_A_DELETION).with_for_update(skip_locked=True)
        with suppress(SQLAlchemyError), self.engine.begin() as at:  # the next deletion finds them, too
            if ids := at.execute(few).scalars().all():
                at.execute(delete(self.table).where(self.table.c.id.in_(ids), expired))

    def named(self, name: str) -> Self:
        """The same table and engine with another namespace, for another function: `orders` becomes `orders.{name}`."""
        other = copy(self)
        other.namespace = joined(self.namespace, name)
        return other

    @property
    def table_id(self) -> object:
        """Identifies the table: equal for all stores on this table in this process."""
        return f"{self.engine.url.render_as_string()} {self.table.fullname}"

    def create(self) -> None:
        """Create the table if it is not there. For tests: in production, let your migrations create it."""
        self.table.create(self.engine, checkfirst=True)

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Insert each record whose id is not in the table."""
        return self._write([Change(record, None) for record in records])

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write each change whose expected attributes still match."""
        return self._write(changes)

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        """Read the current records."""
        try:
            with self.engine.connect() as at:
                found = self._found(at, [id for id in ids if self._unstorable(id) is None])
        except SQLAlchemyError as error:
            return [after_read(error)] * len(ids)
        return [found.get(id) for id in ids]

    def _write(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write all changes in one short transaction, ordered by id, so that two workers do not deadlock."""
        refused = {change.new.id: self._unstorable(change.new.id) for change in changes}
        storable = sorted(change for change in changes if refused[change.new.id] is None)
        try:
            with self.engine.begin() as at:
                written = {change.new.id: self._written(at, change) for change in storable}
        except SQLAlchemyError as error:
            written = {change.new.id: after_write(error) for change in storable}
        return [refused[change.new.id] or written[change.new.id] for change in changes]

    def _written(self, at: Connection, change: Change) -> Written:
        if at.execute(self._statement(change), execution_options=COUNTED).rowcount == 1:
            return Applied()
        return Conflict(self._found(at, [change.new.id]).get(change.new.id))

    def _statement(self, change: Change) -> Insert | Update:
        row = row_of(change.new, self._dialect)
        if change.seen is None:
            return insert_if_absent(self.table, self._dialect).values(row)
        where = [self.table.c[name].is_not_distinct_from(value) for name, value in change.expected.items()]
        return update(self.table).where(self.table.c.id == row.pop("id"), *where).values(row)

    def _found(self, at: Connection, ids: Sequence[str]) -> dict[str, Record]:
        stored = [stored_id(id, self._dialect) for id in ids]
        rows = at.execute(select(self.table).where(self.table.c.id.in_(stored))).mappings()
        return {record.id: record for record in map(record_of, rows)}

    def _unstorable(self, id: str) -> NotApplied | None:
        if self._dialect == "postgresql" and "\0" in id:
            return NotApplied("the key has a NUL character, which PostgreSQL cannot store", retry=False, own=True)
        return None
