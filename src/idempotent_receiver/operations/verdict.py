"""What may be done with a dead letter: one pure function of the letter, its record, the time and the rules.

First match wins:

============================================================================ =============================
a letter                                                                     verdict
============================================================================ =============================
came from another queue, or from who knows where into a shared queue         FOREIGN: stays
has no usable key                                                            UNKEYED: stays
its record could not be read, or is none that we know                        UNREADABLE: stays
its record has another fingerprint, in any status                            CONFLICT: stays, and is listed
its record is COMPLETED, with its fingerprint, and its queue is ours         DONE: dropped
its record is COMPLETED, and its fingerprint or queue is unknown             MOVE: the consumer recognises it
failed for good, by its stamp or by its record                               PERMANENT: stays, unless included
is older than records last                                                   TOO_OLD: stays, unless forced
has no room for our stamp                                                    NO_ROOM: stays
any other                                                                    MOVE
============================================================================ =============================

What a claim would meet is `transitions.decide`'s to say, as for the consumer itself.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from idempotent_receiver.operations.letters import Letter
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record, Status
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Claim
from idempotent_receiver.sqs.dead_letter import NoRoom, copy_of

DAY_MS = 24 * 60 * 60 * 1000


class Verdict(StrEnum):
    """What is to be done with a letter: MOVE moves, DONE drops, and all others leave it where it is."""

    MOVE = "MOVE"
    DONE = "DONE"
    CONFLICT = "CONFLICT"
    PERMANENT = "PERMANENT"
    TOO_OLD = "TOO_OLD"
    NO_ROOM = "NO_ROOM"
    UNKEYED = "UNKEYED"
    UNREADABLE = "UNREADABLE"
    FOREIGN = "FOREIGN"


ACTS = (Verdict.MOVE, Verdict.DONE)
"""What is done something with; a letter with any other verdict stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What the operator allows. `shared`: whether letters of other queues come to this dead-letter queue too."""

    queue_arn: str
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    include_permanent: bool = False
    force: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A letter with its verdict, and a sentence why; `reason` and `error_type` say what it died of."""

    letter: Letter
    verdict: Verdict
    why: str
    reason: str
    error_type: str | None = None


def judge(letter: Letter, found: Record | Unknown | None, now_ms: int, rules: Rules) -> Judgement:
    """The verdict about a letter whose key's record is `found`."""
    verdict, why = _judge(letter, found, now_ms, rules)
    reason, error_type = _died_of(letter, found, now_ms, verdict)
    return Judgement(letter=letter, verdict=verdict, why=why, reason=reason, error_type=error_type)


def _judge(letter: Letter, found: Record | Unknown | None, now_ms: int, rules: Rules) -> tuple[Verdict, str]:
    if letter.source not in (None, rules.queue_arn):
        return Verdict.FOREIGN, f"it came from another queue: {letter.source}"
    if letter.source is None and rules.shared:
        return Verdict.FOREIGN, "nothing says from which of several queues it came"
    if letter.unkeyed is not None:
        return Verdict.UNKEYED, f"{letter.unkeyed}: the consumer could not claim it"
    if isinstance(found, Unknown):
        return Verdict.UNREADABLE, f"its record could not be read: {found.why}"
    match transitions.decide(found, _claim(letter), (), now_ms):
        case transitions.Unreadable(reason):
            return Verdict.UNREADABLE, f"its record is none that this version knows: {reason}"
        case transitions.OtherPayload(expected, got):
            return Verdict.CONFLICT, f"its key was used for another payload: fingerprint {expected} there, {got} here"
        case transitions.AlreadyCompleted(completed):
            return _completed(letter, completed)
        case transitions.HeldElsewhere(until_ms):
            met = f"another worker holds its claim until {until_ms} (epoch ms): the consumer waits for that"
        case _:
            met = _met(found, now_ms)
    return _movable(letter, found, now_ms, rules) or (Verdict.MOVE, met)


def _completed(letter: Letter, completed: Record) -> tuple[Verdict, str]:
    if letter.source is None or completed.validation is None:
        unknown = "its queue is not known" if letter.source is None else "its record has no fingerprint to compare"
        return _room(letter) or (Verdict.MOVE, f"it is done, but {unknown}: the consumer will recognise it")
    return Verdict.DONE, "its record is COMPLETED, with the same payload"


def _movable(letter: Letter, found: Record | None, now_ms: int, rules: Rules) -> tuple[Verdict, str] | None:
    """Why a letter that is not done stays all the same."""
    if not rules.include_permanent and _permanent(letter, found, now_ms):
        reason, _ = _died_of(letter, found, now_ms, Verdict.PERMANENT)
        return Verdict.PERMANENT, f"it failed for good: {reason}; --include-permanent once the cause is mended"
    age_ms = now_ms - letter.since_ms
    if not rules.force and age_ms >= rules.retention_seconds * 1000:
        lasts = f"records last {rules.retention_seconds * 1000 / DAY_MS:g}"
        return Verdict.TOO_OLD, f"it is {age_ms / DAY_MS:.1f} days old and {lasts}: it may have been done; --force"
    return _room(letter)


def _room(letter: Letter) -> tuple[Verdict, str] | None:
    try:
        copy_of(letter.message, letter.returning, letter.deduplication_id)
    except NoRoom as error:
        return Verdict.NO_ROOM, f"it has no room for its key: {error}"
    return None


def _claim(letter: Letter) -> Claim:
    """The claim that the consumer would make."""
    message = letter.message
    return Claim(id=message.record_id, fingerprint=letter.fingerprint, owner="redrive", lease_until_ms=0)


def _met(found: Record | None, now_ms: int) -> str:
    if found is None:
        return "it has no record: no handler of this consumer has finished it"
    if found.expired(now_ms):
        return "its record has expired"
    if found.status == Status.FAILED:
        return f"it failed at attempt {found.attempts or 1} and may be tried again"
    if given_back(found, now_ms):
        return "it was given back before its handler started"
    return "its claim was never settled, and its lease is over"


def _permanent(letter: Letter, found: Record | None, now_ms: int) -> bool:
    # Only what fails for good is stamped with a reason; on its way back the reason is left out.
    if letter.stamp is not None and letter.stamp.reason is not None:
        return True
    return found is not None and not found.expired(now_ms) and permanent(found)


def permanent(found: Record) -> bool:
    """Whether a record says that trying again cannot help."""
    return error_of(found).get("permanent") is True


def given_back(found: Record, now_ms: int) -> bool:
    """Whether it was released before its handler started, and waits for its next delivery."""
    return lease_over(found, now_ms) and found.owner is None and found.version is not None


def lease_over(found: Record, now_ms: int) -> bool:
    """Whether it is in progress, and whoever held it has lost it."""
    until = found.lease_until_ms
    return found.status == Status.INPROGRESS and until is not None and until <= now_ms


def error_of(found: Record) -> Mapping[str, Any]:
    """What a FAILED record says of its error; empty where it says nothing that can be read."""
    if found.status != Status.FAILED or found.error is None:
        return {}
    try:
        told = json.loads(found.error)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def reason_in(error: Mapping[str, Any]) -> str | None:
    """One line for people of what a record says of its error."""
    text, kind, at = (error.get(name) for name in ("text", "type", "at"))
    if isinstance(text, str) and text:
        return text
    if not isinstance(kind, str):
        return None
    return f"{kind} at {at}" if isinstance(at, str) else kind


def _died_of(letter: Letter, found: Record | Unknown | None, now_ms: int, verdict: Verdict) -> tuple[str, str | None]:
    """Why it is there: what its own stamp says, else what its record says."""
    if letter.stamp is not None and letter.stamp.reason is not None:
        return letter.stamp.reason, letter.stamp.error_type
    if letter.unkeyed is not None:
        return letter.unkeyed, "UnusableKey"
    if verdict is Verdict.CONFLICT:
        return "its key was used for another payload", "FingerprintMismatch"
    if isinstance(found, Unknown):
        return "unknown: its record could not be read", None
    if found is None or found.expired(now_ms):
        return "received too often, and never claimed: its workers may have been throttled or have crashed", None
    error = error_of(found)
    if (reason := reason_in(error)) is not None:
        kind = error.get("type")
        return reason, kind if isinstance(kind, str) else None
    if given_back(found, now_ms):
        return _NEVER_STARTED, None
    return _REASONS.get(found.status, f"received too often; its record is {found.status}"), None


_NEVER_STARTED = (
    "received too often and never started: no time was left, or it stood behind a failure of its FIFO group"
)
_REASONS = {
    Status.COMPLETED.value: "done: its acknowledgement was lost, or it came once more",
    Status.INPROGRESS.value: "received too often while claimed: its worker crashed or timed out, or is at work",
    Status.FAILED.value: "failed, and nothing says of what",
}
