"""Playing every schedule of a setup: depth first, each state once; and the shortest way to a violation.

Answers are delivered as soon as a call has been applied, and a worker goes on until it waits again: what happens
inside a worker concerns nobody else, so a later delivery comes to the same unless time passes before it (the fault
`slow`), and a crash before it comes to the same as one right after it.
"""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.game import Game
from tests.simulation.invariants import Violation
from tests.simulation.moves import moves

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.held import Setup
    from tests.simulation.moves import Move
    from tests.simulation.state import State


class OutOfTime(Exception):
    """The search was told to end by now."""


@dataclass
class Found:
    """What a search has seen. `schedules` is how many ways lead from the beginning to an end; 0 if it was cut short."""

    setup: Setup
    faults: int
    schedules: int = 0
    states: int = 0
    moves: int = 0
    histories: int = 0
    deepest: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    finished: bool = False
    violation: Violation | None = None
    schedule: tuple[Move, ...] = ()


class Search:
    """Depth first over all states of a setup with that many faults at most."""

    def __init__(
        self, setup: Setup, faults: int, seconds: float = 1e9, progress: Callable[[Found], None] = lambda found: None
    ) -> None:
        self.game = Game(setup)
        self.found = Found(setup, faults)
        self._progress = progress
        self._seen: dict[bytes, int] = {}
        """How many schedules go on from each state."""
        self._path: list[Move] = []
        self._began, self._cpu_began = time.monotonic(), time.process_time()
        self._most_seconds = seconds

    def run(self) -> Found:
        """Until everything has been seen, or a violation, or the time is over."""
        found = self.found
        sys.setrecursionlimit(10_000)  # a schedule is as deep as it has moves
        gc.set_threshold(50_000)  # what is remembered stays: looking through it for garbage is in vain
        try:
            found.schedules = self._explore(self.game.beginning(found.faults))
            found.finished = True
        except Violation as violation:
            found.violation, found.schedule = violation, tuple(self._path)
        except OutOfTime:
            pass
        self._count()
        self.game.pasts.close()
        return found

    def _explore(self, state: State) -> int:
        key = state.key()
        schedules = self._seen.get(key)
        if schedules is not None:
            return schedules
        if len(self._seen) % 1000 == 999:
            self._look_at_the_time()
        if all(worker.over for worker in state.workers):
            self.game.once_more(state)
        schedules = 0
        for move in moves(state):
            self.found.moves += 1
            self._path.append(move)
            schedules += self._explore(self.game.play(state, move))
            self._path.pop()
        self.found.deepest = max(self.found.deepest, len(self._path))
        self._seen[key] = max(1, schedules)
        return self._seen[key]

    def _look_at_the_time(self) -> None:
        self._count()
        self._progress(self.found)
        if self.found.seconds > self._most_seconds:
            raise OutOfTime

    def _count(self) -> None:
        self.found.states = len(self._seen)
        self.found.histories = self.game.pasts.count
        self.found.seconds = time.monotonic() - self._began
        self.found.cpu_seconds = time.process_time() - self._cpu_began


def shortest(found: Found, seconds: float = 60.0) -> tuple[Violation, tuple[Move, ...]]:
    """The shortest schedule to a violation, breadth first; the one that was found if that takes too long."""
    assert found.violation is not None, "only a violation has a schedule"
    game, ends = Game(found.setup), time.monotonic() + seconds
    layer: list[tuple[State, tuple[Move, ...]]] = [(game.beginning(found.faults), ())]
    seen = {layer[0][0].key()}
    while layer and time.monotonic() < ends:
        following: list[tuple[State, tuple[Move, ...]]] = []
        for state, path in layer:
            for move in (*moves(state), None):
                try:
                    after = _after(game, state, move)
                except Violation as violation:
                    return violation, path if move is None else (*path, move)
                if after is not None and (key := after.key()) not in seen:
                    seen.add(key)
                    following.append((after, (*path, move)))  # type: ignore[arg-type]  # no move leads nowhere
        layer = following
    return found.violation, found.schedule


def _after(game: Game, state: State, move: Move | None) -> State | None:
    """The state after a move; after none, nothing but the last delivery where all workers are over."""
    if move is not None:
        return game.play(state, move)
    if all(worker.over for worker in state.workers):
        game.once_more(state)
    return None
