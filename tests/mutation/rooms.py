"""The rooms of the mutated source, which are its folders: those that a commit touches, their files, and their tests."""

from __future__ import annotations

import random
import subprocess
import tomllib
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOST = 2
"""So many rooms are judged in about three minutes on two processors."""
OFF_THE_PATH = ("app", "operations", "process_end")
ON_THE_PATH = ["tests/contract", "tests/simulation/test_scenarios_*.py", "tests/unit/sqs"]
"""Tests of the data path as a whole, which reach none of those rooms: a consumer's test most of `batch`."""


def changed(commit: str) -> list[str]:
    """The files that a commit touches, from the repository's root; none if its parent is not there."""
    command = ["git", "diff", "--name-only", f"{commit}~1", commit]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()


def drawn(changed: list[str], seed: str) -> list[str]:
    """The rooms of these files: of many, some; if none is mutated, any one."""
    mutated = files()
    touched = sorted({room_of(file) for file in changed if file in mutated})
    draw = random.Random(seed)
    return draw.sample(touched, min(MOST, len(touched))) or [draw.choice(sorted(set(map(room_of, mutated))))]


def room_of(file: str) -> str:
    """A folder such as `sqs` or `operations/cli`; all of `app` is one room, and `process_end` has one file."""
    within = file.removeprefix("src/").removeprefix("idempotent_receiver/")
    folder, _, name = within.rpartition("/")
    return "app" if folder.startswith("app") else folder or name.removesuffix(".py")


def files() -> list[str]:
    """All files that are mutated, from the repository's root."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutmut"]["only_mutate"]
    there = (str(file.relative_to(ROOT)) for file in sorted((ROOT / "src").rglob("*.py")))
    return [file for file in there if any(fnmatch(file, pattern) for pattern in patterns)]


def tests(rooms: list[str]) -> list[str]:
    """The files and folders of the tests that can reach these rooms."""
    named = (f"tests/unit/{room}" for room in rooms)
    own = [each if (ROOT / each).is_dir() else each.replace("unit/", "unit/test_") + ".py" for each in named]
    on_the_path = [] if all(room.startswith(OFF_THE_PATH) for room in rooms) else ON_THE_PATH
    return [*dict.fromkeys([*own, *on_the_path])]
