"""The trace of one key: what each source knows about it, in chronological order.

Each function turns one source's data into events, without I/O. No event holds a body, payload or result.
"""

import json
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.history import Act
from idempotent_receiver.operations.records import lease_over, released, unsent, why_failed, written_ms
from idempotent_receiver.protocol.record import Record, Status, permanent
from idempotent_receiver.protocol.resend import resend_of, resending, resent, taken_back
from idempotent_receiver.transaction.outbox import given_up

Hook = Callable[[str, Record | None], Iterable[tuple[datetime | None, str]]]
"""An application hook: given a key and its record, it returns (time, text) pairs. A time without a zone is UTC; None
means now.
"""

KeyOf = Callable[[str], str]
"""Turns a record id into the key to show."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """Something that happened or will happen; without a time, a present state."""

    at_ms: int | None
    source: str
    text: str


def in_order(events: Iterable[TraceEvent], now_ms: int) -> list[TraceEvent]:
    """The events by time, with present states between past and future."""
    return sorted(events, key=lambda event: now_ms if event.at_ms is None else event.at_ms)


def of_record(
    source: str, record: Record, now_ms: int, retention_seconds: int | None, key_of: KeyOf = str
) -> Iterator[TraceEvent]:
    """The record's last write, what was given up, and the ends of its lease and retention. The write's time is derived
    from the expiry.
    """
    yield TraceEvent(written_ms(record, now_ms, retention_seconds), source, _left(record, now_ms, key_of))
    leased = record.status in (Status.INPROGRESS, Status.SENDING)
    if leased and not (released(record, now_ms) or resending(record)):
        over = ", never settled" if lease_over(record, now_ms) or unsent(record, now_ms) else ""
        yield TraceEvent(record.lease_until_ms, source, f"end of its lease{over}")
    for number, each in given_up(record.outbox).items():
        said = f"message {number} to {each.queue_url} is never sent: {each.operator} gave it up: {each.why}"
        yield TraceEvent(None, source, said)
    if record.expiration is not None:
        yield TraceEvent(record.expiration * 1000, source, "expiry of the record: the key is free afterwards")


def of_resend(record: Record, ids: Container[str], at_ms: int | None, key_of: KeyOf) -> Iterator[TraceEvent]:
    """The resend in another key's record, written at `at_ms`, if it is from or to one of `ids`."""
    resend = resend_of(record)
    if resend is not None and (resend.new_id in ids or (resend.old_id or record.id) in ids):
        yield TraceEvent(at_ms, "resend", f"{key_of(record.id)} is {_resent(record, key_of)}")


def _left(record: Record, now_ms: int, key_of: KeyOf) -> str:
    if record.unreadable is not None:
        return f"this version cannot read it: {record.unreadable}"
    if resend_of(record) is not None and (told := _resent(record, key_of)):
        return told
    attempt = f"attempt {record.attempts or 1}"
    ended = "before its handler started" if record.attempts == 0 else f"at {attempt}"
    if record.status == Status.FAILED:
        reason = why_failed(record) or "no reason was recorded"
        again = "for good" if permanent(record) else "and may be tried again"
        return f"FAILED {ended}, {again}: {reason}"
    if record.status == Status.SENDING:
        return f"SENDING since {attempt}: its effect took place, but its messages and calls may not be done"
    if record.status != Status.INPROGRESS:
        return f"{record.status} at {attempt}"
    if record.execution is not None:
        return f"INPROGRESS: handed over to execution {_name(record.execution)}"
    if released(record, now_ms):
        return "INPROGRESS: released before its handler started"
    return f"INPROGRESS: claimed for {attempt}" + ("" if record.owner is None else f" by {record.owner}")


def _resent(record: Record, key_of: KeyOf) -> str:
    """The record's resend in words; empty if no resend claimed or ended the record."""
    if (found := resending(record)) is not None:
        return f"RESENDING as {key_of(found.new_id)}, by {found.operator}: {found.why}"
    if (found := resent(record)) is not None:
        never = "" if record.outbox is None else ", but it was given up"
        return f"RESENT as {key_of(found.new_id)}{never}, by {found.operator}: {found.why}"
    if (found := taken_back(record)) is not None:
        return f"TAKEN_BACK by {found.operator}: {found.why} (no handler ran; {key_of(found.old_id)} can run again)"
    return ""


def of_execution(described: Mapping[str, Any]) -> Iterator[TraceEvent]:
    """When an execution started and how it ended, according to DescribeExecution."""
    name = _name(described["executionArn"])
    yield TraceEvent(_ms(described["startDate"]), "execution", f"{name} started")
    status, error = described["status"], described.get("error")
    ended = f"{name} {status}" + ("" if error is None else f": {error}")
    stopped = described.get("stopDate")
    yield TraceEvent(None if stopped is None else _ms(stopped), "execution", ended)


def of_dead_letter(dead_letter: DeadLetter, reason: str) -> Iterator[TraceEvent]:
    """When the message was first sent, and its state as a dead letter."""
    stamp, id = dead_letter.stamp, dead_letter.id
    first = id if stamp is None else stamp.original_id
    yield TraceEvent(dead_letter.since_ms, "message", f"message {first} was sent")
    known = f", key {dead_letter.key}," if dead_letter.key not in ("", first) else ""
    yield TraceEvent(None, "dead letter", f"message {id}{known} is a dead letter: {reason}")


def of_act(act: Act, key_of: KeyOf = str, *, doubt: bool = True) -> TraceEvent:
    """What an operator did. If the result is unknown and `doubt` is false, a later act settled this one."""
    what = f"message {act.message_id} {act.verb}" if act.message_id else act.verb
    link = f" {'from' if act.mirror else 'as'} {key_of(act.other)}" if act.other else ""
    became = act.became if doubt or not act.may_have_happened else "not confirmed; repeated later"
    text = f"{what}{link} by {act.operator}: {act.why}; {became}" + (f"; plan {act.plan}" if act.plan else "")
    return TraceEvent(act.at_ms, "history", text)


def log_pattern(keys: Iterable[str]) -> str:
    """A CloudWatch Logs filter that matches lines about these keys and messageIds, and possibly other lines."""
    # A backslash or a quotation mark would end the string, so `*` replaces it.
    plain = [re.sub(r"[^\w.:@/+=-]", "*", key, flags=re.ASCII) for key in islice(keys, MOST_KEYS)]
    quoted = [each if len(each) <= MOST_OF_A_KEY else f"{each[:MOST_OF_A_KEY]}*" for each in plain]
    terms = [f'($.{name} = "{key}")' for key in quoted for name in _NAMED]
    return f"{{ {' || '.join(terms)} }}"


def of_log(line: Mapping[str, Any], keys: Container[str]) -> Iterator[TraceEvent]:
    """The event in a log line, if the line is about one of these keys. For lines that the function itself logged, only
    the location is shown: they can hold anything.
    """
    try:
        told = json.loads(line["message"])
        about = [told.get(name) for name in _NAMED]
    except (ValueError, AttributeError, RecursionError):
        return
    if not any(isinstance(each, str) and each in keys for each in about):
        return
    place = str(told.get("location", ""))
    if place.startswith("_write:") or "receive_count" in told:
        parts = [told.get(name) for name in ("error_type", "at", "reason", "why")]
        said = "; ".join(map(str, filter(None, (told.get("message"), *parts))))
    else:
        said = f"a line logged by the function, at {place or 'an unknown location'}"
    yield TraceEvent(int(line["timestamp"]), "log", f"{told.get('level', '')} {said}".strip())


_NAMED = ("key", "message_id")
"""The log fields that identify a line's key or message."""

MOST_KEYS = 4
MOST_OF_A_KEY = 80
"""These keep a filter within CloudWatch's limit of 1,024 characters."""


def of_hook(source: str, told: Iterable[tuple[datetime | None, str]]) -> Iterator[TraceEvent]:
    """The events that an application's hook returned."""
    for at, text in told:
        yield TraceEvent(None if at is None else _ms(at), source, str(text))


def _ms(time: datetime) -> int:
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _name(arn: str) -> str:
    return arn.rpartition(":")[2]
