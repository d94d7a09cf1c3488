"""`python -m tests.simulation.simulate --seeds 20000`: checks random simulations against the invariants, by seed.

A seed that fails is printed with the one command that replays it. The exit code is 0 only if none fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, fields
from itertools import repeat
from typing import TYPE_CHECKING

from tests.simulation.invariants import Violation
from tests.simulation.plan import CLOCKS_OFF_SECONDS
from tests.simulation.small_chunks import small_chunks
from tests.simulation.worlds import KINDS, world_of

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES = 2
SEEDS_A_TASK = 50
FAILURES = 5


@dataclass
class Totals:
    """What happened in some seeds."""

    seeds: int = 0
    invocations: int = 0
    calls: int = 0
    groups: int = 0
    packs: int = 0
    faults: int = 0
    dead_lettered: int = 0
    dead: int = 0

    def add(self, other: Totals) -> None:
        """Add another's counts."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        return (
            f"{self.seeds:,} seeds: {self.invocations:,} invocations, {self.calls:,} store calls, {self.groups:,} "
            f"of them group commits and {self.packs:,} of several transactions, {self.faults:,} faults; "
            f"{self.dead_lettered:,} messages dead-lettered by consumers, {self.dead:,} by the queue"
        )


Failure = tuple[int, Violation]


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
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        failures = played(chosen.seed, 1, chosen.clocks, chosen.small, chosen.kind, verbose=True)[1]
        print(f"seed {chosen.seed}: {failures[0][1] if failures else 'every invariant holds, and everything settled'}")
        return 1 if failures else 0
    return _all(chosen)


def _all(chosen: argparse.Namespace) -> int:
    totals, failed, began, last = Totals(), 0, time.monotonic(), time.monotonic()
    for some, failures in _totals_by_task(chosen):
        totals.add(some)
        for seed, violation in failures[: chosen.failures - failed]:
            replay = again(seed, chosen.clocks, small=chosen.small, kind=chosen.kind)
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
    return 1 if failed else 0


def _totals_by_task(chosen: argparse.Namespace) -> Iterator[tuple[Totals, list[Failure]]]:
    """The totals and failures of the seeds, task by task, in order."""
    end = chosen.first + chosen.seeds
    starts = range(chosen.first, end, SEEDS_A_TASK)
    sizes = [min(SEEDS_A_TASK, end - start) for start in starts]
    options = (repeat(chosen.clocks), repeat(chosen.small), repeat(chosen.kind))
    if chosen.processes == 1:
        yield from map(played, starts, sizes, *options)
        return
    with ProcessPoolExecutor(chosen.processes) as pool:
        try:
            yield from pool.map(played, starts, sizes, *options)
        finally:
            pool.shutdown(cancel_futures=True)


def played(
    first: int, count: int, clocks: float, small: bool = False, kind: str | None = None, *, verbose: bool = False
) -> tuple[Totals, list[Failure]]:
    """Simulate that many seeds."""
    totals, failures = Totals(), []
    for seed in range(first, first + count):
        world = world_of(seed, clocks, print if verbose else None, kind)
        try:
            with small_chunks() if small else nullcontext():
                world.run()
        except Violation as violation:
            failures.append((seed, violation))
        totals.add(Totals(1, **world.counts()))
    return totals, failures


def again(seed: int, clocks: float, *, small: bool = False, kind: str | None = None) -> str:
    """The command that replays a seed with a trace."""
    options = "" if clocks == CLOCKS_OFF_SECONDS else f" --clocks {clocks:g}"
    options += " --small" if small else ""
    options += f" --kind {kind}" if kind else ""
    return f"python -m tests.simulation.simulate --seed {seed}{options}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
