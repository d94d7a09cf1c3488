"""`python -m tests.simulation.explore [setup …]`: checks every schedule of small worlds against the nine invariants.

The shipped consumer runs against the in-memory store; nothing is random. A violation is reported as the shortest
schedule that leads to it, with the command that replays it. The exit code is 0 only if every search finished and found
no violation.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulation.observed import observed
from tests.simulation.reached import Reached, world
from tests.simulation.search import Found, Search, shortest
from tests.simulation.setups import SETUPS
from tests.simulation.trace import encoded, replayed

PROCESSES = 2


def main(arguments: list[str]) -> int:
    """Explore the named setups, or all of them; or replay one schedule."""
    parser = argparse.ArgumentParser(prog="explore", description=__doc__)
    parser.add_argument("setups", nargs="*", help=f"of {', '.join(SETUPS)}; all if none is named")
    parser.add_argument("--faults", type=int, help="the most faults in a schedule (2, or fewer where a setup says so)")
    parser.add_argument("--seconds", type=float, default=3600, help="the most seconds for each setup (%(default)s)")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="setups at once (%(default)s)")
    parser.add_argument("--play", metavar="NUMBERS", help="replay this schedule of the one named setup")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.setups) - set(SETUPS)
    if unknown:
        parser.error(f"no such setup: {', '.join(sorted(unknown))}")
    if chosen.play is not None:
        if len(chosen.setups) != 1:
            parser.error("name the one setup to replay")
        (name,) = chosen.setups
        print(*replayed(SETUPS[name], _faults(name, chosen.faults), chosen.play), sep="\n")
        return 0
    names = chosen.setups or list(SETUPS)
    with ProcessPoolExecutor(chosen.processes) as pool:
        runs = [pool.submit(explored, name, _faults(name, chosen.faults), chosen.seconds) for name in names]
        for run in as_completed(runs):
            print(*report(run.result()), sep="\n", flush=True)
    if not chosen.setups:
        rows = Reached()
        for run in runs:
            rows.add(run.result().reached, 0)
        print(*rows.report(), sep="\n")
    return 0 if all(run.result().finished for run in runs) else 1


def _faults(name: str, chosen: int | None) -> int:
    return SETUPS[name].faults if chosen is None else chosen


def explored(name: str, faults: int, seconds: float) -> Found:
    """Explore a setup; reports progress every ten seconds."""
    last = time.monotonic()

    def progress(found: Found) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            rate = found.moves / found.seconds
            print(f"{name}: {found.states:,} states, {found.seconds:.0f} s, {rate:,.0f} moves/s", flush=True)

    with observed(), world() as places:
        found = Search(SETUPS[name], faults, seconds, progress).run()
        found.reached = frozenset(places)
    return found


def report(found: Found) -> list[str]:
    faults = f"{found.setup.name} with up to {found.faults} faults"
    seconds = f"{found.seconds:.0f} s ({found.cpu_seconds:.0f} of them computing)"
    states = f"{found.states:,} states, {found.moves:,} moves, {seconds}"
    if found.violation is not None:
        violation, schedule = shortest(found)
        numbers = encoded(found.setup, found.faults, schedule)
        again = f"python -m tests.simulation.explore {found.setup.name} --faults {found.faults} --play {numbers}"
        trace = replayed(found.setup, found.faults, numbers)
        return [f"{faults}: VIOLATED after {states}: {violation}", *trace, f"Play it again: {again}"]
    if not found.finished:
        return [f"{faults}: NOT FINISHED, no violation in {states}: give it more --seconds"]
    return [f"{faults}: {found.schedules:,} schedules as {states}; at most {found.deepest} moves each; no violation"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
