"""How one piece of work ended, and what each of a store's answers means for that: said once, for all ways in.

`transitions.py` decides what a claim or a settlement is answered, and `exchange.py` brings it about. Here each of these
answers becomes an outcome, or the failure that is to be recorded first. What is done about an ending, such as a dead
letter or an exception, is the way in's. `deadline` is there to tell the time, which a lost claim is judged by.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure, failure_of
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import SettleAnswer
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import ActionFailed, Unknown
from idempotent_receiver.protocol.transaction import Action
from idempotent_receiver.protocol.transitions import (
    Basis,
    Claimed,
    ClaimLost,
    HeldElsewhere,
    OtherPayload,
    Settled,
    Unreadable,
)

__all__ = [
    "SUCCEEDED", "ClaimFailed", "ClaimLost", "Completed", "DeadLettered", "Duplicate", "Ending", "Failed",
    "HeldElsewhere", "NotStarted", "Outcome", "SettleFailed", "Unreadable",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Completed:
    """Our handler ran, and the record says so."""

    record: Record


@dataclass(frozen=True, slots=True)
class Duplicate:
    """The effect had been done by another delivery; by whoever took our claim over, where it was `lost`."""

    record: Record
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Our handler failed, or never could start. Where `recorded`, the record says FAILED. `error` is what it raised,
    for a way in that raises it again.
    """

    failure: Failure
    recorded: bool = True
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """It failed for good, and its dead letter is confirmed."""

    failure: Failure


@dataclass(frozen=True, slots=True)
class SettleFailed:
    """The handler ran, and its end could not be recorded."""

    why: str


@dataclass(frozen=True, slots=True)
class ClaimFailed:
    """The store could not be asked; no handler ran."""

    why: str


@dataclass(frozen=True, slots=True)
class NotStarted:
    """There was no time left to start the handler, or an earlier message of its group failed. `released` says that it
    holds no claim any more.
    """

    released: bool = True


SUCCEEDED = Completed | Duplicate | DeadLettered
"""The outcomes after which a message may be acknowledged: its record is COMPLETED, or its dead letter is confirmed."""

Outcome = SUCCEEDED | HeldElsewhere | Failed | ClaimLost | SettleFailed | ClaimFailed | Unreadable | NotStarted

OVERTAKEN = Failure(
    type="RecordChanged",
    text="under this key is a record that the handler's run had not read. The next delivery reads it first: "
    "in an event of your own, let ApproximateReceiveCount be 2",
)
"""The failure of a run without a claim whose completion was refused."""

Ending = Outcome | transitions.AlreadyFailed | OtherPayload
"""How a call ended: as a message may, or by an answer for which a queue has another use."""


def of_claim(answer: transitions.Refusal | Unknown) -> Ending:
    """Ending of a refused claim."""
    match answer:
        case transitions.AlreadyCompleted(record):
            return Duplicate(record)
        case Unknown(why):
            return ClaimFailed(why)
        case _:
            return answer


def of_completion(answer: SettleAnswer, run: Basis, deadline: Deadline) -> Ending:
    """Ending of a run whose handler returned."""
    match answer:
        case Settled(record):
            return Completed(record)
        case ClaimLost():
            return of_loss(answer, run, deadline)
        case Unknown(why):
            return SettleFailed(why)


def of_failure(
    answer: SettleAnswer,
    failure: Failure,
    run: Basis,
    deadline: Deadline,
    error: BaseException | None = None,
) -> Ending:
    """Ending of a run whose handler failed."""
    if isinstance(answer, ClaimLost):
        return of_loss(answer, run, deadline, failure)
    return Failed(failure, recorded=isinstance(answer, Settled), error=error)


def of_release(answer: SettleAnswer, held: Claimed, deadline: Deadline) -> Ending:
    """Ending of a claim whose handler never started."""
    if isinstance(answer, ClaimLost):
        return of_loss(answer, held, deadline)
    return NotStarted(released=isinstance(answer, Settled))


def of_loss(lost: ClaimLost, run: Basis, deadline: Deadline, failure: Failure | None = None) -> Ending:
    """Ending of a run whose claim was lost: by what the winner has made of the key, decided as for a new claim. A run
    without a claim had none to lose: its own `failure` stands, or else the answer that a claim would get.
    """
    answer = transitions.decide(lost.found, run.claim, (), deadline.now_ms)
    match answer:
        case transitions.AlreadyCompleted(record):
            return Duplicate(record, lost=isinstance(run, Claimed))
        case transitions.AlreadyFailed():
            return answer
        case _ if isinstance(run, Claimed):
            return lost
        case HeldElsewhere() | OtherPayload() | Unreadable() if failure is None:
            return answer
        case _:
            return Failed(OVERTAKEN if failure is None else failure, recorded=False)


def as_outcome(ending: Ending) -> Outcome:
    """The ending of a message. Its claim does not take failures for answers, and another payload was made a failure
    before (`mismatch`).
    """
    assert not isinstance(ending, (transitions.AlreadyFailed, OtherPayload))  # a message has neither
    return ending


def uncommitted(
    answer: ActionFailed | Unknown, actions: Sequence[Action], *, with_text: bool
) -> tuple[Failure, BaseException | None]:
    """The failure of a run whose commit was refused or not answered, and the error that stands for it. Where it was
    committed after all, the version is gone, so recording the failure is refused: nothing is undone.
    """
    match answer:
        case ActionFailed(index):
            error = actions[index].error(index + 1)
            return failure_of(error, with_text=with_text), error
        case Unknown(why):
            return Failure(type="TransactionNotCommitted", text=why), None


def mismatch(answer: OtherPayload) -> Failure:
    """The failure of a message whose key was used for another payload."""
    text = f"the key was used for another payload: fingerprint {answer.expected} then, {answer.found} now"
    return Failure(type="FingerprintMismatch", text=text, permanent=True, started=False)
