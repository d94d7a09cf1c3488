"""One message's transaction, from its placeholder to its record.

1. Lock the key without waiting, and insert a placeholder, which counts as FAILED.
2. If a record is there instead, read it and decide, as for a claim; the placeholder replaces one that may be run again.
3. Call the handler, and flush its session.
4. Write its record over the placeholder, and commit. Without the placeholder nothing commits: the transaction is not
   the one that began.
5. If it raised, roll back; then record the failure in a transaction that locks the key first. If another worker has
   locked it, that worker's run decides, and nothing is recorded.

What other transactions caused is not the message's failure: it runs again at once, a few times.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from sqlalchemy import Engine, Table
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.orm import sessionmaker

from idempotent_receiver.handler.attempt import Raised, Returned
from idempotent_receiver.handler.lending import LentRun, NotRun, Ran
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.answers import Claimable, HeldElsewhere, Settled, SettleResult
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Claimed, Unclaimed
from idempotent_receiver.sql.errors import after_read, broke, contended, lost, told
from idempotent_receiver.sql.lent import Lent, LentConnection, inside
from idempotent_receiver.sql.statements import Opened, Opening, Statements, found, replaced

MOST_TRIES = 5
"""How often a message's transaction begins because other transactions, or a stale connection, were in the way."""

_FIRST_PAUSE_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class _Again:
    """The transaction was rolled back for no fault of the message, which ends with `ended` if it does not run again."""

    ended: Ran | NotRun


@dataclass(frozen=True, slots=True)
class _Begun:
    """An open transaction: the basis of its run, the placeholder in it, and its number."""

    basis: Unclaimed
    placeholder: Record
    number: int | None


@dataclass(frozen=True, slots=True)
class Course:
    """How the messages of a store run."""

    engine: Engine
    table: Table
    statements: Statements
    sessions: "sessionmaker[Any] | None"

    def run(self, lent: LentRun) -> Ran | NotRun:
        """Run one message. Raises nothing that a database or a handler raises."""
        for tries in range(1, MOST_TRIES + 1):
            tried = self._tried(lent)
            if not isinstance(tried, _Again):
                return tried
            if tries == MOST_TRIES or not lent.may_start():
                return tried.ended
            longest = _FIRST_PAUSE_SECONDS * 2.0**tries
            lent.deadline.clock.sleep(longest * lent.deadline.clock.fraction())
        raise AssertionError  # the last try returns

    def _tried(self, lent: LentRun) -> Ran | NotRun | _Again:
        try:
            at = LentConnection(self.engine)
        except SQLAlchemyError as error:
            return NotRun(after_read(error))
        with at.ending():
            begun = self._begin(at, lent)
            if not isinstance(begun, _Begun):
                return begun
            handled = self._handled(at, lent, begun)
        if isinstance(handled, Ran):
            return handled
        if contended(handled.error):
            return _Again(Ran(handled, Unknown("other transactions were in the way")))
        return Ran(handled, self._failed(lent, begun, handled))

    def _begin(self, at: LentConnection, lent: LentRun) -> _Begun | NotRun | _Again:
        try:
            return self._opened(at, lent)
        except SQLAlchemyError as error:
            if contended(error):
                return _Again(NotRun(HeldElsewhere(0)))
            failed = NotRun(after_read(error))
            return _Again(failed) if lost(error) else failed

    def _opened(self, at: LentConnection, lent: LentRun) -> _Begun | NotRun | _Again:
        claim, now_ms, seen = lent.claim, lent.deadline.now_ms, None
        first, second = lent.deadline.clock.versions(2)
        basis = claim.unclaimed(None, now_ms, first)
        placeholder = transitions.placeholder(basis, second)
        opened = self._open(at, lent, placeholder)
        if opened.opening is Opening.HELD:
            return NotRun(HeldElsewhere(0))
        if opened.opening is Opening.FOUND:
            seen = found(at, self.table, claim.id)
            answer = transitions.decide(seen, claim, (), now_ms)
            if not isinstance(answer, Claimable):
                assert not isinstance(answer, Claimed)  # nothing was claimed
                return NotRun(answer)
            basis = claim.unclaimed(seen, now_ms, first)
            placeholder = transitions.placeholder(basis, second)
            if seen is None or not replaced(at, self.table, Change(placeholder, seen)):
                return _Again(NotRun(HeldElsewhere(0)))  # an expired record was deleted in between
        return _Begun(basis, placeholder, opened.number)

    def _open(self, at: LentConnection, lent: LentRun, placeholder: Record) -> Opened:
        idle_ms = lent.claim.lease_at(lent.deadline.now_ms) - lent.deadline.now_ms
        return self.statements.open(at, placeholder, idle_ms)

    def _handled(self, at: LentConnection, lent: LentRun, begun: _Begun) -> Ran | Raised:
        """Run the handler and commit; or what it raised, or what the database said to its commit."""
        what = Lent(at, self.sessions)
        try:
            handled = lent.run(begun.basis, partial(inside, what))
        finally:
            what.end()
        if at.invalidated or (isinstance(handled, Raised) and broke(at, handled.error)):
            return Ran(handled, Unknown("the connection to the database was lost while the handler ran"))
        if isinstance(handled, Raised):
            return handled
        try:
            return Ran(handled, self._completed(at, lent, begun, handled))
        except SQLAlchemyError as error:
            if not isinstance(error, DBAPIError) or error.connection_invalidated:
                return Ran(handled, Unknown(told(error)))
            return lent.failed(error)
        except RuntimeError as error:  # the handler has ended its transaction
            return lent.failed(error)

    def _completed(self, at: LentConnection, lent: LentRun, begun: _Begun, returned: Returned) -> Settled:
        settlement = lent.complete(replace(begun.basis, over=begun.placeholder), returned)
        change = settlement.change(lent.deadline.now_ms, str(begun.basis.record.version))
        self.statements.end(at, change, begun.number)
        return Settled(change.new)

    def _failed(self, lent: LentRun, begun: _Begun, raised: Raised) -> SettleResult | Unknown:
        """Record a failure, unless another worker has locked the key: then its run decides."""
        try:
            at = LentConnection(self.engine)
            with at.ending():
                return self._recorded(at, lent, begun, raised)
        except SQLAlchemyError as error:
            return Unknown(told(error))

    def _recorded(self, at: LentConnection, lent: LentRun, begun: _Begun, raised: Raised) -> SettleResult | Unknown:
        new, other = lent.deadline.clock.versions(2)
        placeholder = begun.placeholder._replace(version=other)
        opened = self._open(at, lent, placeholder)
        if opened.opening is Opening.HELD:
            return Unknown("another worker runs this key, and decides")
        fresh = opened.opening is Opening.FRESH
        seen = None if fresh else found(at, self.table, lent.claim.id)
        # If the handler committed early, the placeholder of its run is there.
        settlement = lent.fail(begun.basis, raised)._replace(renewed=(str(begun.placeholder.version),))
        change = settlement.step(seen, (), lent.deadline.now_ms, new)
        if not isinstance(change, Change):
            return change
        self.statements.end(at, change._replace(seen=placeholder) if fresh else change, opened.number)
        return Settled(change.new)
