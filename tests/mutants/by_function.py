"""`python -m tests.mutants.by_function [word …]`: plants the bugs one after another, and writes to
`.build/functions.txt` which test functions kill them, of those that reach them. Words select bugs by name, and by the
beginning of their place.

A test kills if an assertion fails in its call, twice, and not in a run between without the bug. A hang is no kill.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import sys
import time
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.failures import ASSERTIONS
from tests.mutants.mutant import ROOT, DoesNotApply, Mutant
from tests.mutants.swapping import Swap, observed, swap_of
from tests.mutation import rooms
from tests.mutation.judges import LATE, Judges, files, forked, silenced

if TYPE_CHECKING:
    from collections.abc import Iterator

BUILD = ROOT / ".build"
PROMISES = ["tests/test_promises.py", "tests/fuzz/test_found.py"]
BUG_SECONDS, FUNCTION_SECONDS = 10, 1
"""So much of the tests' usual time a bug is worth, and a test function for it."""
HANGING, HANGS_SECONDS = 5, 10.0
"""So many of a bug's tests may hang, and so long, beside five times its usual time, a test may take."""


class Judge(Judges):
    """Knows which tests reach a function, and which kill a bug. Writes to `functions.txt` in this folder."""

    def __init__(self, bugs: list[Mutant], folder: Path) -> None:
        super().__init__(self._judge_all)
        self._bugs, self._folder, self._verdicts = bugs, folder, folder / "functions"
        self._asserted = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> None:
        if call.when == "call" and call.excinfo is not None:
            self._asserted = call.excinfo.errisinstance(ASSERTIONS)

    def _judge_all(self, _: Judges) -> None:
        shutil.rmtree(self._verdicts, ignore_errors=True)
        self._verdicts.mkdir()
        swaps, unplanted = _swaps(self._bugs)
        self._observe_all({name for swap in swaps.values() for name in swap.changed})
        by_name = {bug.name: bug for bug in self._bugs}
        jobs = {name: partial(self._judge_bug, by_name[name], swap) for name, swap in swaps.items()}
        waiting = list(jobs)
        for _ in range(HANGING):
            ended = forked([(name, jobs[name]) for name in waiting])
            waiting = [name for name, code in ended if code == LATE]
        self._report(list(swaps), sorted(unplanted))

    def _observe_all(self, functions: set[str]) -> None:
        inside = observed(functions)
        for swap in inside:
            swap.do()
        base = b"".join(file.read_bytes() for name in ("src", "tests") for file in sorted((ROOT / name).rglob("*.py")))
        (reached := self._folder / "reached").mkdir(exist_ok=True)
        self.get_acquainted(reached, hashlib.sha256(base + repr(sorted(functions)).encode()).hexdigest())
        for swap in inside:
            swap.undo()

    def _judge_bug(self, bug: Mutant, swap: Swap) -> int:
        """Go on behind the test that hung."""
        verdict = self._verdicts / f"{bug.name}.txt"
        begun = [json.loads(line)[0] for line in verdict.read_text().splitlines()] if verdict.exists() else []
        asked, spent = {each.partition("[")[0] for each in begun}, 0.0
        silenced()
        with verdict.open("a") as file:
            for function, tests in self._reaching(swap.changed, bug.where):
                if function in asked or spent > BUG_SECONDS:
                    continue
                for test in tests:
                    print(json.dumps([test, "asked"]), file=file, flush=True)
                    spent += self._seconds[test]
                    if self._kills(swap, test):
                        print(json.dumps([test, "kills"]), file=file, flush=True)
                        break
            print(json.dumps(["", time.process_time()]), file=file, flush=True)
        return 0

    def _reaching(self, changed: frozenset[str], where: tuple[str, ...]) -> Iterator[tuple[str, list[str]]]:
        """The test functions, those that the bug names before others and the quickest first, and of each the tests that
        reach it.
        """

        def place(test: str) -> tuple[bool, float]:
            return test.partition("::")[0] not in where, self._seconds[test]

        by_function = defaultdict(list)
        for test in sorted({each for name in changed for each in self._calls[name]}, key=place):
            by_function[test.partition("[")[0]].append(test)
        for function, tests in by_function.items():
            most = max(1, int(FUNCTION_SECONDS / max(sum(self._seconds[each] for each in tests) / len(tests), 0.001)))
            yield function, tests[:most]

    def _kills(self, swap: Swap, test: str) -> bool:
        def fails(*, planted: bool) -> bool:
            self._asserted = False
            swap.do() if planted else swap.undo()
            signal.setitimer(signal.ITIMER_REAL, HANGS_SECONDS + 5 * self._seconds[test])
            item = self._tests[test]
            try:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            except (KeyboardInterrupt, SystemExit):
                return False
            except Exception:  # noqa: BLE001  # it broke pytest itself, which ends as a hang does
                signal.raise_signal(signal.SIGALRM)
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            return self._asserted

        return fails(planted=True) and not fails(planted=False) and fails(planted=True)

    def _report(self, bugs: list[str], unplanted: list[str]) -> None:
        killed, first, cpu, alive = defaultdict(list), defaultdict(list), 0.0, []
        for bug in bugs:
            lines = [json.loads(line) for line in (self._verdicts / f"{bug}.txt").read_text().splitlines()]
            cpu += sum(what for test, what in lines if not test)
            killers = [test.partition("[")[0] for test, what in lines if what == "kills"]
            for killer in killers:
                killed[killer].append(bug)
            if killers:
                first[killers[0]].append(bug)
            else:
                alive.append(bug)
        functions = defaultdict(int)
        for test in self._tests:
            functions[test.partition("[")[0]] += 1
        lines = [f"{len(first[each]):4} {len(killed[each]):4} {count:5}  {each}" for each, count in functions.items()]
        text = [
            "first for bugs, kills, tests, function",
            *sorted(lines),
            "",
            "not killed:",
            *alive,
            "",
            "not in a function:",
        ]
        (report := self._folder / "functions.txt").write_text("\n".join([*text, *unplanted, ""]))
        print(
            f"{len(bugs) - len(alive)} of {len(bugs)} bugs killed, {len(unplanted)} are in no function's body; "
            f"{sum(map(bool, first.values()))} of {len(functions)} test functions are first for one; "
            f"{cpu / max(len(bugs), 1):.1f} s of CPU a bug; {report}"
        )


def _swaps(bugs: list[Mutant]) -> tuple[dict[str, Swap], set[str]]:
    """What plants each of them, and those that are not in a function's body."""
    swaps, unplanted = {}, set()
    for bug in bugs:
        try:
            swap = swap_of(bug)
            swap.do()
            swap.undo()
            swaps[bug.name] = swap
        except (DoesNotApply, ValueError):
            unplanted.add(bug.name)
    return swaps, unplanted


def main(words: list[str]) -> int:
    """Plant those that are selected; all, without words."""
    bugs = [
        each for each in MUTANTS if not words or any(each.at.startswith(word) or word in each.name for word in words)
    ]
    chosen = sorted({rooms.room_of(str(each.file)) for each in bugs})
    os.environ.pop("SEED", None)
    judging = files([*rooms.tests(chosen), *PROMISES])
    options = ["-qq", "-s", "-p", "no:cacheprovider", "-o", "faulthandler_exit_on_timeout=false"]
    return int(pytest.main([*options, *judging], plugins=[Judge(bugs, BUILD)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
