"""The timeline of a run: one self-contained page with a row per message, made from the run's evidence. Pure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from harness.workload.evidence import Call, Delivery, End, Kill, Start, Write
from harness.workload.harm import harm_of
from harness.workload.runs import grouped
from harness.workload.transfers import Kind
from idempotent_receiver.operations.page import html_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.workload.evidence import Line
    from harness.workload.reconciliation import Reconciliation

TEMPLATE = Path(__file__).with_name("timeline.html")
SETTLED = {
    "complete": ("completed", "completed {}: its effect and its record were committed"),
    "fail": ("failed", "recorded that {} failed"),
    "release": ("released", "released {} before its handler had started"),
}


class Mark(NamedTuple):
    """Something that happened to a message: when, what kind, by which worker, and in words."""

    at_ms: int
    kind: str
    worker: str
    text: str


def marks_of(found: Reconciliation) -> dict[str, list[Mark]]:
    """What happened to each message, by name, in order."""
    marks = grouped((found.runs.name_of(key), mark) for key, mark in [*_seen(found), *_kills(found), *_dead(found)])
    return {name: sorted(each, key=lambda mark: mark.at_ms) for name, each in marks.items()}


def _seen(found: Reconciliation) -> Iterator[tuple[str, Mark]]:
    completed = {line.name for line in found.runs.all(Write) if line.move == "complete"}
    sent = {_key(line): line.sent_ms for line in found.runs.all(Delivery) if line.sent_ms}
    yield from ((key, Mark(at_ms, "sent", "", "sent to the queue")) for key, at_ms in sent.items())
    for line in found.log:
        worker = getattr(line, "worker", "")
        for kind, text in _told(line, _who(worker), protected=found.protected):
            yield _key(line), Mark(line.at_ms, kind, worker, text)
        if isinstance(line, Delivery) and line.done and found.protected and _key(line) not in completed:
            completed.add(_key(line))
            yield _key(line), Mark(line.at_ms, "completed", "", "it was done, but its worker died before reporting it")


def _told(line: Line, who: str, *, protected: bool) -> Iterator[tuple[str, str]]:
    """The mark for a line: its kind and words; nothing if another line covers it."""
    what = getattr(line, "step", "") or "it"
    match line:
        case Delivery():
            again = f" (receive {line.receives})" if line.receives else ""
            yield "delivered", f"delivered to {who}{again}{', though it was done' if line.done else ''}"
        case Start():
            yield "started", f"the handler started in {who}"
        case Call(accepted=False):
            yield "refused", "the outside service refused it"
        case Write(move="claim", over=None):
            yield "claimed", f"{who} claimed {what}, as attempt {line.attempt}"
        case Write(move="claim"):
            yield "taken over", f"{who} took {what} over from {_who(line.over)}, as attempt {line.attempt}"
        case Write():
            kind, text = SETTLED[line.move]
            yield kind, f"{who} {text.format(what)}"
        case End() if not protected:
            yield ("posted", f"{who} posted it") if line.ok else ("failed", f"the handler failed in {who}")


def _kills(found: Reconciliation) -> Iterator[tuple[str, Mark]]:
    """A kill, for the message at which it happened, and for each unfinished message of its worker."""
    for kill in found.runs.all(Kill):
        lines = [each for each in found.log if getattr(each, "worker", "") == kill.worker and each.at_ms <= kill.at_ms]
        ended = {_key(each) for each in lines if isinstance(each, End) or getattr(each, "move", "claim") != "claim"}
        beside = {_key(each) for each in lines if isinstance(each, Delivery)} - ended - {kill.name}
        who = _who(kill.worker)
        for key in beside:
            yield key, Mark(kill.at_ms, "killed", kill.worker, f"{who}, which also had this message, was killed")
        yield kill.name or "", Mark(kill.at_ms, "killed", kill.worker, f"{who} was killed at {kill.place}")


def _dead(found: Reconciliation) -> Iterator[tuple[str, Mark]]:
    """Dead letters. One that SQS moved keeps its first sending time, so it comes last."""
    last_ms = max((line.at_ms for line in found.log), default=0)
    for each in found.dead_letters:
        at_ms, why = (last_ms, "moved there by SQS") if each.reason is None else (each.sent_ms, each.reason)
        yield each.message_id, Mark(at_ms, "dead letter", "", f"in the dead-letter queue: {why}")


def _key(line: Line) -> str:
    return getattr(line, "name", None) or getattr(line, "key", None) or ""


def _who(worker: str | None) -> str:
    return f"worker {worker[:8]}" if worker else "a worker"


def page_of(found: Reconciliation, title: str) -> str:
    """The page; times are in milliseconds since the first mark. All text is escaped."""
    marks, harm = marks_of(found), harm_of(found)
    ends = {**found.ends, "posted again": harm.paid_again, "half-posted": harm.half_posted}
    ended = {name: end for end, names in ends.items() for name in names}
    times = [mark.at_ms for each in marks.values() for mark in each] or [0]
    rows = [
        {
            "name": message.name,
            "fault": "none" if message.kind is Kind.GOOD else message.kind,
            "outcome": ended.get(message.name, "unaccounted"),
            "amount": message.amount,
            "marks": [mark._replace(at_ms=mark.at_ms - min(times)) for mark in marks.get(message.name, ())],
        }
        for message in found.workload.messages
    ]
    run = {"title": title, "ms": max(times) - min(times), "complaints": found.complaints, "rows": rows}
    return html_of(TEMPLATE.read_text(encoding="utf-8"), run)
