"""What may be done with a dead letter: one pure function of the dead letter, its record, the time and the rules.

First match wins:

============================================================================ =============================
a dead letter                                                                verdict
============================================================================ =============================
from another queue, according to SQS or our stamp                            OTHER_QUEUE: stays
that cannot be read at all                                                   MALFORMED: stays
whose queue is unknown                                                       FOREIGN: stays
without a usable key                                                         UNKEYED: stays
whose record could not be read, or is in a form unknown to this version      UNREADABLE: stays
whose record has a different fingerprint, in any status                      CONFLICT: stays, and is listed
whose resend somebody is finishing: its record is SENDING, lease live        RESENDING: stays
whose resend has begun                                                       UNSENT: sent, marked and dropped
whose record a resend has completed                                          RESENT: dropped
whose record was completed by a resend taken back or given up                CONFLICT: nothing ran under its key
whose record is COMPLETED, with the same fingerprint                         DONE: dropped
whose record is COMPLETED, without a fingerprint                             MOVE: the consumer recognises it
that failed for good, according to its stamp or record, and is not SENDING   PERMANENT: stays, unless included
older than the record retention                                              TOO_OLD: stays, unless forced
with no room for our stamp                                                   NO_ROOM: stays
any other                                                                    MOVE
============================================================================ =============================

`transitions.decide` says what the consumer's own claim would find.
"""

from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from idempotent_receiver.errors import InvalidBody
from idempotent_receiver.operations.dead_letters.cause import cause_of
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.records import released, unsent
from idempotent_receiver.operations.text import escaped
from idempotent_receiver.protocol import answers
from idempotent_receiver.protocol.answers import Claimable
from idempotent_receiver.protocol.charges import with_crash
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Record, Status, exhausted, permanent
from idempotent_receiver.protocol.resend import Resend, resending, resent, taken_back
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Claim, ClaimAnswer, decide
from idempotent_receiver.sqs.dead_letter import NoRoom

DAY_MS = 24 * 60 * 60 * 1000

PAYLOAD_UNKNOWN = (
    "Or the consumer has a payload= setting that this command does not know: give --consumer before you decide"
)


INVALID_ENDS = "dlq resend it with a valid body, or dlq archive or dlq delete it; use --include-permanent only"
"""What ends a dead letter whose body does not validate."""


class Verdict(StrEnum):
    """What a redrive does with a dead letter: it moves MOVE, drops DONE and RESENT, finishes the resend of UNSENT, and
    leaves all others in place.
    """

    MOVE = "MOVE"
    DONE = "DONE"
    RESENT = "RESENT"
    RESENDING = "RESENDING"
    UNSENT = "UNSENT"
    CONFLICT = "CONFLICT"
    PERMANENT = "PERMANENT"
    TOO_OLD = "TOO_OLD"
    NO_ROOM = "NO_ROOM"
    UNKEYED = "UNKEYED"
    UNREADABLE = "UNREADABLE"
    MALFORMED = "MALFORMED"
    FOREIGN = "FOREIGN"
    OTHER_QUEUE = "OTHER_QUEUE"


ACTS = (Verdict.MOVE, Verdict.DONE, Verdict.RESENT, Verdict.UNSENT)
"""A dead letter with any other verdict stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Which dead letters belong to the consumer, and what the operator allows.

    `archived` dead letters may come from another stack's queue; `force` admits them, and dead letters
    that are TOO_OLD. `payload_known` means that fingerprints are computed as in the consumer.
    """

    queue_arn: str
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    include_permanent: bool = False
    force: bool = False
    archived: bool = False
    payload_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """A dead letter with its verdict; `why` explains the verdict. `reason`, `group` and `error_type` describe the
    failure. `record` is the key's record, if it could be read. `unsent`: its effect took place, and what it sends has
    not all been sent. `orphaned`: it is OTHER_QUEUE, and that queue no longer exists.
    """

    dead_letter: DeadLetter
    verdict: Verdict
    why: str
    reason: str
    group: str
    error_type: str | None = None
    record: Record | None = None
    unsent: bool = False
    orphaned: bool = False


def triage(dead_letter: DeadLetter, found: Record | Unknown | None, now_ms: int, rules: Rules) -> Decision:
    """Decide on a dead letter, given its key's record `found`."""
    verdict, why = _verdict(dead_letter, found, now_ms, rules)
    cause = cause_of(dead_letter, found, now_ms, conflict=verdict is Verdict.CONFLICT)
    known = {**asdict(cause), "group": _GROUPS.get(verdict, cause.group)}
    record = found if isinstance(found, Record) else None
    sending = record is not None and record.status == Status.SENDING and not record.expired(now_ms)
    if record is not None:
        dead_letter = replace(dead_letter, charged=with_crash(record).attempts or None)
    return Decision(
        dead_letter=dead_letter,
        verdict=verdict,
        why=why,
        **known,
        record=record,
        unsent=sending and verdict in _ITS_RECORD,
    )


_ITS_RECORD = (Verdict.MOVE, Verdict.TOO_OLD, Verdict.NO_ROOM)
"""The verdicts on a dead letter whose record is its own and SENDING. It is never PERMANENT then."""


_GROUPS = {Verdict.FOREIGN: "foreign", Verdict.OTHER_QUEUE: "other-queue"}
"""Other consumers' dead letters are not grouped by cause: an operator who names a group means this consumer's."""


def claim_on(dead_letter: DeadLetter, found: Record | None, now_ms: int) -> Claimable | ClaimAnswer:
    """The answer that the consumer's claim would get, given its key's record `found`."""
    claim = Claim(id=dead_letter.record_id, fingerprint=dead_letter.fingerprint, owner="operator", lease_until_ms=0)
    return decide(found, claim, (), now_ms)


def _verdict(dead_letter: DeadLetter, found: Record | Unknown | None, now_ms: int, rules: Rules) -> tuple[Verdict, str]:
    if (elsewhere := _elsewhere(dead_letter, rules)) is not None:
        return elsewhere
    if dead_letter.unkeyed is not None:
        return Verdict.UNKEYED, f"{dead_letter.unkeyed}: the consumer could not claim it"
    if isinstance(found, Unknown):
        return Verdict.UNREADABLE, f"its record could not be read: {found.why}"
    match claim_on(dead_letter, found, now_ms):
        case answers.Unreadable(reason):
            return Verdict.UNREADABLE, f"this version cannot understand its record: {reason}"
        case answers.OtherPayload(expected, got):
            why = f"its key was used for another payload: fingerprint {expected} there, {got} here"
            return Verdict.CONFLICT, why if rules.payload_known else f"{why}. {PAYLOAD_UNKNOWN}"
        case answers.AlreadyCompleted(completed):
            return _completed(dead_letter, completed)
        case (answers.HeldElsewhere() | answers.Unsent()) as answer if (
            found and (begun := resending(found)) is not None
        ):
            return _resending(found, begun, answer)
        case answers.HeldElsewhere(until_ms):
            met = f"another worker holds its claim until {until_ms} (epoch ms): the consumer will wait"
        case _:
            met = _met(found, now_ms)
    return _kept_back(dead_letter, found, now_ms, rules) or (Verdict.MOVE, met)


def _elsewhere(dead_letter: DeadLetter, rules: Rules) -> tuple[Verdict, str] | None:
    """The verdict on a dead letter from elsewhere, or one that cannot be read; None for any other."""
    source = dead_letter.source
    if source is not None and source != rules.queue_arn and not (rules.archived and rules.force):
        unknown = "; its effects are not in this table: include it with --force" if rules.archived else ""
        return Verdict.OTHER_QUEUE, f"it came from another queue: {escaped(source)}{unknown}"
    if dead_letter.malformed is not None:
        return Verdict.MALFORMED, f"it cannot be read: {dead_letter.malformed}"
    if source is None:
        return Verdict.FOREIGN, "its queue is unknown: neither SQS nor the consumer moved it here"
    return None


def _resending(found: Record, begun: Resend, met: answers.HeldElsewhere | answers.Unsent) -> tuple[Verdict, str]:
    told = f"{begun.operator} began to resend it as {begun.new_id}: {begun.why}"
    if begun.old_id:
        return Verdict.UNSENT, f"{told}; a version before began it: finish it by `dlq resend` with the same --body"
    if isinstance(met, answers.HeldElsewhere):
        return Verdict.RESENDING, f"{told}; {found.owner} is sending it until {met.until_ms} (epoch ms): wait"
    return Verdict.UNSENT, told


def _completed(dead_letter: DeadLetter, completed: Record) -> tuple[Verdict, str]:
    if taken_back(completed) is not None:
        return Verdict.CONFLICT, "a resend that was taken back completed its key, so nothing ran or will run under it"
    if (by := resent(completed)) is not None:
        if completed.outbox is not None:
            ends = "dlq resend it with another body, dlq archive or dlq delete it"
            return (
                Verdict.CONFLICT,
                f"its resend as {by.new_id} was given up, so neither body runs, unless SQS had it before: {ends}",
            )
        return Verdict.RESENT, f"{by.operator} resent it as {by.new_id}: {by.why}"
    if completed.validation is None:
        why = "it is done, but its record has no fingerprint to compare: the consumer will recognise it"
        return _no_room(dead_letter) or (Verdict.MOVE, why)
    return Verdict.DONE, "its record is COMPLETED, with the same payload"


def _kept_back(dead_letter: DeadLetter, found: Record | None, now_ms: int, rules: Rules) -> tuple[Verdict, str] | None:
    """The verdict if a dead letter must stay although it has not completed; else None."""
    if not rules.include_permanent and _permanent(dead_letter, found, now_ms):
        cause = cause_of(dead_letter, found, now_ms, conflict=False)
        remedy = INVALID_ENDS if cause.error_type == InvalidBody.__name__ else "use --include-permanent"
        return Verdict.PERMANENT, f"it failed for good: {cause.reason}; {remedy} once the cause is fixed"
    age_ms = now_ms - dead_letter.since_ms
    if not rules.force and age_ms >= rules.retention_seconds * 1000:
        lasts = f"records last {rules.retention_seconds * 1000 / DAY_MS:g}"
        return Verdict.TOO_OLD, f"it is {age_ms / DAY_MS:.1f} days old and {lasts}: it may have run; use --force if not"
    return _no_room(dead_letter)


def _no_room(dead_letter: DeadLetter) -> tuple[Verdict, str] | None:
    try:
        dead_letter.copy()
    except NoRoom as error:
        return Verdict.NO_ROOM, f"it has no room for its key: {error}"
    return None


def _met(found: Record | None, now_ms: int) -> str:
    if found is None:
        return "it has no record: this consumer has not completed it"
    if found.expired(now_ms):
        return "its record has expired"
    if unsent(found, now_ms):
        return "its effect took place, but its messages and calls may not be done: the consumer will do what is left"
    if exhausted(found):
        return "it has used up its charged attempts, and a redrive begins anew"
    if found.status == Status.FAILED:
        return f"it failed on attempt {found.attempts or 1} and may be tried again"
    if released(found, now_ms):
        return "it was released before its handler started"
    return "its claim was never settled, and its lease has ended"


def _permanent(dead_letter: DeadLetter, found: Record | None, now_ms: int) -> bool:
    if found is not None and found.status == Status.SENDING and not found.expired(now_ms):
        # Its function does not run again: only what is left to send is done.
        return False
    # A stamp has a reason only after a final failure; a redrive's stamp omits it.
    if (stamp := dead_letter.stamp) is not None and stamp.reason is not None:
        return not stamp.exhausted
    return found is not None and not found.expired(now_ms) and permanent(found)
