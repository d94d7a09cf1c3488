"""Runs the simulation and the exploration on a copy of the library in which a bug of the catalogue is planted."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import ROOT, plant

if TYPE_CHECKING:
    from pathlib import Path


def run_planted(bug: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """What Python says with these arguments."""
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == bug]
    planted = folder / "src"
    if not planted.exists():
        plant(mutant, folder)
    environment = os.environ | {"PYTHONPATH": str(planted)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
