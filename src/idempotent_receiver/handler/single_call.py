"""One call under one key: claim, run, settle, in the caller's own thread.

For ways in that are called and must answer: HTTP, and any function. What may be done is decided by `transitions.py`,
brought about by `exchange.py`, and means what `endings.py` says, as for a batch; a batch's queues and jobs are not
needed for one. The steps are apart, so that a coroutine can take the two that wait for the store to another thread.
"""

from dataclasses import dataclass
from typing import cast

from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler import endings
from idempotent_receiver.handler.attempt import Attempt, Handled, Raised, Returned
from idempotent_receiver.handler.endings import Ending
from idempotent_receiver.handler.outcome import NotStarted
from idempotent_receiver.handler.results import Results, kept
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, SettleAnswer, Unavailable, Unread, ask, commit
from idempotent_receiver.protocol.record import record_id
from idempotent_receiver.protocol.store import ActionFailed, RecordStore, TransactionalStore
from idempotent_receiver.protocol.transitions import Claim, Claimed, HeldElsewhere, Refusal, Settlement

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSettings:
    """How calls are taken, the same for all calls of one function.

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
    """One call, on its way from its key to its end."""

    def __init__(self, settings: CallSettings, key: str, fingerprint: str | None, context: CallContext) -> None:
        self._settings = settings
        self._context = context
        self._deadline = context.deadline
        self._claim = Claim(
            id=record_id(settings.store.namespace, key),
            fingerprint=fingerprint,
            owner=context.owner,
            lease_until_ms=context.deadline.ends_ms + int(context.lease_margin_seconds * 1000),
            retention_seconds=settings.retention_seconds,
            failures_are_answers=settings.failures_are_answers,
        )
        self._key = key
        self._claimed: Claimed | None = None

    def claim(self, wait_seconds: float = 0.0) -> Attempt | Ending:
        """The attempt to run now, or how the call has ended already: one request, whatever it meets, unless it takes
        over. While somebody else is in progress, look again for up to `wait_seconds`.
        """
        if self.too_late:
            return NotStarted()
        answer = self._ask(None)
        until = self._deadline.elapsed_seconds + wait_seconds
        longest = _FIRST_WAIT_SECONDS
        while isinstance(answer, HeldElsewhere) and self._waited(longest, until):
            longest = min(2 * longest, _LONGEST_WAIT_SECONDS)
            answer = self._ask(Unread())
        return self._attempt(answer) if isinstance(answer, Claimed) else endings.of_claim(answer)

    def release(self) -> None:
        """Give the key back, where it is held: nothing has run, and the attempt does not count."""
        if self._claimed is not None:
            self._settle(transitions.release(self._claimed, self._deadline.now_ms))

    def settle(self, handled: Handled, *, keep: bool = True) -> Ending:
        """Record how the attempt ended, and say how the call has. What it returned is kept as the key's result, unless
        it is not to be the last word: then the key may be tried again, and nothing of its transaction is written.
        """
        match handled:
            case Returned() if keep:
                return self._complete(cast(Claimed, self._claimed), handled)
            case Returned():
                return self._allow_retry(Failure(type="NotFinal"))
            case Raised(failure, error):
                return self._fail(failure, error)

    @property
    def too_late(self) -> bool:
        """Whether nothing may begin any more, by whichever clock says that it is later."""
        return self._deadline.left_to_start_seconds <= self._context.stop_margin_seconds

    @property
    def now_ms(self) -> int:
        """Now, in epoch milliseconds."""
        return self._deadline.now_ms

    def _ask(self, assumed: Unread | None) -> Claimed | Refusal | Unavailable:
        return ask(self._claim, assumed, self._settings.store, self._deadline)

    def _attempt(self, claimed: Claimed) -> Attempt | Ending:
        self._claimed = claimed
        if self.too_late:
            self.release()
            return NotStarted()
        return Attempt(self._claim.id, self._key, claimed.record.attempts or 1, self._deadline, self._claim.owner)

    def _waited(self, longest: float, until: float) -> bool:
        """Wait a little, with jitter; False where there is no time for that."""
        ends = min(until, self._deadline.budget_seconds - self._context.stop_margin_seconds)
        left = ends - self._deadline.elapsed_seconds
        if left <= 0 or self.too_late:
            return False
        self._settings.clock.sleep(min(left, longest * (1 + self._settings.clock.fraction()) / 2))
        return True

    def _complete(self, claimed: Claimed, returned: Returned) -> Ending:
        settings, actions = self._settings, returned.actions
        data = kept(claimed, returned.data, settings.largest_record_bytes, settings.results)
        settlement = transitions.complete(claimed, data)
        if not actions:
            return endings.of_completion(self._settle(settlement), self._claim, self._deadline)
        answer = commit(settlement, actions, cast(TransactionalStore, settings.store), self._deadline)
        refused = endings.uncommitted(answer, actions, with_text=settings.error_texts)
        if refused is None:
            return endings.of_completion(cast(SettleAnswer, answer), self._claim, self._deadline)
        failure, error = refused
        return self._fail(failure, error) if isinstance(answer, ActionFailed) else self._allow_retry(failure)

    def _allow_retry(self, failure: Failure) -> Ending:
        """It may be tried again: FAILED says so, but where that is an answer, a lease that is over has to."""
        if not self._settings.failures_are_answers:
            return self._fail(failure)
        release = transitions.release(cast(Claimed, self._claimed), self._deadline.now_ms, started=True)
        return endings.of_failure(self._settle(release), failure, self._claim, self._deadline)

    def _fail(self, failure: Failure, error: BaseException | None = None) -> Ending:
        settlement = transitions.fail(cast(Claimed, self._claimed), failure.to_json(), started=failure.started)
        return endings.of_failure(self._settle(settlement), failure, self._claim, self._deadline, error)

    def _settle(self, settlement: Settlement) -> SettleAnswer:
        return ask(settlement, settlement.held, self._settings.store, self._deadline, max_retries=SETTLE_RETRIES)
