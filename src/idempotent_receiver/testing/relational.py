"""Explores a handler whose store is an `SQLStore`: the same deliveries again and again, each time with another fault.

Every statement of a message's transaction is a place for a fault, and so is its COMMIT. Deliveries run one after
another on a real database, so this says nothing about statements of two transactions that interleave.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, delete, event, insert, select
from sqlalchemy.exc import OperationalError

from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.sql.lent import LentConnection, is_lending
from idempotent_receiver.sql.store import SQLStore
from idempotent_receiver.sqs.consumer import LambdaHandler
from idempotent_receiver.testing.events import lambda_context
from idempotent_receiver.testing.report import Exploration, Violation
from idempotent_receiver.testing.setup import record_id_of
from idempotent_receiver.testing.worker import SILENT

MOST_DELIVERIES = 6
NO_RACES = "statements of two transactions do not interleave here: races at READ COMMITTED are not explored"

LOSES = "loses its connection, and the worker with it"
FAILS = "fails"
CONTENDED = "meets another transaction's lock"
ELSEWHERE = "is delayed while the messages are delivered to another worker"
ANSWER_LOST = "takes effect, but its answer is lost"
_AT_STATEMENTS = (LOSES, FAILS, CONTENDED, ELSEWHERE)
_AT_COMMITS = (LOSES, CONTENDED, ANSWER_LOST)


@dataclass(frozen=True, slots=True)
class _Fault:
    """The fault at a place, counted from 1 in the order in which a run without faults comes to them."""

    place: int
    what: str


@dataclass(slots=True)
class _Played:
    """One schedule: its places, the tables afterwards, which messages were acknowledged, and what was found."""

    places: list[str] = field(default_factory=list)
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    errors: dict[str, str] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)
    """The messages that were acknowledged as dead letters."""
    found: dict[str, str] = field(default_factory=dict)
    """A remedy for each thing that is wrong, whatever the tables hold."""


class _Client:
    """An SQS client that confirms everything."""

    meta = SimpleNamespace(endpoint_url="https://sqs.us-east-1.amazonaws.com")

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries], "Failed": []}

    def send_message(self, **given: Any) -> dict[str, Any]:
        return {"MessageId": "dead"}

    def change_message_visibility_batch(self, **given: Any) -> dict[str, Any]:
        return {}


@contextmanager
def database_of(store: SQLStore) -> Iterator[SQLStore]:
    """The same store on a new SQLite database with the tables of its metadata."""
    with tempfile.TemporaryDirectory() as folder:
        # Whoever meets a lock must learn of it at once: its holder is in the same thread.
        engine = create_engine(f"sqlite:///{Path(folder) / 'explored'}", connect_args={"timeout": 0})
        try:
            store.table.metadata.create_all(engine)
            yield SQLStore(engine, store.namespace, sessions=store.sessions, table=store.table)
        finally:
            engine.dispose()


class Relational:
    """A handler, its deliveries, and its database, whose rows are those that it has now before each schedule."""

    def __init__(self, handler: LambdaHandler, store: SQLStore, records: Sequence[Any], seconds: float) -> None:
        client: Any = _Client()
        options = replace(
            handler.options,
            store=store,
            sqs=client,
            end_process_at_deadline=False,
            error_texts=True,
            logger=SILENT,
            metrics=SILENT,
            tracer=None,
            meter=None,
        )
        self._handler = handler.with_options(options)
        self._store, self._engine, self._records, self._seconds = store, store.engine, records, seconds
        self._tables = [table for table in store.table.metadata.sorted_tables if table is not store.table]
        if not self._tables:
            raise ValueError(
                "explore compares the tables in the metadata of the store's own table, and there are none: "
                "SQLStore(engine, table=records_table(Base.metadata))"
            )
        self._before = self._rows()
        self._fault: _Fault | None = None
        self._played = _Played()
        self._away = False

    def explore(self, only: str | None = None) -> Exploration:
        """Play every fault, or the one that `only` names."""
        with self._watched():
            wanted, again = self._play(None), self._play(None)
            result = Exploration(schedules=1, effects=wanted.tables)
            result.unstable = [name for name in wanted.tables if wanted.tables[name] != again.tables[name]]
            result.notes.append(NO_RACES)
            for id in sorted(wanted.acknowledged):
                result.acknowledged[id] = "dead letter" if id in wanted.failed else "completed"
            result.notes += [f"{id}: dead letter:\n  {wanted.errors[id]}" for id in sorted(wanted.failed)]
            self._judge(result, wanted, wanted, None)
            if not result.violations:
                self._faults(result, wanted, only)
        self._restore()
        return result

    def _faults(self, result: Exploration, wanted: _Played, only: str | None) -> None:
        for place, name in enumerate(wanted.places, 1):
            for number, what in enumerate(_AT_COMMITS if name == "COMMIT" else _AT_STATEMENTS):
                if only in (None, f"{place}.{number}"):
                    fault = _Fault(place, what)
                    result.schedules += 1
                    result.played[name, what] += 1
                    self._judge(result, self._play(fault), wanted, fault, f"{place}.{number}")
                if len(result.violations) > 2:
                    return
        result.complete = only is None

    def _judge(
        self, result: Exploration, played: _Played, wanted: _Played, fault: _Fault | None, replay: str = "0"
    ) -> None:
        found = dict(played.found)
        for id in (record["messageId"] for record in self._records):
            if id not in played.acknowledged:
                found[f"{id} is never acknowledged: {played.errors.get(id, 'no error was recorded')}"] = (
                    "let the handler succeed once nothing fails any more"
                )
        for name, rows in wanted.tables.items():
            if name not in result.unstable and played.tables[name] != rows:
                found[f"the table {name} differs from the run without faults"] = (
                    "write through the session that is lent, catch no error of a statement outside begin_nested, and "
                    "let effects not depend on what failed before"
                )
        story = () if fault is None else (f"statement {fault.place} ({wanted.places[fault.place - 1]}) {fault.what}",)
        known = {one.what for one in result.violations}
        result.violations += [
            Violation(what, remedy, story, replay) for what, remedy in found.items() if what not in known
        ]

    def _play(self, fault: _Fault | None) -> _Played:
        """Deliver until all is acknowledged, and once more."""
        self._restore()
        self._fault, self._played = fault, _Played()
        for receives in range(1, MOST_DELIVERIES + 1):
            self._away = False
            if left := self._left():
                self._played.acknowledged |= set(left) - self._deliver(left, receives)
        self._away = False
        self._deliver([record["messageId"] for record in self._records], MOST_DELIVERIES + 1)
        self._fault, self._away = None, False
        self._played.tables = self._rows()
        for id, record in self._found().items():
            self._played.errors[id] = f"{record.status} {record.error or ''}".strip()
            if record.status == Status.FAILED and id in self._played.acknowledged:
                self._played.failed.add(id)
        return self._played

    def _left(self) -> list[str]:
        return [record["messageId"] for record in self._records if record["messageId"] not in self._played.acknowledged]

    def _deliver(self, ids: Sequence[str], receives: int) -> set[str]:
        """The messageIds that SQS would deliver again."""
        count = {"ApproximateReceiveCount": str(receives)}
        records = [
            {**record, "attributes": {**record["attributes"], **count}}
            for record in self._records
            if record["messageId"] in ids
        ]
        answer = self._handler({"Records": records}, lambda_context(self._seconds))
        return {one["itemIdentifier"] for one in answer["batchItemFailures"]}

    def _found(self) -> Mapping[str, Record]:
        ids = {one["messageId"]: record_id_of(one, self._handler.options) for one in self._records}
        keyed = {id: own for id, own in ids.items() if own is not None}
        read = zip(keyed, self._store.read([*keyed.values()]), strict=True)
        return {id: found for id, found in read if isinstance(found, Record)}

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        """The rows of each table, without the numbers that the database gives them: a rollback may use some up."""
        with self._engine.connect() as at:
            return {
                table.name: sorted(({**row} for row in at.execute(_compared(table)).mappings()), key=repr)
                for table in self._tables
            }

    def _restore(self) -> None:
        with self._engine.begin() as at:
            for table in reversed([*self._tables, self._store.table]):
                at.execute(delete(table))
            for table in self._tables:
                if rows := self._before[table.name]:
                    at.execute(insert(table), rows)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        statements = self._store.statements
        hooks: list[tuple[Any, str, Callable[..., Any]]] = [
            (self._engine, "before_cursor_execute", self._before_statement),
            (Engine, "engine_connect", self._connects),
        ]
        for target, name, hook in hooks:
            event.listen(target, name, hook)
        end = statements.end
        statements.end = partial(self._ends, end)  # type: ignore[method-assign]
        try:
            yield
        finally:
            statements.end = end  # type: ignore[method-assign]
            for target, name, hook in hooks:
                event.remove(target, name, hook)

    def _connects(self, at: Connection) -> None:
        if self._away and at.engine is self._engine:
            raise _error(None, lost=True)
        if is_lending() and not isinstance(at, LentConnection):
            what = "the handler opens a connection of its own, whose writes do not commit with the record"
            self._played.found[what] = "write through the session or connection that is lent, or current_session()"

    def _before_statement(self, at: Connection, cursor: object, statement: str, *rest: object) -> None:
        if isinstance(at, LentConnection):
            self._reached(" ".join(statement.split())[:60])

    def _ends(self, end: Callable[..., None], at: LentConnection, change: Change, number: int | None) -> None:
        fault, place = self._fault, len(self._played.places) + 1
        if fault is not None and fault.place == place and fault.what == ANSWER_LOST:
            self._fault = None
            end(at, change, number)
            self._away = True
            raise _error(None, lost=True)
        self._reached("COMMIT")
        end(at, change, number)

    def _reached(self, name: str) -> None:
        if self._away:
            raise _error(None, lost=True)
        self._played.places.append(name)
        fault = self._fault
        if fault is None or fault.place != len(self._played.places):
            return
        self._fault = None
        if fault.what == ELSEWHERE:
            self._deliver_elsewhere()
            return
        self._away = fault.what == LOSES
        raise _error("40001" if fault.what == CONTENDED else None, lost=fault.what == LOSES)

    def _deliver_elsewhere(self) -> None:
        """Deliver what is not acknowledged to another worker, while this one is in the middle of it."""
        left = self._left()
        for id in set(left) - self._deliver(left, 2):
            self._played.acknowledged.add(id)


def _compared(table: Table) -> Any:
    numbered = table.autoincrement_column
    referred = {key.column for other in table.metadata.sorted_tables for key in other.foreign_keys}
    kept = [column for column in table.columns if column is not numbered or column in referred]
    return select(*(kept or table.columns))


def _error(sqlstate: str | None, *, lost: bool) -> OperationalError:
    """What SQLAlchemy makes of a driver's error. `sqlstate` is the code of contention, if that is the fault."""
    planted = Exception("planted by explore")
    vars(planted)["sqlstate"] = sqlstate
    return OperationalError("planted", None, planted, connection_invalidated=lost)
