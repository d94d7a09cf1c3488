"""`python -m tests.simulation.explore [setup …]`: every schedule of small worlds, held against the nine invariants.

The shipped consumer runs against the in-memory store; nothing is left to chance. A violation is told as the shortest
schedule that leads to it, with the command that plays it again. Ends with 0 only if there is none.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulation.held import Setup
from tests.simulation.search import Found, Search, shortest
from tests.simulation.story import numbered, retold

SETUPS = {
    setup.name: setup
    for setup in (
        Setup("2x1", workers=2, messages=1),
        Setup("2x1-transaction", workers=2, messages=1, transactional=True),
        Setup("2x1-letters", workers=2, messages=1, letters=True),
        Setup("2x1-function", workers=2, messages=1, way="function"),
        Setup("2x1-function-transaction", workers=2, messages=1, way="function", transactional=True),
        Setup("2x1-http", workers=2, messages=1, way="http"),
        Setup("2x1-http-replay", workers=2, messages=1, way="http", transactional=True, replay=True),
        Setup("2x1-http-wait", workers=2, messages=1, way="http", wait_seconds=0.1),
        Setup("2x1-workflow", workers=2, messages=1, way="workflow"),
        Setup("2x1-workflow-sweep", workers=2, messages=1, way="workflow", sweeps=1),
        Setup("3x1-workflow", workers=3, messages=1, way="workflow", sweeps=1),
        Setup("3x1-workflow-sweeps", workers=3, messages=1, way="workflow", sweeps=2),
        Setup("3x1-function", workers=3, messages=1, way="function"),
        Setup("3x1", workers=3, messages=1),
        Setup("2x2-fifo", workers=2, messages=2, fifo=True),
        Setup("2x2", workers=2, messages=2),
        # A worker that runs both at once has many times the orders: with a second fault they do not end within hours.
        Setup("2x2-parallel", workers=2, messages=2, concurrency=2, faults=1),
    )
}
"""How many workers get how many messages, each worker getting all of them; what else is special follows the dash.

The heaviest come last: so they do not keep the others from being told.
"""

PROCESSES = 2


def main(arguments: list[str]) -> int:
    """Explore the setups that are named, or all; or play one schedule again."""
    parser = argparse.ArgumentParser(prog="explore", description=__doc__)
    parser.add_argument("setups", nargs="*", help=f"of {', '.join(SETUPS)}; all where none is named")
    parser.add_argument("--faults", type=int, help="faults a schedule, at most (2, or fewer where a setup says so)")
    parser.add_argument("--seconds", type=float, default=3600, help="time for each setup, at most (%(default)s)")
    parser.add_argument("--processes", type=int, default=PROCESSES, help="setups at once (%(default)s)")
    parser.add_argument("--play", metavar="NUMBERS", help="tell this schedule of the one setup that is named")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.setups) - set(SETUPS)
    if unknown:
        parser.error(f"no such setup: {', '.join(sorted(unknown))}")
    if chosen.play is not None:
        if len(chosen.setups) != 1:
            parser.error("name the one setup to play")
        (name,) = chosen.setups
        print(*retold(SETUPS[name], _faults(name, chosen.faults), chosen.play), sep="\n")
        return 0
    names = chosen.setups or list(SETUPS)
    with ProcessPoolExecutor(chosen.processes) as pool:
        runs = [pool.submit(explored, name, _faults(name, chosen.faults), chosen.seconds) for name in names]
        for run in as_completed(runs):
            print(*report(run.result()), sep="\n", flush=True)
    return 0 if all(run.result().finished for run in runs) else 1


def _faults(name: str, chosen: int | None) -> int:
    return SETUPS[name].faults if chosen is None else chosen


def explored(name: str, faults: int, seconds: float) -> Found:
    """What there is in a setup; says how far it is from time to time."""
    last = time.monotonic()

    def progress(found: Found) -> None:
        nonlocal last
        if time.monotonic() - last > 10:
            last = time.monotonic()
            rate = found.moves / found.seconds
            print(f"{name}: {found.states:,} states, {found.seconds:.0f} s, {rate:,.0f} moves/s", flush=True)

    return Search(SETUPS[name], faults, seconds, progress).run()


def report(found: Found) -> list[str]:
    """What is told of a search."""
    faults = f"{found.setup.name} with up to {found.faults} faults"
    seconds = f"{found.seconds:.0f} s ({found.cpu_seconds:.0f} of them computing)"
    states = f"{found.states:,} states, {found.moves:,} moves, {seconds}"
    if found.violation is not None:
        violation, schedule = shortest(found)
        numbers = numbered(found.setup, found.faults, schedule)
        again = f"python -m tests.simulation.explore {found.setup.name} --faults {found.faults} --play {numbers}"
        story = retold(found.setup, found.faults, numbers)
        return [f"{faults}: VIOLATED after {states}: {violation}", *story, f"Play it again: {again}"]
    if not found.finished:
        return [f"{faults}: NOT FINISHED, no violation in {states}: give it more --seconds"]
    return [f"{faults}: {found.schedules:,} schedules as {states}; at most {found.deepest} moves each; no violation"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
