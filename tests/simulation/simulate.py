"""`python -m tests.simulation.simulate --seeds 20000`: checks random simulations against the invariants, by seed.

A seed that fails is printed with the one command that replays it. The exit code is 0 only if none fails. At the end it
prints which places the worlds have reached, and names those that they never did; these fail a long run too. Every
second seed is steered towards what the seeds before have reached rarely.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from unittest.mock import patch

from idempotent_receiver.batch import exchanges
from tests.simulation import reached
from tests.simulation.call_simulation import CallSimulation
from tests.simulation.invariants import Violation
from tests.simulation.observed import observed
from tests.simulation.plan import CLOCKS_OFF_SECONDS
from tests.simulation.reached import FREE, Reached, Steer
from tests.simulation.simulation import Simulation
from tests.simulation.wire import WireSimulation
from tests.simulation.workflow_simulation import WorkflowSimulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.simulation.random_world import RandomWorld

PROCESSES = 2
SEEDS_A_TASK = 50
TASKS_AHEAD = 4
"""How many tasks are steered by the same results, so that a run is the same with any number of processes."""
LONG = 20_000
"""So many seeds must reach every place."""
FAILURES = 5
OK = "every invariant holds, and everything settled"


KINDS: dict[str, Callable[[int, float, Callable[[str], None] | None], RandomWorld]] = {
    "queue": Simulation,
    "calls": CallSimulation,
    "workflow": WorkflowSimulation,
    "wire": WireSimulation,
}
SHARES = (*4 * ["queue"], "calls", *3 * ["queue"], "workflow", "queue", "wire")
"""Seeds take these kinds in turns. They are odd in number, since every second seed is steered."""


def world_of(
    seed: int, clocks: float, log: Callable[[str], None] | None = None, kind: str | None = None
) -> RandomWorld:
    return KINDS[kind or SHARES[reached.planned(seed) % len(SHARES)]](seed, clocks, log)


@contextmanager
def small_chunks() -> Iterator[None]:
    """Claim one message at a time, and at most four ahead of the handlers: with eight messages claims run ahead and are
    released, as in large batches.
    """
    with patch.object(exchanges, "CLAIMS_A_CALL", 1), patch.object(exchanges, "MOST_CLAIMED_AHEAD", 4):
        yield


@dataclass
class Totals:
    """What happened in some seeds, by the names of the worlds' counts."""

    seeds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    reached: Reached = field(default_factory=Reached)

    def add(self, other: Totals) -> None:
        self.seeds += other.seeds
        self.counts.update(other.counts)
        self.reached.merge(other.reached)

    def __str__(self) -> str:
        told = (
            "{invocations:,} invocations, {calls:,} store calls, {groups:,} of them group commits and {packs:,} of "
            "several transactions, {faults:,} faults; {dead_lettered:,} messages dead-lettered by consumers, {dead:,} "
            "by the queue; {requests:,} requests of clients; {sent:,} requests on the wire"
        )
        return f"{self.seeds:,} seeds: {told.format_map(self.counts)}"


class Failure(NamedTuple):
    seed: int
    steer: Steer
    violation: Violation


def main(arguments: list[str]) -> int:
    """Simulate many seeds, or trace one."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20_000, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--seed", type=int, help="trace this one")
    parser.add_argument(
        "--clocks",
        type=float,
        default=CLOCKS_OFF_SECONDS,
        help="the largest error of a clock, in seconds (%(default)s)",
    )
    parser.add_argument("--small", action="store_true", help="claim one message at a time, and release claims early")
    parser.add_argument("--kind", choices=KINDS, help="play worlds of this kind only")
    parser.add_argument("--failures", type=int, default=FAILURES, help="stop after this many failures (%(default)s)")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="how many run at once (%(default)s)")
    parser.add_argument("--towards", metavar="PLACE", help="steer towards this place")
    parser.add_argument("--like", metavar="SEED", type=int, help="with the plan of this seed")
    parser.add_argument("--unsteered", action="store_true", help="steer no seed")
    parser.add_argument(
        "--must-reach", action="store_true", help=f"fail if a place is never reached (with {LONG:,} seeds: always)"
    )
    chosen = parser.parse_args(arguments)
    chosen.steer = Steer(chosen.towards, chosen.like)
    if chosen.seed is not None:
        options = (chosen.clocks, chosen.small, chosen.kind, [chosen.steer])
        failures = played(chosen.seed, 1, *options, verbose=True)[1]
        print(f"seed {chosen.seed}: {failures[0].violation if failures else OK}")
        return 1 if failures else 0
    return _all(chosen)


def _all(chosen: argparse.Namespace) -> int:
    totals, failed, began, last = Totals(), 0, time.monotonic(), time.monotonic()
    for some, failures in _totals_by_task(chosen, totals.reached):
        totals.add(some)
        for seed, steer, violation in failures[: chosen.failures - failed]:
            replay = again(seed, chosen.clocks, small=chosen.small, kind=chosen.kind, steer=steer)
            print(f"seed {seed}: {violation}\n  again: {replay}", flush=True)
        failed += len(failures)
        if failed >= chosen.failures:
            break
        if time.monotonic() - last > 10:
            last = time.monotonic()
            rate = totals.seeds / (last - began)
            print(
                f"{totals.seeds:,} seeds, {rate:.0f} a second; next is --first {chosen.first + totals.seeds}",
                flush=True,
            )
    seconds = time.monotonic() - began
    print(f"{totals}; {seconds:.0f} s, {totals.seeds / seconds:.0f} seeds a second; {failed} failed")
    print(*totals.reached.report(), sep="\n")
    must_reach = chosen.must_reach or (chosen.seeds >= LONG and not chosen.small and chosen.kind is None)
    amiss = totals.reached.wrong() or (must_reach and totals.reached.never())
    return 1 if failed or amiss else 0


def _totals_by_task(chosen: argparse.Namespace, before: Reached) -> Iterator[tuple[Totals, list[Failure]]]:
    """The totals and failures of the seeds, task by task, in order. `before` is what those yielded have reached."""
    end = chosen.first + chosen.seeds
    under_way: deque[Callable[[], tuple[Totals, list[Failure]]]] = deque()
    with ProcessPoolExecutor(chosen.processes) if chosen.processes > 1 else nullcontext() as pool:
        for first in range(chosen.first, end, SEEDS_A_TASK):
            seeds = range(first, min(first + SEEDS_A_TASK, end))
            fixed = chosen.unsteered or chosen.steer != FREE
            steers = [chosen.steer if fixed else before.steer(seed) for seed in seeds]
            task = partial(played, first, len(seeds), chosen.clocks, chosen.small, chosen.kind, steers)
            under_way.append(task if pool is None else pool.submit(task).result)
            if len(under_way) == TASKS_AHEAD:
                yield under_way.popleft()()
        while under_way:
            yield under_way.popleft()()


def played(  # noqa: PLR0917  # tasks pass them by place
    first: int,
    count: int,
    clocks: float,
    small: bool = False,
    kind: str | None = None,
    steers: Sequence[Steer] = (),
    *,
    verbose: bool = False,
) -> tuple[Totals, list[Failure]]:
    totals, failures = Totals(), []
    with observed(), small_chunks() if small else nullcontext():
        for seed, steer in zip(range(first, first + count), steers or [FREE] * count, strict=True):
            with reached.world(steer) as places:
                world = world_of(seed, clocks, print if verbose else None, kind)
                try:
                    world.run()
                except Violation as violation:
                    failures.append(Failure(seed, steer, violation))
                totals.reached.add(places, reached.planned(seed))
            totals.add(Totals(1, Counter(world.counts())))
    return totals, failures


def again(seed: int, clocks: float, *, small: bool = False, kind: str | None = None, steer: Steer = FREE) -> str:
    """The command that replays a seed with a trace."""
    options = "" if clocks == CLOCKS_OFF_SECONDS else f" --clocks {clocks:g}"
    options += " --small" if small else ""
    options += f" --kind {kind}" if kind else ""
    options += f" --towards {shlex.quote(steer.towards)}" if steer.towards is not None else ""
    options += f" --like {steer.like}" if steer.like is not None else ""
    return f"python -m tests.simulation.simulate --seed {seed}{options}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
