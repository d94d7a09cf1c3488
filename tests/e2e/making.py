"""How tests run make and what it builds: without the state of the make that runs them, and with which Pythons."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

# `make test` hands its own state down to any make that a test starts.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}

# What is installed must come from its own environment.
UNAFFECTED = {
    name: value for name, value in ENVIRONMENT.items() if name not in {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
}


def run(
    *command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] = UNAFFECTED, status: int = 0
) -> subprocess.CompletedProcess[str]:
    """Run a command that has to end with this status, within five minutes."""
    done = subprocess.run(
        [str(each) for each in command], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done


def checkout(folder: Path) -> Path:
    """A copy of the project in this folder, with nothing in it that a target has made."""
    made = [line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if not line.startswith("#")]
    shutil.copytree(ROOT, folder / "checkout", ignore=shutil.ignore_patterns(".git", *made))
    return folder / "checkout"


def files(folder: Path) -> dict[str, bytes]:
    """The contents of all files below a folder, by their path in it."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def library_files(folder: Path) -> set[str]:
    """The files below a folder that holds the library, but no bytecode."""
    found = {path.relative_to(folder) for path in (folder / "idempotent_receiver").rglob("*") if path.is_file()}
    return {str(path) for path in found if "__pycache__" not in path.parts}


def interpreter(runtime: str) -> str | None:
    """The Python of that version that the build takes for its bytecode, if one runs here."""
    asked = "include Makefile\nasked: ; @echo $(call installed,$(RUNTIME))\n"
    said = subprocess.run(
        ["make", "--silent", "--file", "-", "asked", f"RUNTIME={runtime}"],
        cwd=ROOT,
        env=ENVIRONMENT,
        input=asked,
        capture_output=True,
        text=True,
        check=True,
    )
    return said.stdout.strip() or None
