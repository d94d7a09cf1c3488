"""What a store's answer means for the message, the request or the call that asked: said once, for all ways in.

`transitions.py` decides what a claim or a settlement is answered, and `exchange.py` brings it about. Here each of these
answers becomes an outcome, or the failure that is to be recorded first. What is done about an ending, such as a dead
letter or an exception, is the way in's. `deadline` is there to tell the time, which a lost claim is judged by.
"""

from collections.abc import Sequence

from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure, failure_of
from idempotent_receiver.handler import outcome
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import SettleAnswer, Unavailable
from idempotent_receiver.protocol.store import ActionFailed
from idempotent_receiver.protocol.transaction import Action
from idempotent_receiver.protocol.transitions import AlreadyFailed, Claim, ClaimLost, OtherPayload, Settled

Ending = outcome.Outcome | AlreadyFailed | OtherPayload
"""How a call ended: as a message may, or by an answer for which a queue has another use."""


def of_claim(answer: transitions.Refusal | Unavailable) -> Ending:
    """How it ends for whoever was not given the key."""
    match answer:
        case transitions.AlreadyCompleted(record):
            return outcome.Duplicate(record)
        case Unavailable(why):
            return outcome.ClaimFailed(why)
        case _:
            return answer


def of_completion(answer: SettleAnswer, claim: Claim, deadline: Deadline) -> Ending:
    """How it ends for a handler that has returned."""
    match answer:
        case Settled(record):
            return outcome.Completed(record)
        case ClaimLost():
            return of_loss(answer, claim, deadline)
        case Unavailable(why):
            return outcome.SettleFailed(why)


def of_failure(
    answer: SettleAnswer, failure: Failure, claim: Claim, deadline: Deadline, error: BaseException | None = None
) -> Ending:
    """How it ends for a handler that has failed."""
    if isinstance(answer, ClaimLost):
        return of_loss(answer, claim, deadline)
    return outcome.Failed(failure, recorded=isinstance(answer, Settled), error=error)


def of_release(answer: SettleAnswer, claim: Claim, deadline: Deadline) -> Ending:
    """How it ends for what never started."""
    return of_loss(answer, claim, deadline) if isinstance(answer, ClaimLost) else outcome.NotStarted()


def of_loss(lost: ClaimLost, claim: Claim, deadline: Deadline) -> Ending:
    """How it ends for whoever lost the claim: by what the winner has made of it, decided as for a new claim."""
    match transitions.decide(lost.found, claim, (), deadline.now_ms):
        case transitions.AlreadyCompleted(record):
            return outcome.Duplicate(record, lost=True)
        case AlreadyFailed() as failed:
            return failed
        case _:
            return lost


def as_outcome(ending: Ending) -> outcome.Outcome:
    """The ending of a message. Its claim does not take failures for answers, and another payload was made a failure
    before (`mismatch`).
    """
    assert not isinstance(ending, (AlreadyFailed, OtherPayload)), "a message has neither"
    return ending


def uncommitted(
    answer: SettleAnswer | ActionFailed, actions: Sequence[Action], *, with_text: bool
) -> tuple[Failure, BaseException | None] | None:
    """The failure that a commit's answer means, and the error that stands for it; None where it settled the claim, or
    found it lost. Where the answer is unknown and it was committed after all, the version is gone, so recording the
    failure is refused: nothing is undone.
    """
    match answer:
        case ActionFailed(index):
            error = actions[index].error
            return failure_of(error, with_text=with_text), error
        case Unavailable(why):
            return Failure(type="TransactionNotCommitted", text=why), None
        case _:
            return None


def mismatch(answer: OtherPayload) -> Failure:
    """The failure of a message whose key was used for another payload."""
    text = f"the key was used for another payload: fingerprint {answer.expected} then, {answer.found} now"
    return Failure(type="FingerprintMismatch", text=text, permanent=True, started=False)
