"""Planting one bug in a copy of the code, and running tests against that copy. The checkout is never touched."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.mutant import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.mutant import Mutant

LONGEST_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Killed:
    """A test's assertion failed."""

    test: str
    why: str


@dataclass(frozen=True, slots=True)
class Survived:
    """No assertion failed; `why` says what happened instead."""

    why: str


def plant(mutant: Mutant, folder: Path) -> Path:
    """A copy of the code in `folder`, with the bug in it. Raises DoesNotApply."""
    text = mutant.planted((ROOT / mutant.file).read_text(encoding="utf-8"))
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / mutant.file).write_text(text, encoding="utf-8")
    return copy


def run_mutant(mutant: Mutant, by_scenarios: Sequence[str] = ()) -> Killed | Survived:
    """Plant a bug and run tests against it. It is killed if an assertion fails in one of the mutant's own tests, where
    it has any, and in every one of `by_scenarios`. Raises DoesNotApply.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        plant(mutant, folder)
        results = [_run(folder, mutant.where, failures=1)] if mutant.where else []
        if by_scenarios:
            results.append(_run(folder, by_scenarios, failures=len(by_scenarios)))
    survived = [result for result in results if isinstance(result, Survived)]
    return next(iter([*survived, *results]), Survived("no test is named that should fail"))


def _run(folder: Path, tests: Sequence[str], *, failures: int) -> Killed | Survived:
    """Run tests against the copy in `folder` until so many of them have failed; the first that did."""
    file = folder / "failures.json"
    file.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(folder / "src"),
        "MUTANT_SOURCE": str(folder),
        "MUTANT_FAILURES": str(file),
        "MUTANT_FAILURES_WANTED": str(failures),
    }
    quiet = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "tests.mutants.failures"]
    command = [sys.executable, "-m", "pytest", *quiet, *tests]
    try:
        completed = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Survived(f"the tests did not end within {LONGEST_SECONDS} seconds")
    failed = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if len(failed) == failures:
        return Killed(**next(iter(failed.values())))
    passed = [test for test in tests if test not in failed] if failures > 1 or failed else []
    last = (completed.stdout + completed.stderr).strip().splitlines()[-1:]
    return Survived(f"{' '.join([*passed, 'pytest'])} ended with {completed.returncode}: {''.join(last)}")
