"""The timeline of a run: one self-contained page, a row for each message, made from what observers recorded. Pure.

Every mark is a line of evidence: of a delivery, of a write that DynamoDB applied, of a kill, of a dead letter.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from local.workload.evidence import Call, Delivery, End, Finished, Kill, Start, Write
from local.workload.harm import Harm
from local.workload.runs import grouped
from local.workload.transfers import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from local.workload.evidence import Line
    from local.workload.reconciliation import Reconciliation

TEMPLATE = Path(__file__).with_name("timeline.html")


class Mark(NamedTuple):
    """Something that happened to a message: when, its kind, by which worker, and in words."""

    at_ms: int
    kind: str
    worker: str
    text: str


WRITTEN = {
    "complete": ("completed", "completed {}: its effect and its record were committed"),
    "fail": ("failed", "recorded that {} failed"),
    "release": ("released", "released {} before its handler had started"),
}


def marks_of(found: Reconciliation) -> dict[str, list[Mark]]:
    """What happened to each message, by its name, in order."""
    pairs = [*_seen(found), *_kills(found), *_dead_letters(found)]
    marks = grouped((name, mark) for name, mark in pairs if name in found.sent)
    return {name: sorted(each, key=lambda mark: mark.at_ms) for name, each in marks.items()}


def _seen(found: Reconciliation) -> Iterator[tuple[str, Mark]]:
    """What the log says of single messages."""
    sent: set[str] = set()
    for line in found.log:
        name = found.runs.name_of(getattr(line, "name", None) or getattr(line, "key", None) or "")
        if isinstance(line, Delivery) and line.sent_ms and name not in sent:
            sent.add(name)
            yield name, Mark(line.sent_ms, "sent", "", "sent to the queue")
        worker = getattr(line, "worker", "")
        told = _told(line, _who(worker), protected=found.protected)
        if told is not None:
            yield name, Mark(line.at_ms, told[0], worker, told[1])


def _told(line: Line, who: str, *, protected: bool) -> tuple[str, str] | None:
    """The kind of mark that a line makes, and its words."""
    what = getattr(line, "step", "") or "it"
    match line:
        case Delivery():
            receive = f" (receive {line.receives})" if line.receives else ""
            return "delivered", f"delivered to {who}{receive}" + (", though it was done" if line.done else "")
        case Start():
            return "started", f"the handler started in {who}"
        case Call(accepted=False):
            return "refused", "the outside service refused it"
        case Write(move="claim", over=None):
            return "claimed", f"{who} claimed {what}, as attempt {line.attempt}"
        case Write(move="claim"):
            return "taken over", f"{who} took {what} over from {_who(line.over)}, as attempt {line.attempt}"
        case Write():
            kind, text = WRITTEN[line.move]
            return kind, f"{who} {text.format(what)}"
        case Finished():
            kind = "completed" if line.status == "SUCCEEDED" else "failed"
            return kind, f"its execution ended: {line.status}"
        case End() if not protected:
            return ("posted", f"{who} posted it") if line.ok else ("failed", f"the handler failed in {who}")
        case _:
            return None


def _kills(found: Reconciliation) -> Iterator[tuple[str, Mark]]:
    """A kill, for each message that its worker had been given and had not finished."""
    for kill in found.runs.all(Kill):
        before = [line for line in found.log if getattr(line, "worker", None) == kill.worker]
        before = [line for line in before if line.at_ms <= kill.at_ms]
        given = {found.runs.name_of(each.name or each.key or "") for each in before if isinstance(each, Delivery)}
        ended = {each.name for each in before if isinstance(each, End)}
        ended |= {each.name for each in before if isinstance(each, Write) and each.move != "claim"}
        for name in sorted(given | {kill.name or ""}):
            if name == kill.name:
                yield name, Mark(kill.at_ms, "killed", kill.worker, f"{_who(kill.worker)} was killed at {kill.place}")
            elif name not in ended:
                text = f"{_who(kill.worker)}, which had this message too, was killed"
                yield name, Mark(kill.at_ms, "killed", kill.worker, text)


def _dead_letters(found: Reconciliation) -> Iterator[tuple[str, Mark]]:
    last_ms = max((line.at_ms for line in found.log), default=0)
    for each in found.dead_letters:
        name = found.runs.name_of(each.message_id)
        if each.reason is None:
            yield name, Mark(last_ms, "dead letter", "", "found in the dead-letter queue, where SQS had moved it")
        else:
            yield name, Mark(each.sent_ms, "dead letter", "", f"sent to the dead-letter queue: {each.reason}")


def _who(worker: str | None) -> str:
    return f"worker {worker[:8]}" if worker else "a worker"


def data_of(found: Reconciliation, title: str) -> dict[str, Any]:
    """What the page shows, as JSON would have it; times are in milliseconds since the first mark."""
    marks, outcomes = marks_of(found), _outcomes(found)
    times = [mark.at_ms for each in marks.values() for mark in each] or [0]
    rows = [
        {
            "name": message.name,
            "fault": "none" if message.kind is Kind.GOOD else str(message.kind),
            "outcome": outcomes.get(message.name, "unaccounted"),
            "amount": message.amount,
            "marks": [mark._replace(at_ms=mark.at_ms - min(times)) for mark in marks.get(message.name, ())],
        }
        for message in found.workload.messages
    ]
    return {"title": title, "ms": max(times) - min(times), "complaints": found.complaints, "rows": rows}


def _outcomes(found: Reconciliation) -> dict[str, str]:
    """How each message ended; the worst first, where it ended in several ways."""
    harm = Harm(found)
    ends = {"half-posted": harm.half_posted, "posted again": harm.posted_again, **found.ends}
    return {name: end for end, names in reversed(ends.items()) for name in names}


def page_of(found: Reconciliation, title: str) -> str:
    """The page. What a text says stays a text, whatever it says."""
    data = json.dumps(data_of(found, title)).replace("<", "\\u003c")
    return TEMPLATE.read_text().replace('"the run"', data)
