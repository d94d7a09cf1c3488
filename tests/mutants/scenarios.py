"""The scenarios' tests and the bugs that they name: `@pytest.mark.scenario("S17", mutant="one ok is all ok")`.

A mark without a mutant says why no bug can make the test fail: `why_none="..."`. Run as a pytest plugin, this module
writes the marks of all collected tests to a file; imported, it lets pytest collect them and reads that file.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.mutant import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

NUMBERS = [f"S{number:02}" for number in range(1, 73)]
MARK = "pytest.mark.scenario("


@dataclass(frozen=True, slots=True)
class ScenarioMark:
    """One scenario, a test of it (without its parameters), and the bug that makes that test fail, or why none can."""

    scenario: str
    test: str
    mutant: str | None = None
    why_none: str | None = None


def scenario_marks() -> list[ScenarioMark]:
    """The marks of all tests, in the scenarios' order. Raises RuntimeError where pytest cannot collect them."""
    files = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/**/test_*.py")) if MARK in _text(path)]
    with tempfile.TemporaryDirectory(prefix="scenarios-") as folder:
        marks = Path(folder) / "marks.json"
        quiet = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.scenarios"]
        environment = os.environ | {"SCENARIO_MARKS": str(marks)}
        command = [sys.executable, "-m", "pytest", *quiet, *files]
        completed = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if completed.returncode != 0:
            raise RuntimeError(f"the scenarios' tests cannot be collected:\n{completed.stdout}{completed.stderr}")
        return [ScenarioMark(**each) for each in json.loads(marks.read_text(encoding="utf-8"))]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def scenario_tests(mutant: str, marks: Iterable[ScenarioMark]) -> list[str]:
    """The tests whose marks name this bug."""
    return sorted({each.test for each in marks if each.mutant == mutant})


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write each mark once, however many parameters its test has."""
    marks = {mark for item in session.items for mark in _marks(item)}
    ordered = sorted(marks, key=lambda one: (one.scenario, one.test))
    Path(os.environ["SCENARIO_MARKS"]).write_text(json.dumps([asdict(each) for each in ordered]), encoding="utf-8")


def _marks(item: pytest.Item) -> Sequence[ScenarioMark]:
    test = item.nodeid.partition("[")[0]
    marks = item.iter_markers("scenario")
    return [ScenarioMark(scenario, test, **mark.kwargs) for mark in marks for scenario in mark.args]
