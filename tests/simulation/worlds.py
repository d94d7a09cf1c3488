"""The kinds of worlds that `make simulate` plays: a seed decides which one it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from tests.simulation.call_simulation import CallSimulation
from tests.simulation.reached import planned
from tests.simulation.simulation import Simulation
from tests.simulation.wire import WireSimulation
from tests.simulation.workflow_simulation import WorkflowSimulation

if TYPE_CHECKING:
    from tests.simulation.invariants import Violation


class Played(Protocol):
    @property
    def violations(self) -> list[Violation]:
        """All that have been found."""

    def run(self) -> None:
        """Run to the end. Raises the first violation."""

    def counts(self) -> dict[str, int]:
        """What happened in it, by the names of `simulate.Totals`."""


NewWorld = Callable[[int, float, Callable[[str], None] | None], Played]
"""Takes a seed, the largest error of a clock in seconds, and a log."""

KINDS: dict[str, NewWorld] = {
    "queue": Simulation,
    "calls": CallSimulation,
    "workflow": WorkflowSimulation,
    "wire": WireSimulation,
}
SHARES = (*4 * ["queue"], "calls", *3 * ["queue"], "workflow", "queue", "wire")
"""Seeds take these kinds in turns. They are odd in number, since every second seed is steered."""


def world_of(seed: int, clocks: float, log: Callable[[str], None] | None = None, kind: str | None = None) -> Played:
    return KINDS[kind or SHARES[planned(seed) % len(SHARES)]](seed, clocks, log)
