"""One call under one key: claim, run, settle, in the caller's own thread.

For ways in that are called and must answer: HTTP, and any function. What may be done is decided by `record.py`, and
brought about by `protocol.py`, as for a batch; a batch's queues and jobs are not needed for one. The steps are apart,
so that a coroutine can take the two that wait for the store to another thread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.errors import Failure, failure_of
from idempotent_receiver.handler.attempt import Attempt, Handled, Raised, Returned
from idempotent_receiver.handler.outcome import (
    ClaimFailed,
    ClaimLost,
    Completed,
    Duplicate,
    Failed,
    HeldElsewhere,
    NotStarted,
    Outcome,
    SettleFailed,
    Unreadable,
)
from idempotent_receiver.handler.results import Results, kept
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import CLAIM_PATIENCE, SETTLE_PATIENCE, Unavailable, Unread, commit, drive
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import ActionFailed, RecordStore, TransactionalStore, record_id
from idempotent_receiver.protocol.transaction import Action
from idempotent_receiver.protocol.transitions import Claim, Claimed, Settled, Settlement

Ended = Outcome | transitions.AlreadyFailed | transitions.OtherPayload
"""How a call ended: as a batch's work may, or by an answer that a queue has another use for."""

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """On what terms calls are taken, the same for all calls of one function.

    `failures_are_answers` makes a FAILED record the answer rather than something to try again.
    """

    store: RecordStore
    clock: Clock
    retention_seconds: int
    largest_record_bytes: int
    results: Results | None = None
    failures_are_answers: bool = False
    error_texts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """Within what time a call must be over, and for whom it is made.

    The lease lasts until the deadline and `lease_margin_seconds`; nothing is begun with less time left than
    `stop_margin_seconds`. `owner` is the invocation.
    """

    deadline: Deadline
    lease_margin_seconds: float
    stop_margin_seconds: float
    owner: str


class Call:
    """One call, on its way from its key to its outcome."""

    def __init__(self, terms: CallSettings, key: str, fingerprint: str | None, limits: CallContext) -> None:
        self._terms = terms
        self._limits = limits
        self._deadline = limits.deadline
        self._claim = Claim(
            id=record_id(terms.store, key),
            fingerprint=fingerprint,
            owner=limits.owner,
            lease_until_ms=limits.deadline.ends_ms + int(limits.lease_margin_seconds * 1000),
            retention_seconds=terms.retention_seconds,
            failures_are_answers=terms.failures_are_answers,
        )
        self._key = key
        self._held: Claimed | None = None

    def claim(self, wait_seconds: float = 0.0) -> Attempt | Ended:
        """The attempt to run now, or how the call has ended already: one request, whatever it meets, unless it takes
        over. While somebody else is in progress, look again for up to `wait_seconds`.
        """
        if self.too_late:
            return NotStarted()
        answer = self._asked(None)
        until = self._deadline.elapsed_seconds + wait_seconds
        longest = _FIRST_WAIT_SECONDS
        while isinstance(answer, HeldElsewhere) and self._waited(longest, until):
            longest = min(2 * longest, _LONGEST_WAIT_SECONDS)
            answer = self._asked(Unread())
        return self._claimed(answer)

    def give_back(self) -> None:
        """Release what is held, where anything is: nothing has run, and the attempt does not count."""
        if self._held is not None:
            self._settled(transitions.release(self._held, self._deadline.now_ms))

    def settle(self, handled: Handled, *, keep: bool = True) -> Ended:
        """Record how the attempt ended, and say how the call has. What it returned is kept as the key's result, unless
        it is not to be the last word: then the key may be tried again, and nothing of its transaction is written.
        """
        held = cast(Claimed, self._held)
        match handled:
            case Returned(data, actions) if keep:
                return self._complete(held, data, actions)
            case Returned():
                return self._again(held, Failure(type="NotFinal"))
            case Raised(failure, error):
                return self._fail(held, failure, error)

    @property
    def too_late(self) -> bool:
        """Whether nothing may begin any more, by whichever clock says that it is later."""
        return self._deadline.left_to_start_seconds <= self._limits.stop_margin_seconds

    @property
    def now_ms(self) -> int:
        """Now, in epoch milliseconds."""
        return self._deadline.now_ms

    # Claiming.

    def _asked(self, assumed: Unread | None) -> Claimed | transitions.Refusal | Unavailable:
        wish: Any = (self._claim, assumed)
        (answer,) = drive([wish], self._terms.store, self._deadline, patience=CLAIM_PATIENCE)
        return cast("Claimed | transitions.Refusal | Unavailable", answer)

    def _claimed(self, answer: Claimed | transitions.Refusal | Unavailable) -> Attempt | Ended:
        match answer:
            case Claimed():
                if self.too_late:
                    self._settled(transitions.release(answer, self._deadline.now_ms))
                    return NotStarted()
                self._held = answer
                return Attempt(
                    self._claim.id, self._key, answer.record.attempts or 1, self._deadline, self._claim.owner
                )
            case transitions.AlreadyCompleted(found):
                return Duplicate(found)
            case transitions.AlreadyFailed() | transitions.OtherPayload() | HeldElsewhere() | Unreadable():
                return answer
            case Unavailable(why):
                return ClaimFailed(why)

    def _waited(self, longest: float, until: float) -> bool:
        """Wait a little, with jitter; False where there is no time for that."""
        ends = min(until, self._deadline.budget_seconds - self._limits.stop_margin_seconds)
        left = ends - self._deadline.elapsed_seconds
        if left <= 0 or self.too_late:
            return False
        self._terms.clock.sleep(min(left, longest * (1 + self._terms.clock.fraction()) / 2))
        return True

    # Settling.

    def _complete(self, held: Claimed, data: str | None, actions: Sequence[Action]) -> Ended:
        terms = self._terms
        settlement = transitions.complete(held, kept(held, data, terms.largest_record_bytes, terms.results))
        answer: Settled | ClaimLost | ActionFailed | Unavailable
        if actions:
            answer = commit(settlement, actions, cast(TransactionalStore, terms.store), self._deadline)
        else:
            answer = self._settled(settlement)
        match answer:
            case Settled(settled):
                return Completed(settled)
            case ActionFailed(index):
                error = actions[index].error
                return self._fail(held, failure_of(error, with_text=terms.error_texts), error)
            case ClaimLost(found):
                return self._lost(found)
            case Unavailable(why) if actions:
                # If it was committed after all, the version is gone and this is refused: nothing is undone.
                return self._again(held, Failure(type="TransactionNotCommitted", text=why))
            case Unavailable(why):
                return SettleFailed(why)

    def _again(self, held: Claimed, failure: Failure) -> Ended:
        """It may be tried again: FAILED says so, but where that is an answer, a lease that is over has to."""
        if not self._terms.failures_are_answers:
            return self._fail(held, failure)
        return self._failed(transitions.release(held, self._deadline.now_ms, started=True), failure)

    def _fail(self, held: Claimed, failure: Failure, error: BaseException | None = None) -> Ended:
        return self._failed(transitions.fail(held, failure.to_json(), started=failure.started), failure, error)

    def _failed(self, settlement: Settlement, failure: Failure, error: BaseException | None = None) -> Ended:
        answer = self._settled(settlement)
        match answer:
            case ClaimLost(found):
                return self._lost(found)
            case _:
                return Failed(failure, recorded=isinstance(answer, Settled), error=error)

    def _settled(self, settlement: Settlement) -> Settled | ClaimLost | Unavailable:
        wish: Any = (settlement, settlement.held)
        (answer,) = drive([wish], self._terms.store, self._deadline, patience=SETTLE_PATIENCE)
        return cast("Settled | ClaimLost | Unavailable", answer)

    def _lost(self, found: Record | None) -> Ended:
        """What the winner has made of it: what a claim would now be told."""
        match transitions.decide(found, self._claim, (), self._deadline.now_ms):
            case transitions.AlreadyCompleted(completed):
                return Duplicate(completed, lost=True)
            case transitions.AlreadyFailed() as failed:
                return failed
            case _:
                return ClaimLost(found)
