"""The judges: the fast tests, collected once and run in forked processes, each with another mutant active."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import time
from collections import defaultdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SELECTION = ["tests/unit", "tests/contract", "tests/simulation/test_scenarios_*.py"]
LEFT_OUT = [  # they test what is not mutated, or processes, which are not
    *(f"tests/unit/{folder}/*" for folder in ("benchmarks", "local", "templates", "testing", "worker")),
    *(f"tests/unit/test_{name}.py" for name in ("imports", "layers")),
    *(f"tests/contract/test_{name}.py" for name in ("packs_isolation", "store_processes")),
]
ENGINES = ["[moto", "[ministack", "[dynamodb_local", "[named"]
"""Left out, too: the store in memory and the benchmark's endpoint run in this process."""
PROCESSES = 2
BROKEN = 70

Job = tuple[str, "Callable[[], int]", float]
"""Its name, what its process does, and the seconds after which it is killed."""


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
        items[:] = [
            item for item in items if "/contract/" not in item.nodeid or not any(map(item.nodeid.__contains__, ENGINES))
        ]

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
        for _ in forked((file, partial(self._observe, by_file[file], reports[file]), 900.0) for file in new):
            pass
        for report in reports.values():
            calls, seconds, failed = json.loads(report.read_text())
            self._seconds |= seconds
            self.unfit += failed
            for function, tests in calls.items():
                self._calls[function] += [test for test in tests if test not in failed]

    def _observe(self, tests: list[str], report: Path) -> int:
        self._run("stats", tests, stop=False)
        report.write_text(json.dumps([self._calls, self._seconds, self.unfit]))
        return 0

    def _run(self, mutant: str, tests: list[str], *, stop: bool = True) -> int:
        """Run the tests, until one fails, in a process that ends then."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(nowhere, standard)
        set_mutant_under_test(mutant)
        for item, following in pairwise([*(self._tests[test] for test in tests), None]):
            try:
                item.ihook.pytest_runtest_protocol(item=item, nextitem=following)
            except (KeyboardInterrupt, SystemExit):
                return 1
            if stop and self._session.testsfailed:
                return 1
        return 0

    def verdicts(self, mutants: list[str]) -> Iterator[tuple[str, str]]:
        """Judge these mutants, the quickest tests of each first."""
        late = []
        for mutant, code in forked(map(self._job, mutants)):
            if code is None:
                late.append(mutant)
            else:
                yield mutant, "survived" if code == 0 else "killed"
        for mutant, code in forked((self._job(mutant, 2) for mutant in late), processes=1):
            yield mutant, "killed late" if code is None else "survived" if code == 0 else "killed"

    def _job(self, mutant: str, patience: float = 1) -> Job:
        tests = sorted(self._calls[mutant.partition("__mutmut_")[0]], key=lambda test: self._seconds[test])
        limit = 20 + 4 * sum(self._seconds[test] for test in tests)
        return mutant, partial(self._run, mutant, tests), patience * limit


def forked(jobs: Iterable[Job], processes: int = PROCESSES) -> Iterator[tuple[str, int | None]]:
    """Do each job in a process group of its own. Yields its exit code, or None if it was killed for being late."""
    waiting, running = iter(jobs), {}
    while True:
        while len(running) < processes and (job := next(waiting, None)) is not None:
            if (pid := os.fork()) == 0:
                os.setpgid(0, 0)
                code = BROKEN
                try:
                    code = job[1]()
                finally:
                    os._exit(code)
            running[pid] = (job[0], time.monotonic() + job[2])
        if not running:
            return
        time.sleep(0.005)
        for pid, (name, end) in list(running.items()):
            if late := time.monotonic() > end:
                _kill(pid)
            ended, status = os.waitpid(pid, 0 if late else os.WNOHANG)
            if ended:
                _kill(pid)  # what its tests have left behind
                del running[pid]
                code = None if late else os.waitstatus_to_exitcode(status)
                assert code != BROKEN, f"{name} could not be judged"
                yield name, code


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
