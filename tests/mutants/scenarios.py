"""The scenarios' tests and the bugs that they name: `@pytest.mark.scenario("S17", mutant="one ok is all ok")`.

A mark without a mutant says why none can turn the test red: `why_none="..."`. Run as a pytest plugin, this module
writes the marks of all collected tests down; imported, it lets pytest collect and reads them.
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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pytest

ROOT = Path(__file__).resolve().parents[2]
NUMBERS = [f"S{number:02}" for number in range(1, 73)]
MARK = "pytest.mark.scenario("


@dataclass(frozen=True, slots=True)
class Told:
    """One scenario, a test of it (without its parameters), and the bug that turns that test red, or why none can."""

    scenario: str
    test: str
    mutant: str | None = None
    why_none: str | None = None


def told() -> list[Told]:
    """What the marks of all tests say, in the scenarios' order. Raises RuntimeError where pytest cannot collect."""
    files = [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("tests/**/test_*.py")) if MARK in _text(path)]
    with tempfile.TemporaryDirectory(prefix="scenarios-") as folder:
        roll = Path(folder) / "roll.json"
        quiet = ["--collect-only", "-q", "-p", "no:cacheprovider", "-p", "tests.mutants.scenarios"]
        environment = os.environ | {"SCENARIO_ROLL": str(roll)}
        command = [sys.executable, "-m", "pytest", *quiet, *files]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"the scenarios' tests cannot be collected:\n{ran.stdout}{ran.stderr}")
        return [Told(**each) for each in json.loads(roll.read_text(encoding="utf-8"))]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def witnesses(mutant: str, marks: Iterable[Told]) -> list[str]:
    """The tests that say they see this bug."""
    return sorted({each.test for each in marks if each.mutant == mutant})


def pytest_collection_finish(session: pytest.Session) -> None:
    """Write every mark down once, however many parameters its test has."""
    marks = {mark for item in session.items for mark in _marks(item)}
    roll = sorted(marks, key=lambda one: (one.scenario, one.test))
    Path(os.environ["SCENARIO_ROLL"]).write_text(json.dumps([asdict(each) for each in roll]), encoding="utf-8")


def _marks(item: pytest.Item) -> Sequence[Told]:
    test = item.nodeid.partition("[")[0]
    return [Told(scenario, test, **mark.kwargs) for mark in item.iter_markers("scenario") for scenario in mark.args]
