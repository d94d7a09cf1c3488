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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path("src") / "idempotent_receiver"
LONGEST_SECONDS = 120


class Gone(Exception):
    """A mutant's text is not in its file exactly once: the code has moved on, and the catalogue has not."""


@dataclass(frozen=True, slots=True)
class Killed:
    """A test's assertion failed."""

    test: str
    why: str


@dataclass(frozen=True, slots=True)
class Survived:
    """No assertion failed; `why` says what happened instead."""

    why: str


def mutated(mutant: Mutant, source: str) -> str:
    """The source with the bug in it. Raises Gone."""
    found = source.count(mutant.old)
    if found != 1:
        raise Gone(f"{mutant.name}: its text occurs {found} times in {mutant.file}, not once")
    return source.replace(mutant.old, mutant.new)


def plant(mutant: Mutant, folder: Path) -> Path:
    """A copy of the code in `folder`, with the bug in it. Raises Gone, and SyntaxError for a bug that is no Python."""
    copy = folder / "src"
    shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "idempotent_receiver" / mutant.file
    text = mutated(mutant, file.read_text(encoding="utf-8"))
    compile(text, mutant.file, "exec")
    file.write_text(text, encoding="utf-8")
    return copy


def judge(mutant: Mutant, scenarios: Sequence[str] = ()) -> Killed | Survived:
    """Plant a bug, and run its tests until an assertion fails in one of them, and in each of the `scenarios`' tests.
    Raises Gone.
    """
    with tempfile.TemporaryDirectory(prefix="mutant-") as name:
        folder = Path(name)
        plant(mutant, folder)
        verdicts = [_run(folder, mutant.where, wanted=1)] if mutant.where else []
        if scenarios:
            verdicts.append(_run(folder, scenarios, wanted=len(scenarios)))
    survived = [verdict for verdict in verdicts if isinstance(verdict, Survived)]
    return next(iter([*survived, *verdicts]), Survived("no test is named that should see it"))


def _run(folder: Path, tests: Sequence[str], *, wanted: int) -> Killed | Survived:
    """Run the tests against the copy in `folder` until so many of them have seen the bug; the first that did."""
    verdict = folder / "verdict.json"
    verdict.unlink(missing_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(folder / "src"),
        "MUTANT_VERDICT": str(verdict),
        "MUTANT_SOURCE": str(folder),
        "MUTANT_WITNESSES": str(wanted),
    }
    quiet = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "tests.mutants.witness"]
    command = [sys.executable, "-m", "pytest", *quiet, *tests]
    try:
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Survived(f"no verdict within {LONGEST_SECONDS} seconds")
    seen = json.loads(verdict.read_text(encoding="utf-8")) if verdict.exists() else {}
    if len(seen) == wanted:
        return Killed(**next(iter(seen.values())))
    unseen = [test for test in tests if test not in seen] if wanted > 1 or seen else []
    last = (ran.stdout + ran.stderr).strip().splitlines()[-1:]
    return Survived(f"{' '.join([*unseen, 'pytest'])} ended with {ran.returncode}: {''.join(last)}")
