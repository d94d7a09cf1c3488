"""How one piece of work ended: the vocabulary in which the receiver answers the ways in."""

from dataclasses import dataclass

from idempotent_receiver.errors import Failure
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.transitions import ClaimLost, HeldElsewhere, Unreadable

__all__ = [
    "SUCCEEDED", "ClaimFailed", "ClaimLost", "Completed", "DeadLettered", "Duplicate", "Failed", "HeldElsewhere",
    "NotStarted", "Outcome", "SettleFailed", "Unreadable",
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
    """There was no time left to start the handler, or an earlier message of its group failed."""


SUCCEEDED = Completed | Duplicate | DeadLettered
"""The outcomes after which a message may be acknowledged: its record is COMPLETED, or its dead letter is confirmed."""

Outcome = SUCCEEDED | HeldElsewhere | Failed | ClaimLost | SettleFailed | ClaimFailed | Unreadable | NotStarted
