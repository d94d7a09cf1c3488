"""Search all schedules of a setup, depth first and each state once; find the shortest schedule to a violation.

An answer is delivered as soon as its call has been applied, and the worker then runs until it waits again. Nobody else
sees what happens inside a worker. So a later delivery makes no difference unless time passes before it (the fault
`slow`), and a crash before the delivery equals a crash right after it.
"""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.simulation.explorer import Explorer
from tests.simulation.invariants import Violation
from tests.simulation.resend_world import ResendExplorer

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.scheduler import Move
    from tests.simulation.setups import Setup
    from tests.simulation.state import State


def explorer_of(setup: Setup) -> Any:
    """Plays the moves of a setup: beside others, it has `moves(state)` and `play(state, move)`."""
    return ResendExplorer(setup) if setup.adapter == "operators" else Explorer(setup)


class OutOfTime(Exception):
    """The search has used up its time."""


@dataclass
class Found:
    """The result of a search. `schedules` counts the paths from the initial state to an end; 0 if it did not finish."""

    setup: Setup
    faults: int
    schedules: int = 0
    states: int = 0
    moves: int = 0
    deepest: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    finished: bool = False
    violation: Violation | None = None
    schedule: tuple[Move, ...] = ()
    reached: frozenset[str] = frozenset()
    """The rows of the tables that it has reached."""


class Search:
    """A depth-first search over all states of a setup with at most that many faults."""

    def __init__(
        self, setup: Setup, faults: int, seconds: float = 1e9, progress: Callable[[Found], None] = lambda found: None
    ) -> None:
        self.explorer = explorer_of(setup)
        self.found = Found(setup, faults)
        self._progress = progress
        self._seen: dict[bytes, int] = {}
        """How many schedules start from each state."""
        self._path: list[Move] = []
        self._began, self._cpu_began = time.monotonic(), time.process_time()
        self._most_seconds = seconds

    def run(self) -> Found:
        """Search until everything is explored, a violation is found, or the time is up."""
        found = self.found
        sys.setrecursionlimit(10_000)  # one call a move
        gc.set_threshold(50_000)  # what is cached stays, so collecting garbage often is a waste
        try:
            found.schedules = self._explore(self.explorer.initial_state(found.faults))
            found.finished = True
        except Violation as violation:
            found.violation, found.schedule = violation, tuple(self._path)
        except OutOfTime:
            pass
        self._count()
        self.explorer.histories.close()
        return found

    def _explore(self, state: State) -> int:
        key = state.key()
        schedules = self._seen.get(key)
        if schedules is not None:
            return schedules
        if len(self._seen) % 1000 == 999:
            self._check_time()
        if state.over:
            self.explorer.deliver_last(state)
        schedules = 0
        for move in self.explorer.moves(state):
            self.found.moves += 1
            self._path.append(move)
            schedules += self._explore(self.explorer.play(state, move))
            self._path.pop()
        self.found.deepest = max(self.found.deepest, len(self._path))
        self._seen[key] = max(1, schedules)
        return self._seen[key]

    def _check_time(self) -> None:
        self._count()
        self._progress(self.found)
        if self.found.seconds > self._most_seconds:
            raise OutOfTime

    def _count(self) -> None:
        self.found.states = len(self._seen)
        self.found.seconds = time.monotonic() - self._began
        self.found.cpu_seconds = time.process_time() - self._cpu_began


def shortest(found: Found, seconds: float = 60.0) -> tuple[Violation, tuple[Move, ...]]:
    """Search breadth first for the shortest schedule to a violation; if that takes too long, return the one found."""
    assert found.violation is not None, "only a violation has a schedule"
    explorer, ends = explorer_of(found.setup), time.monotonic() + seconds
    layer: list[tuple[State, tuple[Move, ...]]] = [(explorer.initial_state(found.faults), ())]
    seen = {layer[0][0].key()}
    while layer and time.monotonic() < ends:
        following: list[tuple[State, tuple[Move, ...]]] = []
        for state, path in layer:
            for move in (*explorer.moves(state), None):
                try:
                    after = _after(explorer, state, move)
                except Violation as violation:
                    return violation, path if move is None else (*path, move)
                if after is not None and (key := after.key()) not in seen:
                    seen.add(key)
                    following.append((after, (*path, move)))  # type: ignore[arg-type]  # no move leads nowhere
        layer = following
    return found.violation, found.schedule


def _after(explorer: Any, state: State, move: Move | None) -> State | None:
    """The state after a move; without one, check the last delivery if all workers are over."""
    if move is not None:
        return explorer.play(state, move)
    if state.over:
        explorer.deliver_last(state)
    return None
