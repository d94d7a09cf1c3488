"""The judges: the fast tests, collected once and run in forked processes, each with another mutant active."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
from collections import defaultdict
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

from tests.tiers import NIGHTLY, tier_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SELECTION = ["tests/unit", "tests/contract", "tests/workflow", "tests/simulation/test_scenarios_*.py"]
LEFT_OUT = [  # they test what is not mutated, or processes, which are not
    *(f"tests/unit/{folder}/*" for folder in ("benchmarks", "harness", "local", "templates", "testing", "worker")),
    *(f"tests/unit/test_{name}.py" for name in ("imports", "layers", "names", "pages")),
    *(f"tests/unit/operations/dead_letters/test_{name}.py" for name in ("many", "matrix")),  # minutes in one process
    "tests/unit/operations/cli/test_terminal.py",
    *(f"tests/unit/sql/test_{name}.py" for name in ("contention", "storm", "trips")),  # on a server
    *(f"tests/contract/test_{name}.py" for name in ("packs_isolation", "store_processes")),
]
ENGINES = ["[moto", "[ministack", "[dynamodb_local", "[named", "[postgresql", "[psycopg", "[mariadb"]
"""Left out, too: the store in memory, the benchmark's endpoint and SQLite run in this process."""
PROCESSES = 2
BROKEN, LATE = 70, -signal.SIGALRM

Job = tuple[str, "Callable[[], int]"]
"""Its name, and what its process does."""


def files(patterns: list[str]) -> list[str]:
    """The files of the tests that these select."""
    given = {each for pattern in patterns for each in Path().glob(pattern)}
    left_out = {each for pattern in LEFT_OUT for each in Path().glob(pattern)}
    found = {file for each in given for file in ([each] if each.is_file() else each.rglob("test_*.py"))}
    return sorted(map(str, found - left_out))


class Judges:
    """A plugin of pytest: hands the collected tests to `work` instead of running them."""

    def __init__(self, work: Callable[[Judges], None]) -> None:
        self._work = work
        self._session: Any = None
        self.unfit: list[str] = []
        self._tests: dict[str, pytest.Item] = {}
        self._calls: dict[str, list[str]] = defaultdict(list)
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = filter(_may_judge, items)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._session, self._tests = session, {item.nodeid: item for item in session.items}
        self._work(self)
        return True

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self.unfit.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        for function in state()._stats:
            self._calls[function].append(item.nodeid)
        state()._stats.clear()

    def get_acquainted(self, observed: Path, base: str) -> None:
        """Learn which tests call a function, and how long they take. A file is observed again only if it changes, or
        what all tests rest on. Tests that fail without a mutant judge nothing: they see mutmut's frames in tracebacks.
        """
        by_file = defaultdict(list)
        for test in self._tests:
            by_file[test.partition("::")[0]].append(test)
        digests = {file: hashlib.sha256(base.encode() + Path(file).read_bytes()).hexdigest() for file in by_file}
        reports = {file: observed / digest for file, digest in digests.items()}
        new = [file for file in by_file if not reports[file].exists()]
        for _ in forked((file, partial(self._observe, by_file[file], reports[file])) for file in new):
            pass
        for report in reports.values():
            calls, seconds, failed = json.loads(report.read_text())
            self._seconds |= seconds
            self.unfit += failed
            for function, tests in calls.items():
                self._calls[function] += [test for test in tests if test not in failed]

    def _observe(self, tests: list[str], report: Path) -> int:
        self._run("stats", tests, 0)
        report.write_text(json.dumps([self._calls, self._seconds, self.unfit]))
        return 0

    def _run(self, mutant: str, tests: list[str], patience: float) -> int:
        """Run the tests in a process that ends then: without patience all, else until one fails or takes too long."""
        silenced()
        set_mutant_under_test(mutant)
        for item, following in pairwise([*(self._tests[test] for test in tests), None]):
            try:
                # Its default action ends the process, whatever holds it up.
                signal.setitimer(signal.ITIMER_REAL, patience * (10 + 5 * self._seconds[item.nodeid]))
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            except (KeyboardInterrupt, SystemExit):
                return 1
            if patience and self._session.testsfailed:
                return 1
        return 0

    def verdicts(self, mutants: list[str]) -> Iterator[tuple[str, str]]:
        """Judge these mutants."""
        late = []
        for mutant, code in forked((mutant, partial(self._judge, mutant, 1)) for mutant in mutants):
            if code == LATE:
                late.append(mutant)
            else:
                yield mutant, "survived" if code == 0 else "killed"
        for mutant, code in forked(((mutant, partial(self._judge, mutant, 2)) for mutant in late), processes=1):
            yield mutant, "killed late" if code == LATE else "survived" if code == 0 else "killed"

    def _judge(self, mutant: str, patience: float) -> int:
        """By the quickest tests that call its function, two minutes' worth: some functions are called by thousands."""
        tests = sorted(self._calls[mutant.partition("__mutmut_")[0]], key=lambda test: self._seconds[test])
        worth = accumulate(self._seconds[test] for test in tests)
        return self._run(mutant, [test for test, seconds in zip(tests, worth, strict=True) if seconds <= 120], patience)


def silenced() -> None:
    """Nothing that tests print is shown."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)


def _may_judge(item: pytest.Item) -> bool:
    """Whether it is quick, and runs in this process."""
    engine = "/contract/" in item.nodeid and any(map(item.nodeid.__contains__, ENGINES))
    return not engine and tier_of(item) != NIGHTLY


def forked(jobs: Iterable[Job], processes: int = PROCESSES) -> Iterator[tuple[str, int]]:
    """Do each job in a process group of its own. Yields its exit code."""
    waiting, running = iter(jobs), {}
    try:
        while True:
            while len(running) < processes and (job := next(waiting, None)) is not None:
                if (pid := os.fork()) == 0:
                    os.setpgid(0, 0)
                    code = BROKEN
                    try:
                        code = job[1]()
                    finally:
                        os._exit(code)
                running[pid] = job[0]
            if not running:
                return
            pid, status = os.wait()
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # what its tests have left behind
            name, code = running.pop(pid), os.waitstatus_to_exitcode(status)
            assert code != BROKEN, f"{name} could not be judged"
            yield name, code
    finally:
        for pid in running:  # Ctrl-C does not reach them, because their groups are not the terminal's
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
