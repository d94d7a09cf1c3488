"""How a message or call ended, and what each of a store's answers means for it, for all entry points.

`transitions.py` decides the answer to a claim or a settlement, and `exchange.py` carries it out. This module turns each
answer into an outcome, or into a failure to record first. The entry point decides what to do about it, such as sending
a dead letter or raising an exception. A `deadline` argument supplies the time for judging a lost claim.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure, failure_of
from idempotent_receiver.protocol import answers, transitions
from idempotent_receiver.protocol.answers import (
    ClaimLost,
    HeldElsewhere,
    OtherPayload,
    Settled,
    SettleResult,
    Unreadable,
)
from idempotent_receiver.protocol.charges import Allowance, Charged, charged_of, on_failure, with_crash
from idempotent_receiver.protocol.record import Record, Status, error_of, permanent
from idempotent_receiver.protocol.store import ActionFailed, Unknown
from idempotent_receiver.protocol.transitions import Basis, Claim, Claimed
from idempotent_receiver.transaction.action import Action
from idempotent_receiver.transaction.outbox import calls_in, from_text

__all__ = [
    "SUCCEEDED", "ClaimFailed", "ClaimLost", "Completed", "DeadLettered", "Duplicate", "Ending", "Failed",
    "HeldElsewhere", "NotSent", "NotStarted", "Outcome", "SettleFailed", "Unreadable",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Completed:
    """The handler ran, and the record is COMPLETED."""

    record: Record


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The effect already took place in another delivery. If `lost`, the other worker took over this worker's claim."""

    record: Record
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler failed or could not start. `recorded` says that the record is FAILED. `error` is the exception, for
    an entry point that re-raises it.
    """

    failure: Failure
    recorded: bool = True
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The message failed for good, and its dead letter is confirmed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class SettleFailed:
    """The handler ran, but its outcome could not be recorded."""

    why: str


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """The store gave no definite answer to the claim; no handler ran."""

    why: str


@dataclass(frozen=True, slots=True)
class NotSent:
    """The effect took place, but its outbox is not done, or not marked so; a redelivery goes on with what is left.
    `out_of_time` says that only time was missing, `charged` that the message itself is the cause. `failure` is that of
    a call.
    """

    why: str
    out_of_time: bool = False
    failure: Failure | None = None
    charged: bool = False


@dataclass(frozen=True, slots=True)
class NotStarted:
    """No time was left to start the handler, or an earlier message in its group failed. `released` says that the
    message no longer has a claim.
    """

    released: bool = True


SUCCEEDED = Completed | Duplicate | DeadLettered
"""The outcomes that acknowledge a message: its record is COMPLETED, or its dead letter is confirmed."""

Outcome = (
    SUCCEEDED | HeldElsewhere | Failed | ClaimLost | SettleFailed | ClaimFailed | Unreadable | NotStarted | NotSent
)

OVERTAKEN = Failure(
    type="RecordChanged",
    text="this key has a record that had not been read when the handler ran. The next delivery reads it first: "
    "in a handwritten event, set ApproximateReceiveCount to 2",
    charged=False,
)
"""The failure of an unclaimed run whose completion was refused."""

OUTBOX_LEFT = Failure(
    type="MessagesNotSent",
    text="its effect took place, but not all that it sends could be sent: a redrive sends what is left",
    exhausted=True,
)
"""The failure of a message whose record has something left to send after all charged deliveries."""

Ending = Outcome | answers.AlreadyFailed | OtherPayload
"""The end of a call: a message's outcome, or an answer that only a call can have."""


def of_claim(answer: answers.Refusal | Unknown) -> Ending:
    """The ending of a refused claim."""
    match answer:
        case answers.AlreadyCompleted(record):
            return Duplicate(record)
        case Unknown(why):
            return ClaimFailed(why)
        case answers.Unsent():
            return answers.NOT_SENT_HERE
        case answers.Exhausted() | answers.ClaimableAlone():
            raise AssertionError(answer)  # only for a message's claim, which the batch answers
        case _:
            return answer


def of_completion(answer: SettleResult | Unknown, run: Basis, deadline: Deadline) -> Ending:
    """The ending of a run whose handler returned."""
    match answer:
        case Settled(record):
            return Completed(record)
        case ClaimLost():
            return of_loss(answer, run, deadline)
        case Unknown(why):
            return SettleFailed(why)


def of_mark(answer: SettleResult | Unknown, claim: Claim, deadline: Deadline, *, ran: bool) -> Outcome:
    """The outcome of a message whose record had messages to send, once SQS has confirmed them. `ran` says that the
    handler ran here. A mark by another worker counts as well.
    """
    match answer:
        case Settled(record):
            return Completed(record) if ran else Duplicate(record)
        case Unknown(why):
            return NotSent(f"its outbox is done, but that was not recorded: {why}")
        case ClaimLost(found):
            return _taken_over(found, claim, deadline)


def of_stop(answer: SettleResult | Unknown, claim: Claim, deadline: Deadline, not_sent: NotSent) -> Outcome:
    """The outcome of a message whose record still has messages to send, once it says which ones."""
    match answer:
        case Settled():
            return not_sent
        case Unknown(why):
            return NotSent(f"{not_sent.why}. What was done was not recorded, and is done again: {why}")
        case ClaimLost(found):
            return _taken_over(found, claim, deadline)


def _taken_over(found: Record | None, claim: Claim, deadline: Deadline) -> Outcome:
    """The outcome of a message whose record another worker has taken over to send its messages."""
    match transitions.decide(found, claim, (), deadline.now_ms):
        case answers.AlreadyCompleted(record):
            return Duplicate(record)
        case HeldElsewhere() as held:
            return held
        case _:
            return NotSent("its record has changed meanwhile")


def of_failure(
    answer: SettleResult | Unknown,
    failure: Failure,
    run: Basis,
    deadline: Deadline,
    error: BaseException | None = None,
) -> Ending:
    """The ending of a run whose handler failed."""
    if isinstance(answer, ClaimLost):
        return of_loss(answer, run, deadline, failure)
    return Failed(failure, recorded=isinstance(answer, Settled), error=error)


def of_release(answer: SettleResult | Unknown, held: Claimed, deadline: Deadline) -> Ending:
    """The ending of a claim whose handler never started."""
    if isinstance(answer, ClaimLost):
        return of_loss(answer, held, deadline)
    return NotStarted(released=isinstance(answer, Settled))


def of_loss(lost: ClaimLost, run: Basis, deadline: Deadline, failure: Failure | None = None) -> Ending:
    """The ending of a run whose record has changed. If the record holds an answer, that decides, as for a new claim.

    Otherwise, a claimed run ends with `lost`; an unclaimed run ends with its own `failure`, or as a new claim would.
    """
    answer = transitions.decide(lost.found, run.claim, (), deadline.now_ms)
    match answer:
        case answers.AlreadyCompleted(record):
            return Duplicate(record, lost=isinstance(run, Claimed))
        case answers.AlreadyFailed():
            return answer
        case _ if isinstance(run, Claimed):
            return lost
        case HeldElsewhere() | OtherPayload() | Unreadable() if failure is None:
            return answer
        case _:
            return Failed(OVERTAKEN if failure is None else failure, recorded=False)


def as_outcome(ending: Ending) -> Outcome:
    """The outcome of a message. A message's claim never treats failures as answers, and `mismatch` has already turned
    `OtherPayload` into a failure.
    """
    assert not isinstance(ending, (answers.AlreadyFailed, OtherPayload))  # a message's ending is neither
    return ending


def uncommitted(
    answer: ActionFailed | Unknown, actions: Sequence[Action], *, with_text: bool, own: bool = False
) -> tuple[Failure, BaseException | None]:
    """The failure of a run whose commit was refused or got no definite answer, and the exception to raise, if any.
    `own`: the commit's own actions are at fault.

    If the commit took effect after all, recording the failure is refused, because the record's version has changed.
    """
    match answer:
        case ActionFailed(index, stale):
            error = actions[index].error(index + 1, stale=stale)
            failure = failure_of(error, with_text=with_text)
            return replace(failure, charged=failure.charged and not stale), error
        case Unknown(why):
            return Failure(type="TransactionNotCommitted", text=why, charged=own), None


def mismatch(answer: OtherPayload) -> Failure:
    """The failure of a message whose key was used for a different payload."""
    text = f"the key was used for another payload: fingerprint {answer.expected} then, {answer.found} now"
    return Failure(type="FingerprintMismatch", text=text, permanent=True, started=False)


def charge(record: Record, failure: Failure, allowance: Allowance | None, now_ms: int) -> tuple[Failure, Charged]:
    """The failure of a run on this record with what it costs its message, and that cost."""
    final = failure.permanent or (allowance is not None and allowance.over(now_ms, failure))
    cost = on_failure(record, allowance, charged=failure.charged, final=final, cancelled=failure.cancelled)
    if allowance is not None and cost.attempts == charged_of(record).attempts:
        failure = replace(failure, charged=False)
    return with_cost(failure, cost, allowance), cost


def with_cost(failure: Failure, cost: Charged, allowance: Allowance | None) -> Failure:
    """The failure with what it costs its message. The last one has no delay: it is not retried."""
    if allowance is None:
        return failure
    last = cost.message is not None
    return replace(
        failure,
        count=cost.attempts,
        charged_attempt=allowance.used(cost.attempts - 1) + 1 if failure.charged else 0,
        exhausted=last and not failure.permanent,
        delay_seconds=None if last else failure.delay_seconds,
    )


def of_outbox(outbox: str | None) -> Failure:
    """The failure of a message whose record has this outbox left after all charged deliveries. It names the calls."""
    try:
        calls = calls_in(from_text(outbox))
    except Exception:  # noqa: BLE001  # anyone may have edited the record
        calls = {}
    if not calls:
        return OUTBOX_LEFT
    named = ", ".join(f"call {number} ({call.name})" for number, call in calls.items())
    text = f"its effect took place, but not all that it calls could be called: {named}. A redrive does what is left"
    return replace(OUTBOX_LEFT, type="CallsNotMade", text=text)


def of_exhausted(record: Record) -> Failure:
    """The failure of a message that is exhausted, or failed for good before: what its dead letter says."""
    count = charged_of(record).attempts
    if record.status == Status.SENDING:
        return replace(of_outbox(record.outbox), count=with_crash(record).attempts)
    error = error_of(record)
    texts = {name: value for name in ("type", "at", "text", "codes") if isinstance(value := error.get(name), str)}
    kept = {"type": "unknown", **texts, "permanent": permanent(record), "exhausted": not permanent(record)}
    return Failure(**kept, count=count)  # type: ignore[arg-type]  # the names imply the types
