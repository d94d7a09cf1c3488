"""One key's story: what each place that knows something of it tells, in the order in which it happened.

Each function makes events of what one place holds. None of them reads anything, and no body, payload or result is in
what they tell.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.history import Act
from idempotent_receiver.operations.records import lease_over, reason_in, released, written_ms
from idempotent_receiver.protocol.record import Record, Status, error_of, permanent

Hook = Callable[[str, Record | None], Iterable[tuple[datetime | None, str]]]
"""What an application adds: given a key and its record, times and texts. A time without a zone is UTC, None is now."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, or will; without a time it is so now."""

    at_ms: int | None
    source: str
    text: str


def in_order(events: Iterable[Event], now_ms: int) -> list[Event]:
    """The events by their times; between what was and what will be stands what is so now."""
    return sorted(events, key=lambda event: now_ms if event.at_ms is None else event.at_ms)


def of_record(source: str, record: Record, now_ms: int, retention_seconds: int) -> Iterator[Event]:
    """How a record's last write left it, and until when that holds. When that was is reckoned from its expiry."""
    yield Event(written_ms(record, now_ms, retention_seconds), source, _left(record, now_ms))
    if record.status == Status.INPROGRESS and not released(record, now_ms):
        over = ", and nobody settled it" if lease_over(record, now_ms) else ""
        yield Event(record.lease_until_ms, source, f"end of its lease{over}")
    if record.expiration is not None:
        yield Event(record.expiration * 1000, source, "end of the record: from then on, the key is free")


def _left(record: Record, now_ms: int) -> str:
    if record.unreadable is not None:
        return f"this version cannot read it: {record.unreadable}"
    attempt = f"attempt {record.attempts or 1}"
    ended = "before its handler started" if record.attempts == 0 else f"at {attempt}"
    if record.status == Status.FAILED:
        reason = reason_in(error_of(record)) or "no reason was recorded"
        again = "for good" if permanent(record) else "and may be tried again"
        return f"FAILED {ended}, {again}: {reason}"
    if record.status != Status.INPROGRESS:
        return f"{record.status} at {attempt}"
    if record.execution is not None:
        return f"INPROGRESS: handed over to the execution {_name(record.execution)}"
    if released(record, now_ms):
        return "INPROGRESS: released before its handler started"
    return f"INPROGRESS: claimed for {attempt}" + ("" if record.owner is None else f" by {record.owner}")


def of_execution(described: Mapping[str, Any]) -> Iterator[Event]:
    """When an execution started and how it ended, as DescribeExecution tells it."""
    name = _name(described["executionArn"])
    yield Event(_ms(described["startDate"]), "execution", f"{name} started")
    status, error = described["status"], described.get("error")
    ended = f"{name} {status}" + ("" if error is None else f": {error}")
    stopped = described.get("stopDate")
    yield Event(None if stopped is None else _ms(stopped), "execution", ended)


def of_dead_letter(dead_letter: DeadLetter, reason: str) -> Iterator[Event]:
    """Since when a message is known by its dead letter, and that it is one."""
    stamp, id = dead_letter.stamp, dead_letter.id
    yield Event(dead_letter.since_ms, "message", f"message {id if stamp is None else stamp.original_id} was sent")
    yield Event(None, "dead letter", f"message {id} is a dead letter: {reason}")


def of_act(act: Act) -> Event:
    """What an operator did."""
    said = f"message {act.message_id} {act.verb} by {act.operator}: {act.why}"
    return Event(act.at_ms, "history", f"{said}; {act.became}" + (f"; plan {act.plan}" if act.plan else ""))


def of_hook(source: str, told: Iterable[tuple[datetime | None, str]]) -> Iterator[Event]:
    """What an application's hook told."""
    for at, text in told:
        yield Event(None if at is None else _ms(at), source, str(text))


def _ms(time: datetime) -> int:
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _name(arn: str) -> str:
    return arn.rpartition(":")[2]
