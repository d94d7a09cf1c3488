"""What a store answers to its batch when the database fails: errors are planted on SQLite, so it needs no server."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, event
from sqlalchemy.orm import Session

from idempotent_receiver import PermanentError, body_field, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.handler.attempt import Raised, Returned
from idempotent_receiver.handler.lending import LentRun, NotRun, Ran
from idempotent_receiver.protocol.answers import AlreadyCompleted, ClaimLost, HeldElsewhere, Settled
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Applied, NotApplied, Unknown
from idempotent_receiver.sql import SQLStore
from idempotent_receiver.sql.course import MOST_TRIES
from idempotent_receiver.sql.statements import Opened, Opening, SQLite
from tests.unit.sql.bank import Bank, deliver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from idempotent_receiver.sql.lent import LentConnection

OPENING, REPLACING = "INSERT INTO records", "UPDATE records"


def busy() -> sqlite3.Error:
    return _named(sqlite3.OperationalError("database is locked"), "SQLITE_BUSY")


def broken() -> sqlite3.Error:
    """What SQLAlchemy takes for a broken connection."""
    return sqlite3.ProgrammingError("Cannot operate on a closed database.")


def full() -> sqlite3.Error:
    return _named(sqlite3.OperationalError("database or disk is full"), "SQLITE_FULL")


def _named(error: sqlite3.Error, name: str) -> sqlite3.Error:
    error.sqlite_errorname = name
    return error


FULL, BROKEN = "the database answered OperationalError (SQLITE_FULL)", "the database answered ProgrammingError"


class Told(SQLStore):
    """A store that keeps how its runs ended. `before` is called with each."""

    ended: list[Ran | NotRun]
    before: Any = None

    def run(self, lent: LentRun) -> Ran | NotRun:
        if self.before is not None:
            lent = self.before(lent)
        self.ended.append(super().run(lent))
        return self.ended[-1]


class Faulty(Bank):
    """A bank whose database fails where a test says."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.told = self.store = Told(self.engine, table=self.records)
        self.told.ended = []
        self.planted: list[tuple[str, list[sqlite3.Error | None]]] = []
        self.runs: list[str] = []
        self.pauses: list[float] = []
        event.listen(self.engine, "do_execute", self._execute)

    def plant(self, start: str, *errors: sqlite3.Error | None) -> None:
        """At the next statements that start so, raise these one after another, or nothing."""
        self.planted.append((start, list(errors)))

    def _execute(self, cursor: object, statement: str, *rest: object) -> None:
        for start, errors in self.planted:
            if statement.startswith(start) and errors and (error := errors.pop(0)) is not None:
                raise error

    def note_it(self, body: dict[str, Any], session: Session) -> str:
        """A handler with one effect."""
        self.runs.append("run")
        session.execute(self.note())
        return "done"

    def delivered(self, handler: Any = None) -> Ran | NotRun:
        """How the store ended the run of one delivery."""
        self.told.ended.clear()
        failed = deliver(self.consumer(handler or self.note_it))
        (ended,) = self.told.ended
        assert failed == ([] if _completed(ended) else ["message-1"])
        return ended


def _completed(ended: Ran | NotRun) -> bool:
    if isinstance(ended, NotRun):
        return isinstance(ended.answer, AlreadyCompleted)
    return isinstance(ended.answer, Settled) and isinstance(ended.handled, Returned)


@pytest.fixture
def bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Faulty]:
    engine = create_engine(f"sqlite:///{tmp_path / 'bank'}")
    made = Faulty(engine)
    monkeypatch.setattr(SystemClock, "sleep", lambda clock, seconds: made.pauses.append(seconds))
    monkeypatch.setattr(SystemClock, "fraction", lambda clock: 0.5)
    yield made
    engine.dispose()


# Before the handler runs.


@pytest.mark.parametrize("error", [busy, broken], ids=["contention", "a stale connection"])
@pytest.mark.parametrize("place", [OPENING, "SAVEPOINT"])
def test_nothing_has_run_so_it_begins_again_at_once(bank: Faulty, error: Any, place: str) -> None:
    bank.plant(place, *(error() for _ in range(MOST_TRIES - 1)))
    assert _completed(bank.delivered())
    assert bank.noted == ["x"]
    assert len(bank.runs) == 1


def test_contention_without_end_counts_as_a_key_that_is_held(bank: Faulty) -> None:
    bank.plant(OPENING, *(busy() for _ in range(MOST_TRIES)))
    assert bank.delivered() == NotRun(HeldElsewhere(0))
    assert bank.runs == []
    assert bank.pauses == [0.005, 0.01, 0.02, 0.04], "half of a bound that doubles"


def test_a_database_that_is_away_is_named_by_its_error(bank: Faulty) -> None:
    bank.plant(OPENING, *(broken() for _ in range(MOST_TRIES)))
    assert bank.delivered() == NotRun(Unknown(BROKEN))


def test_another_error_is_told_at_once(bank: Faulty) -> None:
    """Another try would meet it again."""
    bank.plant(OPENING, full())
    assert bank.delivered() == NotRun(Unknown(FULL))
    assert _completed(bank.delivered())


def test_a_missing_table_is_not_retried(bank: Faulty) -> None:
    bank.records.drop(bank.engine)
    assert bank.delivered() == NotRun(Unknown("the database answered OperationalError (SQLITE_ERROR)", retry=False))


def test_a_connection_that_is_refused_is_told_at_once(bank: Faulty) -> None:
    bank.engine.dispose()

    @event.listens_for(bank.engine, "do_connect")
    def connects(*_: Any) -> None:
        raise full()

    assert bank.delivered() == NotRun(Unknown(FULL))


def test_without_time_left_it_does_not_begin_again(bank: Faulty) -> None:
    bank.told.before = lambda lent: _with(lent, may_start=lambda: False)
    bank.plant(OPENING, busy())
    assert bank.delivered() == NotRun(HeldElsewhere(0))
    assert bank.pauses == []


def _with(lent: LentRun, **changed: Any) -> LentRun:
    return LentRun(**{name: getattr(lent, name) for name in LentRun.__slots__} | changed)


class Spied:
    """SQLite's statements, which tell what they were given. `openings` are answered in place of the database's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.openings: list[Opening | None] = []
        self.idle_ms: list[int] = []
        self.placeholders: list[Record] = []
        self.ends: list[tuple[Change, int | None]] = []
        opening, ending = SQLite.open, SQLite.end

        def opened(own: SQLite, at: LentConnection, placeholder: Record, idle_ms: int) -> Opened:
            self.idle_ms.append(idle_ms)
            self.placeholders.append(placeholder)
            if self.openings and (planted := self.openings.pop(0)) is not None:
                return Opened(planted)
            return opening(own, at, placeholder, idle_ms)._replace(number=17)

        def ended(own: SQLite, at: LentConnection, change: Change, number: int | None) -> None:
            self.ends.append((change, number))
            ending(own, at, change, number)

        monkeypatch.setattr(SQLite, "open", opened)
        monkeypatch.setattr(SQLite, "end", ended)


@pytest.fixture
def spied(monkeypatch: pytest.MonkeyPatch) -> Spied:
    return Spied(monkeypatch)


def test_a_key_that_is_held_is_not_waited_for(bank: Faulty, spied: Spied) -> None:
    spied.openings = [Opening.HELD]
    assert bank.delivered() == NotRun(HeldElsewhere(0))
    assert (bank.runs, bank.pauses) == ([], [])


def test_a_transaction_may_be_idle_as_long_as_a_lease_would_last(bank: Faulty, spied: Spied) -> None:
    """Until the invocation must be dead, or for the length of a lease that is renewed."""
    bank.delivered()
    assert 32_000 < spied.idle_ms[0] <= 33_000
    bank.told.before = lambda lent: _with(lent, claim=lent.claim._replace(lease_ms=7_000))
    bank.delivered()
    assert spied.idle_ms[1] == 7_000


def test_a_placeholder_is_a_failure_without_error_under_a_version_of_its_own(bank: Faulty, spied: Spied) -> None:
    """And so is the one that a failure's record is written over, which names the transaction that it was written in."""
    for handler in (fail, bank.note_it):
        bank.delivered(handler)
    for each in spied.placeholders:
        assert (each.status, each.error, each.in_progress_expiration) == ("FAILED", None, None)
    versions = [each.version for each in spied.placeholders] + [change.new.version for change, _ in spied.ends]
    assert len(set(versions)) == 5
    assert all(len(str(each)) > 20 for each in versions)
    assert [number for _, number in spied.ends] == [17, 17]


def test_a_record_that_is_there_is_decided_about(bank: Faulty) -> None:
    assert _completed(bank.delivered())
    ended = bank.delivered()
    assert isinstance(ended.answer, AlreadyCompleted)
    assert ended.answer.record == bank.record()
    assert isinstance(ended, NotRun)


def test_an_expired_record_that_is_deleted_in_between_is_no_reason_to_fail(bank: Faulty) -> None:
    """Another worker's deletion may commit between what is found and its replacement."""
    bank.store.insert([Record("message-1", "COMPLETED", version="v", expiration=1)])
    with bank.engine.begin() as at:
        at.exec_driver_sql(
            f"CREATE TRIGGER t BEFORE UPDATE ON {bank.records.name} WHEN old.version = 'v' "
            "BEGIN SELECT RAISE(IGNORE); END"
        )
    assert bank.delivered() == NotRun(HeldElsewhere(0))
    assert bank.runs == []


def test_a_key_that_the_database_cannot_store_is_not_retried() -> None:
    """And the database, which is not there, is not asked."""
    store = Told(create_engine("postgresql+psycopg://nobody@127.0.0.1:1/none"), "orders")
    store.ended = []
    consumer = sqs_consumer(store, key=body_field("key"))(fail)
    assert deliver(consumer, {"key": "a\0b"}) == ["message-1"]
    why = "the key has a NUL character, which PostgreSQL cannot store"
    assert store.ended == [NotRun(Unknown(why, retry=False))]


# While it runs.


def test_contention_that_the_handler_meets_runs_it_again(bank: Faulty) -> None:
    bank.plant("INSERT INTO entries", busy(), busy())
    assert _completed(bank.delivered())
    assert (len(bank.runs), bank.noted) == (3, ["x"])


def test_contention_that_the_handler_meets_without_end_is_recorded_nowhere(bank: Faulty) -> None:
    bank.plant("INSERT INTO entries", *(busy() for _ in range(MOST_TRIES)))
    ended = bank.delivered()
    assert isinstance(ended, Ran)
    assert isinstance(ended.handled, Raised)
    assert ended.answer == Unknown("other transactions were in the way")
    assert (len(bank.runs), bank.record()) == (MOST_TRIES, None)


@pytest.mark.parametrize("swallowed", [True, False])
def test_a_connection_that_breaks_while_it_runs_is_unknown(bank: Faulty, *, swallowed: bool) -> None:
    bank.plant("INSERT INTO entries", broken())

    def handle(body: dict[str, Any], session: Session) -> None:
        try:
            bank.note_it(body, session)
        except Exception:
            if not swallowed:
                raise

    ended = bank.delivered(handle)
    assert isinstance(ended, Ran)
    assert isinstance(ended.handled, Returned if swallowed else Raised)
    assert ended.answer == Unknown("the connection to the database was lost while the handler ran")
    assert (len(bank.runs), bank.record()) == (1, None)


# At its end.


@pytest.mark.parametrize("place", [REPLACING, "COMMIT"])
def test_a_connection_that_breaks_at_the_end_is_unknown(
    bank: Faulty, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _plant(bank, monkeypatch, place, broken())
    ended = bank.delivered()
    assert isinstance(ended, Ran)
    assert isinstance(ended.handled, Returned)
    assert ended.answer == Unknown(BROKEN)
    assert (bank.noted, bank.record()) == ([], None)


def _plant(bank: Faulty, monkeypatch: pytest.MonkeyPatch, place: str, *errors: sqlite3.Error) -> None:
    if place != "COMMIT":
        return bank.plant(place, *errors)
    left, found = list(errors), bank.engine.dialect.do_commit

    def commit(at: Any) -> None:
        if left:
            raise left.pop(0)
        found(at)

    return monkeypatch.setattr(bank.engine.dialect, "do_commit", commit)


@pytest.mark.parametrize("place", [REPLACING, "COMMIT"])
def test_contention_at_the_end_runs_it_again(bank: Faulty, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _plant(bank, monkeypatch, place, busy())
    assert _completed(bank.delivered())
    assert (len(bank.runs), bank.noted) == (2, ["x"])


@pytest.mark.parametrize("place", [REPLACING, "COMMIT"])
def test_a_refused_end_is_the_messages_failure(bank: Faulty, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _plant(bank, monkeypatch, place, full())
    ended = bank.delivered()
    assert isinstance(ended, Ran)
    assert isinstance(ended.handled, Raised)
    assert ended.handled.failure.type == "OperationalError"
    assert ended.answer == Settled(bank.record())
    record = bank.record()
    assert record is not None
    assert (record.status, bank.noted) == ("FAILED", [])


def test_a_commit_that_a_reader_keeps_out_leaves_nothing_open_in_the_pool(tmp_path: Path) -> None:
    """SQLite's COMMIT waits for readers, fails, and leaves the transaction open: the next run must not meet its own
    record in it, which would acknowledge the message and lose its effects.
    """
    path = tmp_path / "bank"
    bank = Faulty(create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.01}))
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute(f"SELECT * FROM {bank.accounts.name}").fetchone()

    ended = bank.delivered()

    reader.close()
    assert isinstance(ended, Ran)
    assert ended.answer == Unknown("other transactions were in the way")
    assert (len(bank.runs), bank.noted, bank.record()) == (MOST_TRIES, [], None)
    assert _completed(bank.delivered())
    assert bank.noted == ["x"]
    bank.engine.dispose()


# Recording a failure.


def fail(body: dict[str, Any], session: Session) -> None:
    raise PermanentError("no such account")


def test_a_failure_that_cannot_be_recorded_is_unknown(bank: Faulty) -> None:
    bank.plant(OPENING, None, full())
    ended = bank.delivered(fail)
    assert isinstance(ended, Ran)
    assert isinstance(ended.handled, Raised)
    assert ended.answer == Unknown(FULL)
    assert bank.record() is None


def test_a_failure_of_a_key_that_another_worker_has_is_not_recorded(bank: Faulty, spied: Spied) -> None:
    spied.openings = [None, Opening.HELD]
    ended = bank.delivered(fail)
    assert isinstance(ended, Ran)
    assert ended.answer == Unknown("another worker runs this key, and decides")
    assert bank.record() is None


def test_a_failure_replaces_the_one_before_and_has_the_runs_owner_and_number(bank: Faulty) -> None:
    def twice(body: dict[str, Any], session: Session) -> None:
        raise ValueError

    versions = set()
    for attempts in (1, 2, 3):
        ended = bank.delivered(twice)
        assert isinstance(ended, Ran)
        record = bank.record()
        assert record is not None
        assert ended.answer == Settled(record)
        assert (record.status, record.attempts) == ("FAILED", attempts)
        versions.add(record.version)
    assert len(versions) == 3


def test_a_failure_does_not_replace_what_another_worker_wrote_meanwhile(bank: Faulty) -> None:
    """Its placeholder was rolled back, and the other one committed before this failure locked the key again."""
    theirs = Record("message-1", "COMPLETED", version="theirs")

    @event.listens_for(bank.engine, "checkin")
    def overtakes(*_: Any) -> None:
        if event.contains(bank.engine, "checkin", overtakes):
            event.remove(bank.engine, "checkin", overtakes)
            bank.by(bank.engine).store.insert([theirs])

    consumer = bank.consumer(fail)
    assert deliver(consumer) == []
    (ended,) = bank.told.ended
    assert ended.answer == ClaimLost(theirs)
    assert bank.record() == theirs


# The methods of every store.


def test_a_write_that_fails_is_answered_for_each_record(bank: Faulty) -> None:
    records = [Record(id, "COMPLETED", version="v") for id in ("b", "a")]
    bank.plant(OPENING, None, full(), broken())
    assert bank.store.insert(records) == [NotApplied(FULL, retry=True)] * 2
    assert bank.store.insert(records) == [Unknown(BROKEN)] * 2
    assert bank.store.read(["b", "a"]) == [None, None]
    assert bank.store.insert(records) == [Applied()] * 2
    bank.plant("SELECT records", full())
    assert bank.store.read(["b", "a"]) == [Unknown(FULL)] * 2


def test_many_records_are_written_in_the_order_of_their_ids(bank: Faulty) -> None:
    """So that two workers that write the same ones do not deadlock."""
    written = []

    @event.listens_for(bank.engine, "before_cursor_execute")
    def writes(at: object, cursor: object, statement: str, parameters: Any, *rest: object) -> None:
        if statement.startswith((OPENING, REPLACING)):
            written.append(next(each for each in parameters if each in ("a", "b", "c")))

    records = [Record(id, "COMPLETED", version="v") for id in ("b", "c", "a")]
    bank.store.insert(records)
    bank.store.replace([Change(each._replace(status="FAILED"), each) for each in records])
    assert written == ["a", "b", "c"] * 2


def test_a_table_that_is_there_is_left_alone(bank: Faulty) -> None:
    bank.store.create()
    bank.records.drop(bank.engine)
    bank.store.create()
    assert bank.store.read(["a"]) == [None]


# Deleting what has expired.

NOW_S = 1_900_000_000


@pytest.fixture
def deleting(bank: Faulty, monkeypatch: pytest.MonkeyPatch) -> Faulty:
    """Each run deletes, at a known time."""
    monkeypatch.setattr("idempotent_receiver.sql.store.RUNS_A_DELETION", 1)
    monkeypatch.setattr(SystemClock, "epoch_ms", lambda clock: NOW_S * 1000 + 999)
    monkeypatch.setattr(SystemClock, "monotonic_seconds", lambda clock: 0.0)
    for number in (NOW_S - 1, NOW_S, NOW_S + 1):
        bank.store.insert([Record(str(number), "COMPLETED", version="v", expiration=number)])
    return bank


def _left(bank: Faulty) -> list[int]:
    return [number for number in (NOW_S - 1, NOW_S, NOW_S + 1) if bank.record(str(number)) is not None]


def test_what_has_expired_to_the_second_is_deleted(deleting: Faulty) -> None:
    assert _completed(deleting.delivered())
    assert _left(deleting) == [NOW_S + 1]


def test_without_time_nothing_is_deleted(deleting: Faulty) -> None:
    deleting.told.before = lambda lent: _with(lent, may_start=lambda: False)
    assert _completed(deleting.delivered())
    assert _left(deleting) == [NOW_S - 1, NOW_S, NOW_S + 1]


@pytest.mark.parametrize("place", ["SELECT records", "DELETE FROM records"])
def test_a_deletion_that_fails_costs_nothing(deleting: Faulty, place: str) -> None:
    deleting.plant(place, full())
    assert _completed(deleting.delivered())
    assert _left(deleting) == [NOW_S - 1, NOW_S, NOW_S + 1]
    deleting.delivered()
    assert _left(deleting) == [NOW_S + 1]


def test_a_record_that_is_written_anew_meanwhile_is_not_deleted(deleting: Faulty) -> None:
    @event.listens_for(deleting.engine, "before_cursor_execute")
    def overtakes(at: object, cursor: object, statement: str, *rest: object) -> None:
        if statement.startswith("DELETE FROM records"):
            with sqlite3.connect(str(deleting.engine.url.database)) as other:
                other.execute(f"UPDATE {deleting.records.name} SET expiration = {NOW_S + 9} WHERE id = '{NOW_S}'")

    assert _completed(deleting.delivered())
    assert _left(deleting) == [NOW_S, NOW_S + 1]
