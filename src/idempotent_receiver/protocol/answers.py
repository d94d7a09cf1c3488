"""The answers to a refused claim, a peek and a settlement. `transitions` decides which applies."""

from dataclasses import dataclass

from idempotent_receiver.protocol.record import Record


@dataclass(frozen=True, slots=True)
class AlreadyCompleted:
    """The effect took place; `record.data` is the stored result."""

    record: Record


@dataclass(frozen=True, slots=True)
class AlreadyFailed:
    """The handler failed, and this entry point returns a recorded failure as the answer."""

    record: Record


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """Another worker has claimed the key until `until_ms` (epoch); 0 if a database transaction holds it, without an end
    that anyone knows.
    """

    until_ms: int


@dataclass(frozen=True, slots=True)
class OtherPayload:
    """The key was used for a different payload."""

    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that this version cannot read, and leaves untouched."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsent:
    """The effect took place, but SQS has not confirmed all the messages to send, and no worker's lease is live."""

    record: Record


@dataclass(frozen=True, slots=True)
class ClaimableAlone:
    """The key may be claimed by replacing `seen`, but only by a claim that is made alone: it has crashed before."""

    seen: Record


@dataclass(frozen=True, slots=True)
class Exhausted:
    """The message has had all its charged attempts, or failed for good before: what is left is its dead letter."""

    record: Record


NOT_SENT_HERE = Unreadable("the record belongs to a consumer with messages to send: use a different namespace")
"""A call's answer in place of `Unsent`: the record belongs to a consumer, not to the call."""


@dataclass(frozen=True, slots=True)
class Claimable:
    """The key may be claimed by replacing `seen`, or by an insert if `seen` is None."""

    seen: Record | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The record is as this worker wrote it."""

    record: Record


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """The record no longer has the worker's version; `found` is the current record, if any."""

    found: Record | None


Refusal = (
    AlreadyCompleted | AlreadyFailed | ClaimableAlone | Exhausted | HeldElsewhere | OtherPayload | Unreadable | Unsent
)
SettleResult = Settled | ClaimLost
