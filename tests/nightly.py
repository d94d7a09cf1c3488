"""`python -m tests.nightly [--minutes M] [--first N | --seed N]`: what `make test` leaves out, in parts.

When the minutes are up, or at Ctrl-C, running parts are stopped. The last lines say what failed, with the commands that
repeat it, and what was not reached. The exit code is 0 if something passed, nothing failed and nobody stopped it. With
a seed it is also 0 if no part ended in time: the caller has only the minutes that others left.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests import ctrl_c
from tests.conftest import group_of
from tests.mutants.catalogue import MUTANTS
from tests.simulation.setups import SETUPS

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).resolve().parents[1]
AT_ONCE = 2
BUGS, SEEDS, EXAMPLES = 25, 20_000, 1500
"""In each part."""

LONGEST = ("2x2", "2x2-parallel")
"""The setups that take more than ten minutes."""

PYTHON = (sys.executable, "-m")
INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Part:
    """What is run, and the command."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How a part ended: with an exit code, or with none if it was stopped or never began."""

    code: int | None
    seconds: float = 0
    output: str = ""


def main(arguments: list[str]) -> int:
    """Run as many parts as there is time for."""
    parser = argparse.ArgumentParser(prog="nightly", description=__doc__)
    parser.add_argument("--minutes", default="1440", help="the most minutes (%(default)s)")
    parser.add_argument("--first", default="0", help="the part to begin with; others follow in a circle")
    parser.add_argument("--seed", help="begin with the part that this number selects; pass even if none ends in time")
    chosen = parser.parse_args(arguments)
    try:
        seconds, first, seed = float(chosen.minutes) * 60, int(chosen.first), int(chosen.seed or 0)
    except ValueError as error:
        parser.error(f"MINUTES, FIRST and SEED are numbers: {error}")
    if not 0 < seconds < math.inf:
        parser.error(f"MINUTES is a number above 0; it is {chosen.minutes}")
    began, parts = time.monotonic(), all_parts()
    if not 0 <= first < len(parts):
        parser.error(f"FIRST is the number of a part, 0 to {len(parts) - 1}; it is {first}")
    if chosen.seed is not None:
        return run_all(parts, began + seconds, seed % len(parts), may_reach_none=True)
    return run_all(parts, began + seconds, first)


def all_parts() -> list[Part]:
    """The tests, the planted bugs, more seeds, inputs and schedules, and the mutants, which resume where they were."""
    bugs = [mutant.name for mutant in MUTANTS]
    today = int(time.time()) // 86_400
    seeds = ("--seeds", str(SEEDS), "--first", str(today * SEEDS), "--processes", "1")
    fuzzed = sorted((ROOT / "tests" / "fuzz").glob("test_fuzz_*.py"))
    return [
        *(Part(name, (*PYTHON, "pytest", "-q", "-m", "nightly", *files)) for name, files in nightly_tests().items()),
        *(
            Part(f"planted bugs from {first + 1}", (*PYTHON, "tests.mutants", *bugs[first : first + BUGS]))
            for first in range(0, len(bugs), BUGS)
        ),
        Part("seeds of the day", (*PYTHON, "tests.simulation.simulate", *seeds)),
        *(
            Part(file.stem, ("make", "--silent", "fuzz", "WORKERS=0", f"EXAMPLES={EXAMPLES}", f"ARGS=-k {file.stem}"))
            for file in fuzzed
        ),
        Part("model", ("make", "--silent", "model")),
        *(
            Part(f"schedules of {setup}", (*PYTHON, "tests.simulation.explore", setup, "--processes", "1"))
            for setup in sorted(SETUPS, key=lambda name: name in LONGEST)
        ),
        Part("all mutants", ("make", "--silent", "mutation")),
    ]


def nightly_tests() -> dict[str, list[str]]:
    """The files with nightly tests: end-to-end tests by the server that they share, all others by folder."""
    command = [*PYTHON, "pytest", "--collect-only", "-qq", "-m", "nightly", "--no-header"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        sys.exit(f"nightly: the tests could not be collected:\n{listed.stdout}{listed.stderr}")
    groups: dict[str, list[str]] = defaultdict(list)
    for line in listed.stdout.splitlines():
        if line.startswith("tests/"):
            file = line.partition(":")[0]
            group = group_of(file) if file.startswith("tests/e2e/") else "/".join(file.split("/")[:2])
            groups[group].append(file)
    return groups


def run_all(parts: Sequence[Part], ends: float, first: int = 0, *, may_reach_none: bool = False) -> int:
    """Run all parts from the first one on, report each, and then what failed and what was not reached."""
    order = [*range(first, len(parts)), *range(first)]
    print(f"{len(parts)} parts, {AT_ONCE} at once; each is reported when it ends.", flush=True)
    results, over = dict.fromkeys(order, Result(None)), threading.Event()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(run, parts[number], ends, over): number for number in order}
        try:
            for done in as_completed(running):
                results[running[done]] = done.result()
                _report(running[done], parts[running[done]], done.result())
        except KeyboardInterrupt:
            over.set()
            print("Stopping what is under way; it takes up to half a minute.", flush=True)
    failed = [number for number in order if results[number].code not in (None, 0)]
    missed = [number for number in order if results[number].code is None]
    passed = len(parts) - len(failed) - len(missed)
    print(f"{passed} of {len(parts)} parts passed, {len(failed)} failed.")
    for number in failed:
        print(f"FAILED: {parts[number].name}: {shlex.join(parts[number].command)}")
    if missed:
        print(f"Not reached: {', '.join(parts[number].name for number in missed)}.")
        print(f"To go on: make nightly FIRST={missed[0]}")
    return INTERRUPTED if over.is_set() else 1 if failed or not (passed or may_reach_none) else 0


def _report(number: int, part: Part, result: Result) -> None:
    if result.code is not None:
        word = "FAILED" if result.code else "passed"
        print(f"{word} in {result.seconds:.0f} s: {number}, {part.name}", flush=True)
    if result.code:
        print(result.output, flush=True)


def run(part: Part, ends: float, over: threading.Event) -> Result:
    """Run a part to its end. When the time is up, interrupt it, so that it leaves nothing behind."""
    began, code = time.monotonic(), None
    if began >= ends or over.is_set():
        return Result(None)
    # make exports what it was given, and to a part SEED would mean its own.
    own = {name: value for name, value in os.environ.items() if name not in ("MINUTES", "FIRST", "SEED", "MAKEFLAGS")}
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            part.command, cwd=ROOT, env=own, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        while code is None and time.monotonic() < ends and not over.is_set():
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(min(1, max(0, ends - time.monotonic())))
        if code is None:
            stop(process)
        output.seek(0)
        return Result(code, time.monotonic() - began, output.read())


def stop(process: subprocess.Popen[bytes]) -> None:
    """Interrupt it, as Ctrl-C does; kill what takes longer than half a minute to end."""
    os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    with ctrl_c.heeded():
        sys.exit(main(sys.argv[1:]))
