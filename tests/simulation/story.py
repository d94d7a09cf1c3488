"""A schedule of the explored world, told for people, and played again from its numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.record import Change, Record
from tests.simulation.game import Game
from tests.simulation.invariants import Violation, shown
from tests.simulation.moves import moves

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.simulation.held import Setup
    from tests.simulation.moves import Move
    from tests.simulation.state import State, Worker


class Unplayable(ValueError):
    """The numbers of a schedule lead nowhere: they belong to another setup, other faults or other code."""


def numbered(setup: Setup, faults: int, schedule: Sequence[Move]) -> str:
    """A schedule as the places of its moves among those that were possible: `0.2.1`."""
    game, places = Game(setup), []
    state = game.beginning(faults)
    for number, move in enumerate(schedule, start=1):
        places.append(list(moves(state)).index(move))
        if number < len(schedule):
            state = game.play(state, move)
    return ".".join(map(str, places))


def retold(setup: Setup, faults: int, numbers: str) -> Iterator[str]:
    """Play a schedule again, line by line, up to its violation if it has one. Raises Unplayable."""
    game = Game(setup)
    state = game.beginning(faults)
    for number, place in enumerate(numbers.split("."), start=1):
        possible = list(moves(state))
        if int(place) >= len(possible):
            raise Unplayable(f"at move {number} there are {len(possible)} possible moves, and none has number {place}")
        move = possible[int(place)]
        before = state
        try:
            state = game.play(state, move)
        except Violation as violation:
            yield f"{number:3}. {told(before, move)}"
            yield f"     {violation}"
            return
        yield f"{number:3}. {told(before, move)}{_changed(before, state)}"
    if all(worker.over for worker in state.workers):
        try:
            game.once_more(state)
        except Violation as violation:
            yield f"     {violation}"


def told(state: State, move: Move) -> str:
    """A move in words."""
    kind, *where = move
    match kind:
        case "time":
            return "time passes" + (": a worker outlives its deadline" if where[0] else "")
        case "arrive":
            wired = state.wire[where[0]]
            return f"a request of {wired.writer} that was delayed arrives: {wired.kind} {_statement(wired.part)}"
        case "outcome":
            return f"the execution {where[0]} writes its outcome: {where[1]}"
        case "finish":
            return f"the execution {where[0]} ends as it has said"
        case "abort":
            return f"somebody stops the execution {where[0]}"
    worker = next(worker for worker in state.workers if worker.name == where[0])
    if kind == "start":
        clock = f", its clock off by {where[1]:+} s" if where[1] else ""
        return f"{worker.name} starts, for receive {worker.receives}{clock}"
    return f"{worker.name}: {_IN_WORDS[kind]}{_concerning(worker, where[1:])}"


_IN_WORDS = {
    "crash": "crashes",
    "step": "its wall clock steps by an hour",
    "wake": "takes in what has finished",
    "timer": "has waited long enough for company",
    "slept": "has slept",
    "answer": "gets the answer to",
    "return": "the handler returns, of",
    "raise": "the handler raises, of",
    "refuse": "the handler refuses for good, of",
    "apply": "is served:",
    "lose": "gets no answer, and its request may yet arrive:",
    "slow": "waits longer than anything else:",
    "throttle": "is throttled:",
    "unsure": "is served and told that nobody knows:",
    "doubt": "is not served and told that nobody knows:",
    "copy": "the network keeps a copy of",
    "resend": "is served, the answer is lost, and the client sends again:",
}


def _concerning(worker: Worker, where: list[int]) -> str:
    if not where:
        return ""
    call = worker.call(where[0])
    if call.kind == "sleep":
        return ""
    parts = call.parts if len(where) == 1 else call.parts[where[1] : where[1] + 1]
    named = " and ".join(_statement(worker.world_wide(part)) for part in parts)
    return f" {named}" if call.kind == "run" else f" {call.kind} {named}"


def _statement(part: Any) -> str:
    change = part[0] if type(part) is tuple else part
    if isinstance(change, Change):
        over = "" if change.seen is None else f" over {change.seen.version}"
        return f"{_statement(change.new)}{over}"
    return f"{change.id} as {change.status} {change.version}" if isinstance(change, Record) else str(change)


def _changed(before: State, after: State) -> str:
    notes = [f"{id} is {shown(item)}" for id, item in after.items.items() if item != before.items.get(id)]
    notes += [f"it is {after.now} s"] if after.now != before.now else []
    for old, new in zip(before.workers, after.workers, strict=True):
        if new.over and not old.over:
            notes.append(f"{new.name} is over")
    return f" → {'; '.join(notes)}" if notes else ""
