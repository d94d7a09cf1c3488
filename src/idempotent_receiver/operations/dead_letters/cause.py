"""Why a message became a dead letter, according to its stamp or record, and the group for that cause.

A group's name is an error type and the function that raised it. The name omits line numbers, which change with each
deployment, and error texts, where an account or a time would split one cause into many groups. Both are shown within
the group.
"""

import re
from dataclasses import dataclass

from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.records import reason_in, released
from idempotent_receiver.operations.text import escaped
from idempotent_receiver.protocol.record import Record, Status, error_of, exhausted
from idempotent_receiver.protocol.resend import resending, resent
from idempotent_receiver.protocol.store import Unknown

EXHAUSTED = "EXHAUSTED: "
"""Begins the reason of a message that failed as often as it may. Its group is its error's."""


@dataclass(frozen=True, slots=True)
class Cause:
    """A one-line reason and its group. `error_type` is None if no error was recorded."""

    reason: str
    group: str
    error_type: str | None = None


def cause_of(dead_letter: DeadLetter, found: Record | Unknown | None, now_ms: int, *, conflict: bool) -> Cause:
    """Why a dead letter failed, given its key's record `found`. If `conflict` is true, that record belongs to
    a different message; so it does if another queue, or none that is known, was the dead letter's.
    """
    stamp = dead_letter.stamp
    if dead_letter.malformed is not None:
        return Cause(f"it cannot be read: {dead_letter.malformed}", "malformed")
    if stamp is not None and stamp.reason is not None:
        told = f"{EXHAUSTED}{stamp.reason}" if stamp.exhausted else stamp.reason
        return _of_error(told, stamp.error_type, stamp.at)
    if dead_letter.source != dead_letter.message.queue_arn:
        return _ANOTHERS
    if dead_letter.unkeyed is not None:
        return _of_error(dead_letter.unkeyed, "UnusableKey")
    if conflict:
        return _of_error("its key was used for another payload", "FingerprintMismatch")
    if isinstance(found, Unknown):
        return Cause("unknown: its record could not be read", "record-unreadable")
    if found is None or found.expired(now_ms):
        return _NO_RECORD
    if resending(found) is not None:
        return Cause("an operator's resend with another body has not finished", "resending")
    if resent(found) is not None:
        return Cause("an operator resent it with another body", "resent")
    error = error_of(found)
    if (reason := reason_in(error)) is not None:
        reason = f"{EXHAUSTED}{reason}" if exhausted(found) else reason
        return _of_error(reason, error.get("type"), error.get("at"))
    if released(found, now_ms):
        return _NEVER_STARTED
    unknown = Cause(f"received too many times; its record is {found.status}", "record-unreadable")
    return _CAUSES.get(found.status, unknown)


def _of_error(reason: str, error_type: object, at: object = None) -> Cause:
    kind = error_type if isinstance(error_type, str) else None
    function = f"@{at.partition(':')[0]}" if isinstance(at, str) else ""
    # The name must be shell-safe: a function may be named `<lambda>`, and anyone can write a stamp.
    group = re.sub(r"[^\w.@-]+", "-", f"{kind or 'error'}{function}").strip("-")
    return Cause(escaped(reason), group or "error", None if kind is None else escaped(kind))


_ANOTHERS = Cause("unknown: it did not fail in this consumer's queue", "other-queue")
_NO_RECORD = Cause(
    "received too many times without a record: its runs were refused or throttled, or its workers died", "no-record"
)
_NEVER_STARTED = Cause(
    "received too many times but never started: no time was left, or it waited behind a failure in its FIFO group",
    "never-started",
)
_CAUSES = {
    Status.COMPLETED.value: Cause("done: its acknowledgement was lost, or SQS delivered it again", "done"),
    Status.INPROGRESS.value: Cause(
        "received too many times while claimed: its worker crashed, timed out or is still running", "never-settled"
    ),
    Status.SENDING.value: Cause("done, but not all that it sends or calls is", "not-sent"),
    Status.FAILED.value: Cause("failed, with no reason recorded", "error"),
}
