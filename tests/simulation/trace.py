"""A schedule of the explored world as a trace in words, and its replay from numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Commit
from tests.simulation.invariants import Violation, shown
from tests.simulation.search import explorer_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.scheduler import Move
    from tests.simulation.setups import Setup
    from tests.simulation.state import State
    from tests.simulation.worker_state import WorkerState


class NotReplayable(ValueError):
    """The numbers are no schedule here: they belong to another setup, another number of faults or other code."""


def encoded(setup: Setup, faults: int, schedule: Sequence[Move]) -> str:
    """A schedule as the places of its moves among the possible ones: `0.2.1`."""
    explorer, places = explorer_of(setup), []
    state = explorer.initial_state(faults)
    for number, move in enumerate(schedule, start=1):
        places.append(list(explorer.moves(state)).index(move))
        if number < len(schedule):
            state = explorer.play(state, move)
    return ".".join(map(str, places))


def replayed(setup: Setup, faults: int, numbers: str) -> Iterator[str]:
    """Replay a schedule, up to its violation if it has one; yields its trace line by line. Raises NotReplayable."""
    explorer = explorer_of(setup)
    own = setup.adapter == "operators"
    words, changes = (explorer.in_words, explorer.changes) if own else (in_words, _changed)
    state = explorer.initial_state(faults)
    for number, place in enumerate(numbers.split("."), start=1):
        possible = list(explorer.moves(state))
        if int(place) >= len(possible):
            raise NotReplayable(
                f"at move {number} there are {len(possible)} possible moves, and none has number {place}"
            )
        move = possible[int(place)]
        before = state
        try:
            state = explorer.play(state, move)
        except Violation as violation:
            yield f"{number:3}. {words(before, move)}"
            yield f"     {violation}"
            return
        yield f"{number:3}. {words(before, move)}{changes(before, state)}"
    if state.over:
        try:
            explorer.deliver_last(state)
        except Violation as violation:
            yield f"     {violation}"


def in_words(state: State, move: Move) -> str:
    kind, *where = move
    match kind:
        case "time":
            return "time passes" + (": a worker outlives its deadline" if where[0] else "")
        case "arrive":
            request = state.wire[where[0]]
            return f"a delayed request of {request.writer} arrives: {request.kind} {_statement(request.part)}"
        case "delete":
            return f"TTL deletes {where[0]}"
        case "outcome":
            return f"the execution {where[0]} writes its outcome: {where[1]}"
        case "finish":
            return f"the execution {where[0]} ends"
        case "abort":
            return f"somebody stops the execution {where[0]}"
    worker = next(worker for worker in state.workers if worker.name == where[0])
    if kind == "start":
        clock = f", its clock off by {where[1]:+} s" if where[1] else ""
        return f"{worker.name} starts, for receive {worker.receives}{clock}"
    return f"{worker.name}: {_VERBS[kind]}{_concerning(worker, where[1:])}"


_VERBS = {
    "crash": "crashes",
    "clock_step": "its wall clock steps by an hour",
    "wake": "processes what has finished",
    "renew": "renews its leases",
    "timer": "stops waiting for more settlements",
    "slept": "ends its pause",
    "answer": "gets the answer to",
    "return": "the handler returns for",
    "raise": "the handler raises for",
    "refuse": "the handler raises PermanentError for",
    "apply": "the store applies",
    "lose": "gets no answer, and the request may still arrive:",
    "cut_off": "from now on gets no answer of the store, and the request may still arrive:",
    "slow": "the answer is slow:",
    "throttle": "the store throttles",
    "cancel": "a condition fails of",
    "applied_unknown": "gets an unknown result after the store has applied",
    "unapplied_unknown": "gets an unknown result, and the store has not applied",
    "copy": "the network keeps a copy of",
    "resend": "the answer is lost, and the client sends again:",
}


def _concerning(worker: WorkerState, where: list[int]) -> str:
    if not where:
        return ""
    call = worker.call(where[0])
    if call.kind == "sleep":
        return ""
    parts = call.parts if len(where) == 1 else call.parts[where[1] : where[1] + 1]
    named = " and ".join(_statement(worker.world_wide(part)) for part in parts)
    return f" {named}" if call.kind == "run" else f" {call.kind} {named}"


def _statement(part: Any) -> str:
    change = part.change if isinstance(part, Commit) else part[0] if type(part) is tuple else part
    if isinstance(change, Change):
        over = "" if change.seen is None else f" over {change.seen.version}"
        return f"{_statement(change.new)}{over}"
    return f"{change.id} as {change.status} {change.version}" if isinstance(change, Record) else str(change)


def _changed(before: State, after: State) -> str:
    notes = [f"{id}: {shown(item)}" for id, item in after.items.items() if item != before.items.get(id)]
    notes += [f"now {after.now} s"] if after.now != before.now else []
    for old, new in zip(before.workers, after.workers, strict=True):
        if new.over and not old.over:
            notes.append(f"{new.name} is over")
    return f" → {'; '.join(notes)}" if notes else ""
