"""The points at which a worker of the queue's worlds waits for an answer, and what may happen to it there."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.store import Commit
from tests.simulation.reached import declare, wanted

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from idempotent_receiver.protocol.record import Change, Record

CLAIM, TAKE_OVER, COMPLETE, MARK, FAIL, RELEASE = "claim", "take over", "complete", "mark", "fail", "release"
FAIL_UNREAD = "fail, nothing read"
COMMIT, PACK = "commit", "commit several"
WRITES = (CLAIM, TAKE_OVER, COMPLETE, MARK, FAIL, RELEASE, FAIL_UNREAD, COMMIT, PACK)
PEEK = "peek"
READS = (PEEK, *(f"read after {write}" for write in WRITES))
VISIBILITY, DEAD_LETTER, SEND, GET = "visibility", "dead letter", "send", "get"
QUEUES = (VISIBILITY, DEAD_LETTER, SEND)
HANDLER, PAUSE = "handler", "pause"
DISTURBANCES = ("killed", "frozen", "suspended", "clock forward", "clock back", "wall still", "monotonic still")


def declare_points(kinds: Sequence[str]) -> None:
    """Each of these network faults may occur at each call of the store, and a process be disturbed at any time."""
    declare("network faults", [f"{where}: {what}" for where, what in product((*WRITES, *READS), kinds)])
    declare("network faults", [f"{where}: {what}" for where in QUEUES for what in ("lost", "slow")])
    declare("network faults", [f"{DEAD_LETTER}: lost answer", "delete: lost", f"{GET}: lost"])
    declare("network faults", [f"{SEND}: lost answer", f"{SEND}: partly"])
    where = (*WRITES, *READS, GET, *QUEUES, HANDLER, PAUSE)
    declare("disturbances", [f"{where}: {what}" for where, what in product(where, DISTURBANCES)])


def provoked(points: Collection[str]) -> str | None:
    """What this world is to bring about at one of these points. Whoever is to read after a write must be in doubt."""
    doubted = any(wanted([f"read after {point}"]) for point in points if point in WRITES)
    return "lost answer" if doubted else wanted(points)


def points_of(kind: str, parts: Sequence[Any], sent: dict[str, str]) -> set[str]:
    """The points that a request is at. `sent` are the invocation's last writes by their records: these are added."""
    if kind == "read":
        return {f"read after {sent[id]}" if id in sent else PEEK for id in parts}
    points = set()
    for part in parts:
        change = part.change if isinstance(part, Commit) else part
        point = PACK if len(parts) > 1 and kind == "commit" else _POINTS[kind](change)
        sent[change.id if kind == "insert" else change.new.id] = point
        points.add(point)
    return points


def _inserted(record: Record) -> str:
    return CLAIM if record.status == "INPROGRESS" else FAIL_UNREAD


def _replaced(change: Change) -> str:
    if change.new.status == "INPROGRESS":
        return RELEASE if change.new.owner is None else TAKE_OVER
    if change.new.status == "SENDING" and change.seen is not None and change.new.owner != change.seen.owner:
        return TAKE_OVER
    if change.seen is not None and change.seen.status == "SENDING":
        return MARK
    return COMPLETE if change.new.status == "COMPLETED" else FAIL


_POINTS = {"insert": _inserted, "replace": _replaced, "commit": lambda change: COMMIT}
