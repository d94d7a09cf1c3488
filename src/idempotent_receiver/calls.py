"""Calls with a waiting caller: one key, one claim, one run, in the caller's own thread.

For HTTP endpoints and any other function. As for a batch, `transitions.py` decides what may happen, `exchange.py`
carries it out, and `outcome.py` interprets the answer; a single call needs no queues or jobs. Each entry point decides
what a call's ending means for the caller.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, cast

from idempotent_receiver import options
from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.attempt import (
    MOST_RUNS,
    Attempt,
    Handle,
    Handled,
    Raised,
    Returned,
    dropped,
    marked,
    run,
)
from idempotent_receiver.handler.outcome import Ending, NotStarted
from idempotent_receiver.handler.results import LARGEST_INLINE_BYTES, Results, kept, why_dropped
from idempotent_receiver.handler.return_type import ReturnType
from idempotent_receiver.payload import EVERYTHING, Payload
from idempotent_receiver.protocol import answers, transitions
from idempotent_receiver.protocol.answers import ClaimLost, HeldElsewhere, Settled, SettleResult
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask, commit
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Unread, record_id, usable
from idempotent_receiver.protocol.store import ActionFailed, RecordStore, TransactionalStore, Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed, Settlement
from idempotent_receiver.transaction.action import Action

CallKey = Callable[..., str]

NOT_FINAL = Failure(type="NotFinal")
"""The failure recorded for a call whose result must not be stored. The caller still gets the result."""

_FIRST_WAIT_SECONDS = 0.05
_LONGEST_WAIT_SECONDS = 0.5

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class CallOptions:
    """The options that `http_endpoint` and `idempotent` have in common, for all calls of one function.

    A call's lease lasts until its deadline plus `lease_margin_seconds`; nothing starts with less than
    `stop_margin_seconds` left.
    """

    store: RecordStore
    _: KW_ONLY
    key: CallKey
    payload: Payload | None = EVERYTHING
    results: Results | None = None
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    lease_margin_seconds: float = 3.0
    stop_margin_seconds: float = 1.0
    error_texts: bool = False
    clock: Clock | None = None

    def check(self, way_in: str) -> None:
        """Raise TypeError or ValueError for an option that cannot work."""
        options.require_store(self.store, way_in)
        options.require_call_key(self.key, way_in)
        options.require_namespace(self.store)
        options.require_kind(self.payload, "payload", "a Payload(fields=..., without=...)", "fingerprint")
        options.require_kind(self.results, "results", "an S3Results(bucket, client)", "put", "get")
        options.require_count(self.retention_seconds, "retention_seconds")
        options.require_flags(error_texts=self.error_texts)
        options.require_numbers(
            lease_margin_seconds=self.lease_margin_seconds, stop_margin_seconds=self.stop_margin_seconds
        )

    @property
    def failures_are_answers(self) -> bool:
        """Whether a FAILED record is the answer, not a reason to retry."""
        return False

    def usable(self, key: object) -> str:
        """The key, if DynamoDB can store its record's id. Raises UnusableKey otherwise."""
        return usable(key, partial(record_id, self.store.namespace))

    def begin(
        self, key: str, fingerprint: str | None, context: Any, *, return_type: ReturnType | None = None
    ) -> "KeyedCall":
        """A call under a usable key, in the invocation with this Lambda context."""
        owner = str(getattr(context, "aws_request_id", "unknown"))
        deadline = Deadline.after(self.clock, context.get_remaining_time_in_millis())
        return KeyedCall(self, key, fingerprint, deadline, owner, return_type=return_type)


class KeyedCall:
    """One call under a valid `key`, within the deadline of the invocation `owner`. `return_type` is how a replay reads
    the result; None if it is replayed as it is stored.

    `run` performs all steps. Async code performs them one by one, so that steps that wait for the store can run on
    another thread.
    """

    def __init__(
        self,
        calls: CallOptions,
        key: str,
        fingerprint: str | None,
        deadline: Deadline,
        owner: str,
        *,
        return_type: ReturnType | None = None,
    ) -> None:
        self.key = key
        self.deadline = deadline
        self._calls = calls
        self._return_type = return_type
        self._claim = Claim(
            id=record_id(calls.store.namespace, key),
            fingerprint=fingerprint,
            owner=owner,
            lease_until_ms=deadline.ends_ms + int(calls.lease_margin_seconds * 1000),
            retention_seconds=calls.retention_seconds,
            failures_are_answers=calls.failures_are_answers,
        )
        self._claimed: Claimed | None = None
        self._runs = 0

    def run(
        self,
        handle: Handle,
        *,
        wait_seconds: float = 0,
        is_final: Callable[[Any], bool] = lambda result: True,
    ) -> tuple[Ending, Any]:
        """Claim, run and settle. Returns how the call ended, and the function's result if it returned. A result that is
        not `is_final` is not stored, and the key may be retried.
        """
        begun, result = self.claim(wait_seconds), None
        while isinstance(begun, Attempt):
            handled = run(handle, begun, with_text=self._calls.error_texts)
            result = handled.result if isinstance(handled, Returned) else None
            begun = self.settle(handled, keep=isinstance(handled, Raised) or is_final(result))
        return begun, result

    def claim(self, wait_seconds: float = 0) -> Attempt | Ending:
        """Claim the key. Returns the attempt to run now, or how the call has already ended. One request suffices,
        except for a take-over. While the key is claimed elsewhere, this checks again for up to `wait_seconds`.
        """
        if self.too_late():
            return NotStarted()
        deadline = self.deadline
        answer: Claimed | answers.Refusal | Unknown = ask(self._claim, None, self._calls.store, deadline)
        until = deadline.elapsed_seconds + wait_seconds
        longest = _FIRST_WAIT_SECONDS
        while isinstance(answer, HeldElsewhere) and self._waited(longest, until):
            longest = min(2 * longest, _LONGEST_WAIT_SECONDS)
            answer = ask(self._claim, Unread(), self._calls.store, deadline)
        if not isinstance(answer, Claimed):
            return outcome.of_claim(answer)
        if self.too_late():
            self._settle(transitions.release(answer, deadline.now_ms))
            return NotStarted()
        self._claimed = answer
        return self._run()

    def release(self) -> None:
        """Release the key if it is claimed. If nothing has run, the attempt does not count."""
        if self._claimed is not None:
            self._settle(transitions.release(self._claimed, self.deadline.now_ms, started=self._runs > 1))

    def settle(self, handled: Handled, *, keep: bool = True) -> Ending | Attempt:
        """Record how the attempt ended. Returns how the call ended, or the attempt to run next if data that the
        function read has changed. If `keep` is false, neither the result nor the transaction is written, and the key
        may be retried.
        """
        claimed = cast(Claimed, self._claimed)
        ended = self._ended(claimed, handled, keep=keep)
        if not isinstance(ended, Attempt):
            self._claimed = None
        return ended

    def _ended(self, claimed: Claimed, handled: Handled, *, keep: bool) -> Ending | Attempt:
        match handled:
            case Returned() if keep:
                return self._complete(claimed, handled)
            case Returned():
                return self._allow_retry(claimed, NOT_FINAL)
            case Raised(failure, error, unread=True):
                return self._allow_retry(claimed, failure, error)
            case Raised(failure, error, checks):
                is_answer = failure.permanent or self._calls.failures_are_answers
                return self._fail(claimed, failure, error, checks if is_answer else ())

    def too_late(self) -> bool:
        """Whether too little time is left to start anything, by whichever clock leaves less."""
        return self.deadline.moment().left_to_start_seconds <= self._calls.stop_margin_seconds

    def _waited(self, longest: float, until: float) -> bool:
        """Wait a little, with jitter; False if no time is left."""
        deadline = self.deadline
        left = min(until, deadline.budget_seconds - self._calls.stop_margin_seconds) - deadline.elapsed_seconds
        if left <= 0 or self.too_late():
            return False
        deadline.clock.sleep(min(left, longest * (1 + deadline.clock.fraction()) / 2))
        return True

    def _run(self) -> Attempt:
        claimed = cast(Claimed, self._claimed)
        self._runs += 1
        attempt, owner = claimed.record.attempts or 1, self._claim.owner
        return Attempt(self._claim.id, self.key, attempt, self.deadline, owner, self._calls.store)

    def _complete(self, claimed: Claimed, returned: Returned) -> Ending | Attempt:
        calls, actions = self._calls, returned.actions
        data = self._kept(claimed, returned)
        settlement = transitions.complete(claimed, data)
        if not actions:
            return outcome.of_completion(self._settle(settlement), claimed, self.deadline)
        answer = commit(settlement, actions, cast(TransactionalStore, calls.store), self.deadline)
        if isinstance(answer, Settled | ClaimLost):
            return outcome.of_completion(answer, claimed, self.deadline)
        return self._uncommitted(claimed, answer, actions)

    def _kept(self, claimed: Claimed, returned: Returned) -> str | None:
        """The record's `data` for a result: none of it if a replay would return another value. If the result is not
        kept, the log says why: its caller is the only one to get it.
        """
        data, type_ = returned.data, self._return_type
        if data is not None and type_ is not None and marked(data) is None:
            difference = type_.difference(returned.result, data)
            data = data if difference is None else dropped(difference)
        data = kept(claimed, data, LARGEST_INLINE_BYTES, self._calls.results)
        if (why := why_dropped(data)) is not None:
            text = "%s: the result was not kept, so a later call gets only an error: %s"
            logger.error(text, self.key, why, extra={"key": self.key, "why": why})
        return data

    def _uncommitted(
        self, claimed: Claimed, answer: ActionFailed | Unknown, actions: Sequence[Action]
    ) -> Ending | Attempt:
        """The next run if data that was read has changed; otherwise how a failed commit ends the call."""
        stale = isinstance(answer, ActionFailed) and answer.stale
        if stale and self._runs < MOST_RUNS and not self.too_late():
            return self._run()
        failure, error = outcome.uncommitted(answer, actions, with_text=self._calls.error_texts)
        if isinstance(answer, ActionFailed) and not stale:
            return self._fail(claimed, failure, error)
        return self._allow_retry(claimed, failure)

    def _allow_retry(self, claimed: Claimed, failure: Failure, error: BaseException | None = None) -> Ending | Attempt:
        """Allow a retry: by a FAILED record or, if FAILED would be the answer, by ending the lease."""
        if not self._calls.failures_are_answers:
            return self._fail(claimed, failure, error)
        release = transitions.release(claimed, self.deadline.now_ms, started=True)
        return outcome.of_failure(self._settle(release), failure, claimed, self.deadline)

    def _fail(
        self, claimed: Claimed, failure: Failure, error: BaseException | None = None, checks: Sequence[Action] = ()
    ) -> Ending | Attempt:
        settlement = transitions.fail(claimed, failure.to_json(), started=failure.started)
        if not checks:
            return outcome.of_failure(self._settle(settlement), failure, claimed, self.deadline, error)
        answer = commit(settlement, checks, cast(TransactionalStore, self._calls.store), self.deadline)
        if isinstance(answer, Settled | ClaimLost):
            return outcome.of_failure(answer, failure, claimed, self.deadline, error)
        return self._uncommitted(claimed, answer, checks)

    def _settle(self, settlement: Settlement) -> SettleResult | Unknown:
        return ask(settlement, settlement.standing, self._calls.store, self.deadline, max_retries=SETTLE_RETRIES)
