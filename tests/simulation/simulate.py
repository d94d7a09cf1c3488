"""`python -m tests.simulation.simulate --seeds 10000`: random worlds by seed, held against the invariants.

A seed that fails is printed with the one command that plays it again. Ends with 0 only if there is none.
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
from tests.simulation.simulated import CLOCKS_OFF_SECONDS, Simulation
from tests.simulation.small import small_chunks

if TYPE_CHECKING:
    from collections.abc import Iterator

PROCESSES = 2
SEEDS_A_TASK = 50
FAILURES = 5


@dataclass
class Tally:
    """What some seeds came to."""

    seeds: int = 0
    invocations: int = 0
    calls: int = 0
    groups: int = 0
    faults: int = 0
    buried: int = 0
    dead: int = 0

    def add(self, other: Tally) -> None:
        """Count another's."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))

    def __str__(self) -> str:
        return (
            f"{self.seeds:,} seeds: {self.invocations:,} invocations, {self.calls:,} store calls, {self.groups:,} "
            f"of them group commits, {self.faults:,} faults; {self.buried:,} messages buried by consumers, "
            f"{self.dead:,} by the queue"
        )


Failure = tuple[int, Violation]


def main(arguments: list[str]) -> int:
    """Play seeds, or tell the story of one."""
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--seed", type=int, help="tell what happens with this one")
    parser.add_argument(
        "--clocks", type=float, default=CLOCKS_OFF_SECONDS, help="seconds that a clock may be off (%(default)s)"
    )
    parser.add_argument("--small", action="store_true", help="claim one at a time, and be hasty to give back")
    parser.add_argument("--failures", type=int, default=FAILURES, help="end after so many that fail (%(default)s)")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="that play at once (%(default)s)")
    chosen = parser.parse_args(arguments)
    if chosen.seed is not None:
        failures = played(chosen.seed, 1, chosen.clocks, chosen.small, telling=True)[1]
        print(f"seed {chosen.seed}: {failures[0][1] if failures else 'every invariant holds, and everything settled'}")
        return 1 if failures else 0
    return _all(chosen)


def _all(chosen: argparse.Namespace) -> int:
    tally, failed, began, last = Tally(), 0, time.monotonic(), time.monotonic()
    for some, failures in _tallies(chosen):
        tally.add(some)
        for seed, violation in failures[: chosen.failures - failed]:
            print(f"seed {seed}: {violation}\n  again: {again(seed, chosen.clocks, small=chosen.small)}", flush=True)
        failed += len(failures)
        if failed >= chosen.failures:
            break
        if time.monotonic() - last > 10:
            last = time.monotonic()
            rate = tally.seeds / (last - began)
            print(
                f"{tally.seeds:,} seeds, {rate:.0f} a second; next is --first {chosen.first + tally.seeds}", flush=True
            )
    seconds = time.monotonic() - began
    print(f"{tally}; {seconds:.0f} s, {tally.seeds / seconds:.0f} seeds a second; {failed} failed")
    return 1 if failed else 0


def _tallies(chosen: argparse.Namespace) -> Iterator[tuple[Tally, list[Failure]]]:
    """What the seeds come to, some at a time, in their order."""
    end = chosen.first + chosen.seeds
    starts = range(chosen.first, end, SEEDS_A_TASK)
    sizes = [min(SEEDS_A_TASK, end - start) for start in starts]
    if chosen.processes == 1:
        yield from map(played, starts, sizes, repeat(chosen.clocks), repeat(chosen.small))
        return
    with ProcessPoolExecutor(chosen.processes) as pool:
        try:
            yield from pool.map(played, starts, sizes, repeat(chosen.clocks), repeat(chosen.small))
        finally:
            pool.shutdown(cancel_futures=True)


def played(
    first: int, count: int, clocks: float, small: bool = False, *, telling: bool = False
) -> tuple[Tally, list[Failure]]:
    """Play that many seeds."""
    tally, failures = Tally(), []
    for seed in range(first, first + count):
        simulation = Simulation(seed, clocks, print if telling else None)
        try:
            with small_chunks() if small else nullcontext():
                simulation.run()
        except Violation as violation:
            failures.append((seed, violation))
        mails = simulation.queue.mails.values()
        dead = sum(mail.dead_because is not None for mail in mails)
        buried = len(simulation.queue.letters)
        counts = (simulation.invocations, simulation.calls, simulation.groups, simulation.faults)
        tally.add(Tally(1, *counts, buried, dead))
    return tally, failures


def again(seed: int, clocks: float, *, small: bool = False) -> str:
    """The command that plays a seed again, and tells it."""
    off = "" if clocks == CLOCKS_OFF_SECONDS else f" --clocks {clocks:g}"
    return f"python -m tests.simulation.simulate --seed {seed}{off}{' --small' if small else ''}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
