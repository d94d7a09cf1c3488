"""The history (`harness/history.py`) of a run of this workload, made from its evidence. Pure; it judges nothing."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from harness.history import (
    Acknowledged,
    Answered,
    Balance,
    DeadLettered,
    Delivered,
    Effect,
    Ended,
    Event,
    Left,
    Paused,
    Sent,
    Settled,
    Started,
)
from harness.workload import evidence
from harness.workload.runs import grouped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.history import Moves
    from harness.workload.found import Found
    from harness.workload.transfers import TransferMessage

SOMEBODY = ""
"""The worker that sent a dead letter, which the dead letter does not name."""


def history_of(found: Found, *, claims: bool) -> list[Event]:
    """What clients saw. `claims`: whether a started handler holds its key exclusively."""
    told = [*_sent(found), *(event for line in found.log for event in _seen(found, line, claims=claims))]
    applied = [*_applied(found)]
    dead = [*_dead(found)]
    end = max((event.at for event in (*told, *applied, *dead)), default=0.0)
    gone = {each.key for each in applied} | {each.message for each in dead}
    left = [key for key in found.sent.values() if key not in gone][: found.left]
    return [
        *told,
        *applied,
        *dead,
        *(Left(at=end, message=key) for key in left),
        *balances_of(found, end),
    ]


def balances_of(found: Found, end: float) -> Iterator[Balance]:
    for account, opening in found.workload.opening.items():
        yield Balance(at=end, account=account, opening=opening, closing=found.closing.get(account))


def _key(found: Found, name: str) -> str:
    """A message's key, by its name or by itself."""
    return found.sent.get(name, name)


def _sent(found: Found) -> Iterator[Sent]:
    redriven = grouped((line.key, line) for line in found.redriven.values())
    for message in found.workload.messages:
        key = found.sent.get(message.name)
        if key is not None:
            moves = moves_of(message) if found.posts(message.name) else ()
            yield Sent(at=0, message=key, key=key, moves=moves, group=message.group)
            for line in redriven.get(key, ()):
                yield Sent(at=line.at_ms, message=line.name, key=key, moves=moves)


def moves_of(message: TransferMessage) -> Moves:
    return ((message.payer, -message.amount), (message.payee, message.amount))


def _seen(found: Found, line: evidence.Line, *, claims: bool) -> Iterator[Event]:
    """An event for each line that a client could have written."""
    at = line.at_ms
    match line:
        case evidence.Delivery(name=name, key=key, worker=worker):
            known = name if name in found.sent or name in found.names or key is None else key
            if known is not None:
                yield Delivered(at=at, message=_key(found, known), worker=worker, receives=line.receives)
        case evidence.Start(name=name, worker=worker, lease_until_ms=until):
            holds = until - found.slack_ms if claims else None
            yield Started(at=at, message=_key(found, name), worker=worker, until=holds)
        case evidence.End(name=name, worker=worker, ok=ok):
            yield Ended(at=at, message=_key(found, name), worker=worker, ok=ok)
        case evidence.Write(name=name, worker=worker, move=move) if move != "claim":
            yield Settled(at=at, key=_key(found, name), worker=worker)
        case evidence.Acknowledged(name=name, worker=worker):
            yield Acknowledged(at=at, message=_key(found, name), worker=worker)
        case evidence.Stamped(key=key, worker=worker, reason=str()):
            yield DeadLettered(at=line.done_ms, message=key, worker=worker)
        case evidence.Reply(name=name, status=HTTPStatus.OK, result=result):
            yield Answered(at=at, since=line.since_ms, key=_key(found, name), result=result, replayed=True)
        case evidence.Freeze(worker=worker):
            yield Paused(at=at, worker=worker)


def _applied(found: Found) -> Iterator[Effect]:
    """What was applied: as observed when written, or else as the ledger shows at the end."""
    yield from _noted(found)
    posted = [line for line in found.log if isinstance(line, evidence.Posted)]
    for line in posted:
        key = _key(found, line.name)
        yield Effect(at=line.done_ms, since=line.at_ms, key=key, worker=line.worker, moves=_moves(line.moves))
    if posted:
        return
    known = grouped((name, line.at_ms) for line in found.log if (name := _done_by(line)) is not None)
    end = max((line.at_ms for line in found.log), default=0)
    for name, entries in found.posted.items():
        since = min((start.at_ms for start in found.runs.starts.get(name, ())), default=0)
        for time in range(max(entry.times for entry in entries)):
            moves = tuple((each.account, each.amount // each.times) for each in entries if each.times > time)
            at = min(known.get(name, [end])) if time == 0 else end
            yield Effect(at=max(at, since), since=since, key=_key(found, name), moves=moves)


def _noted(found: Found) -> Iterator[Effect]:
    """The effect of a handler that writes nothing is its record; sent again, it is the same write. In the control, it
    is the handler's return.
    """
    seen: set[tuple[str, str]] = set()
    for line in found.log:
        name = found.runs.name_of(getattr(line, "name", None) or "")
        if name not in found.sent or found.posts(name):
            continue
        match line:
            case evidence.End(ok=True) if not found.protected:
                yield Effect(at=line.at_ms, key=_key(found, name), worker=line.worker, once=False)
            case evidence.Write(move="complete", version=version) if (name, version) not in seen:
                seen |= {(name, version)} if version else set()
                yield Effect(at=line.done_ms, since=line.at_ms, key=_key(found, name), worker=line.worker)


def _done_by(line: evidence.Line) -> str | None:
    """The transfer that was seen done."""
    match line:
        case evidence.End(ok=True) | evidence.Delivery(done=True) | evidence.Call(done=True):
            return line.name
    return None


def _moves(found: object) -> Moves:
    """Moves restored from JSON."""
    assert isinstance(found, (list, tuple))
    return tuple((str(account), int(amount)) for account, amount in found)


def _dead(found: Found) -> Iterator[DeadLettered]:
    """Dead letters; where a proxy watched, only those that no worker sent. One that SQS moved keeps its first sending
    time, so its last delivery gives the time.
    """
    watched = any(isinstance(line, evidence.Stamped) for line in found.log)
    given = {line.key or line.name: line.at_ms for line in found.log if isinstance(line, evidence.Delivery)}
    end = max((line.at_ms for line in found.log), default=0)
    for each in found.dead_letters:
        moved = each.reason is None
        if each.message_id in found.names and (moved or not watched):
            at = given.get(each.message_id, end) if moved else each.sent_ms or end
            yield DeadLettered(at=at, message=each.message_id, worker=None if moved else SOMEBODY)
