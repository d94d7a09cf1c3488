"""What an operator needs to know about a record: status, lease and error."""

from collections.abc import Mapping
from typing import Any

from idempotent_receiver.errors import Failure
from idempotent_receiver.protocol.answers import Unreadable, Unsent
from idempotent_receiver.protocol.charges import charged_of, with_crash
from idempotent_receiver.protocol.record import Record, Status, error_of, permanent
from idempotent_receiver.protocol.resend import resending, resent, taken_back
from idempotent_receiver.protocol.transitions import Claim, decide


def lease_over(record: Record, now_ms: int) -> bool:
    """Whether the record is in progress and its lease has ended."""
    until = record.lease_until_ms
    return record.status == Status.INPROGRESS and until is not None and until <= now_ms


def unsent(record: Record, now_ms: int) -> bool:
    """Whether the record's effect took place, but its messages are not yet sent."""
    return isinstance(decide(record, _ANY_CLAIM, (), now_ms), Unsent)


def released(record: Record, now_ms: int) -> bool:
    """Whether the record was released before its handler started and waits for the next delivery. Records without
    a version do not count: they are from Powertools, which records no owner.
    """
    return lease_over(record, now_ms) and record.owner is None and record.version is not None


_ANY_CLAIM = Claim(id="", fingerprint=None, owner="", lease_until_ms=0)
"""A dummy claim, never sent. A record that this version cannot read refuses every claim."""


def unreadable(record: Record, now_ms: int) -> str | None:
    """Why this version cannot read the record, as a claim would report it; None if it can."""
    answer = decide(record, _ANY_CLAIM, (), now_ms)
    return answer.reason if isinstance(answer, Unreadable) else None


def state_of(record: Record, now_ms: int) -> str:
    """The status to show: EXPIRED after expiry; RESENDING, RESENT or TAKEN_BACK for a resend."""
    if record.expired(now_ms):
        return "EXPIRED"
    states = {"RESENDING": resending, "RESENT": resent, "TAKEN_BACK": taken_back}
    return next((state for state, found in states.items() if found(record) is not None), record.status)


def charged_in(record: Record, now_ms: int) -> int | None:
    """How many charged attempts the record counts, with the crash that its lease's end may mean; None if none."""
    over = lease_over(record, now_ms) or unsent(record, now_ms)
    return (with_crash(record) if over else charged_of(record)).attempts or None


def charged_text(values: Mapping[str, Any]) -> str | None:
    """A count of charged attempts, `3 of 10` where the limit is known. A redriven message may have more."""
    count, most = values["charged"], values["max_attempts"]
    return None if count is None else f"{count} of {most}" if most is not None and count <= most else str(count)


def failing(record: Record) -> bool:
    """Whether the key failed and can be retried, or is being retried."""
    if record.status == Status.INPROGRESS:
        return record.attempts is not None and record.attempts > 1
    return record.status == Status.FAILED and not permanent(record)


MAX_SKEW_MS = 60_000
"""How far a worker's clock may be ahead of the operator's."""


def written_ms(record: Record, now_ms: int, retention_seconds: int | None) -> int | None:
    """When the record was written, approximately (epoch, ms): its expiry minus its retention. None if either is
    unknown, or if the result lies in the future: the record was written with a different retention.
    """
    if record.expiration is None or retention_seconds is None:
        return None
    written = (record.expiration - retention_seconds) * 1000
    return None if written > now_ms + MAX_SKEW_MS else written


EARLY = "no error was recorded; in a relational database, its handler committed the transaction early"


def why_failed(record: Record) -> str | None:
    """A record's error in one line; None if it has none that can be told."""
    early = record.status == Status.FAILED and record.error is None
    return EARLY if early else reason_in(error_of(record))


def reason_in(error: Mapping[str, Any]) -> str | None:
    """A record's error in one line."""
    text, kind, at, codes = (error.get(name) for name in ("text", "type", "at", "codes"))
    if isinstance(text, str) and text:
        return text
    if not isinstance(kind, str):
        return None
    return Failure(kind, at if isinstance(at, str) else None, codes=codes if isinstance(codes, str) else None).reason
