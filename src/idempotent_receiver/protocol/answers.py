"""The answers to a claim that was refused, to a peek and to a settlement. `transitions` decides which."""

from dataclasses import dataclass

from idempotent_receiver.protocol.record import Record


@dataclass(frozen=True, slots=True)
class AlreadyCompleted:
    """The effect is done; `record.data` is the stored result."""

    record: Record


@dataclass(frozen=True, slots=True)
class AlreadyFailed:
    """The handler failed, and this entry point treats that as the answer."""

    record: Record


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """Another worker holds the key until `until_ms` (epoch)."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class OtherPayload:
    """The key was used for another payload."""

    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The record is one that this version cannot read, and it is left untouched."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unsent:
    """The effect is done, and its worker's lease has ended before its messages were known to be sent."""

    record: Record


NOT_SENT_HERE = Unreadable("it belongs to a consumer with messages to send: use another namespace")
"""The answer for a call instead of `Unsent`, because a consumer's records are not its own."""


@dataclass(frozen=True, slots=True)
class Claimable:
    """The key may be claimed by replacing `seen`, or by an insert if that is None."""

    seen: Record | None


@dataclass(frozen=True, slots=True)
class Settled:
    """The record stands as we wrote it."""

    record: Record


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """Our version is gone; `found` is the record that replaced it."""

    found: Record | None


Refusal = AlreadyCompleted | AlreadyFailed | HeldElsewhere | OtherPayload | Unreadable | Unsent
SettleResult = Settled | ClaimLost
