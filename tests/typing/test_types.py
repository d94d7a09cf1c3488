"""The public types are what users of type checkers rely on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import idempotent_receiver

ROOT = Path(__file__).resolve().parents[2]
API = "tests/typing/api.py"
BASEDPYRIGHT = ROOT / ".tools/basedpyright/bin/basedpyright"


def checked(*command: str | Path) -> str:
    """What a type checker has against the file; empty if nothing."""
    imported = Path(idempotent_receiver.__file__).parents[1]  # a copy with a planted bug may be imported
    environment = os.environ | {"MYPYPATH": str(imported)}
    ran = subprocess.run([*command, API], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def test_mypy_sees_the_public_types() -> None:
    assert checked(sys.executable, "-m", "mypy", "--warn-unused-ignores") == ""


@pytest.mark.nightly
def test_basedpyright_sees_the_public_types() -> None:
    if not BASEDPYRIGHT.exists():
        pytest.skip("`make nightly` installs basedpyright")
    assert checked(BASEDPYRIGHT, "--level", "error", "--pythonpath", sys.executable) == ""
