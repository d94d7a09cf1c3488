"""`python -m tests.nightly [--minutes M] [--first N]`: what `make test` leaves out, in parts, by their value.

After the minutes, what is under way is stopped. The last lines say what failed, with the commands that repeat it, and
what was not reached. The exit code is 0 if nothing failed.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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

NO_TESTS_FOUND = 5

Part = tuple[str, ...]
"""A command."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a part ended: with an exit code, or with none if it was stopped or never began."""

    code: int | None
    seconds: float = 0
    output: str = ""


def main(arguments: list[str]) -> int:
    """Run as many parts as there is time for."""
    parser = argparse.ArgumentParser(prog="nightly", description=__doc__)
    parser.add_argument("--minutes", type=float, default=24 * 60, help="the most minutes (%(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the part to begin with; others follow in a circle")
    chosen = parser.parse_args(arguments)
    ends = time.monotonic() + chosen.minutes * 60
    parts = all_parts()
    first = chosen.first % len(parts)
    results = run([*parts[first:], *parts[:first]], ends)
    failed = [part for part, result in results.items() if result.code not in (None, 0)]
    missed = [part for part in parts if results[part].code is None]
    print(f"{len(parts) - len(failed) - len(missed)} of {len(parts)} parts passed, {len(failed)} failed.")
    for part in failed:
        print(f"FAILED: {shlex.join(part)}")
    for part in missed:
        print(f"not reached: {shlex.join(part)}")
    if missed:
        following = next(index for index in range(first, first + len(parts)) if parts[index % len(parts)] in missed)
        print(f"Go on with: make nightly FIRST={following % len(parts)}")
    return 1 if failed else 0


def all_parts() -> list[Part]:
    """The end-to-end tests, the planted bugs, then more seeds, inputs and schedules."""
    python = (sys.executable, "-m")
    bugs = [mutant.name for mutant in MUTANTS]
    setups = sorted(SETUPS, key=lambda name: name in LONGEST)
    today = int(time.time()) // 86_400
    return [
        *((*python, "pytest", "-q", "-m", "nightly", *files) for files in files_of_nightly_tests()),
        *((*python, "tests.mutants", *bugs[at : at + BUGS]) for at in range(0, len(bugs), BUGS)),
        (
            *python,
            "tests.simulation.simulate",
            "--seeds",
            str(SEEDS),
            "--first",
            str(today * SEEDS),
            "--processes",
            "1",
        ),
        *(
            ("make", "--silent", "fuzz", "WORKERS=0", f"EXAMPLES={EXAMPLES}", f"ARGS=-k {file.stem}")
            for file in fuzzing()
        ),
        ("make", "--silent", "model"),
        *((*python, "tests.simulation.explore", setup, "--processes", "1") for setup in setups),
    ]


def fuzzing() -> list[Path]:
    return sorted((ROOT / "tests" / "fuzz").glob("test_*.py"))


def files_of_nightly_tests() -> list[list[str]]:
    """Those that share a server, together."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-qq", "-m", "nightly", "--no-header"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    groups: dict[str, list[str]] = defaultdict(list)
    for line in listed.splitlines():
        if line.startswith("tests/"):
            file = line.partition(":")[0]
            groups[group_of(file)].append(file)
    return list(groups.values())


def run(parts: Sequence[Part], ends: float) -> dict[Part, Result]:
    """Each part's result, reported as soon as it is known."""
    results = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        running = {pool.submit(result_of, part, ends): part for part in parts}
        for done in as_completed(running):
            part, result = running[done], done.result()
            results[part] = result
            if result.code is not None:
                word = "FAILED" if result.code else "passed"
                print(f"{word} in {result.seconds:.0f} s: {shlex.join(part)}", flush=True)
            if result.code:
                print(result.output, flush=True)
    return results


def result_of(part: Part, ends: float) -> Result:
    """Run a part to its end, or until the time is over: then it is interrupted, so that it leaves nothing behind."""
    began = time.monotonic()
    if began >= ends:
        return Result(None)
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(part, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | None = process.wait(ends - began)
        except subprocess.TimeoutExpired:
            code = None
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
    sys.exit(main(sys.argv[1:]))
