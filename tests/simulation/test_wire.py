"""Random simulations in which the workers have the shipped `DynamoDBStore`, behind botocore and a faulty network."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.mutants.catalogue import MUTANTS
from tests.mutants.planting import ROOT, plant
from tests.simulation.simulate import main
from tests.simulation.wire import WireSimulation

if TYPE_CHECKING:
    from pathlib import Path


def test_worlds_on_the_wire_keep_the_invariants_and_settle(capsys: pytest.CaptureFixture[str]) -> None:
    """What DynamoDB is asked and what it answers pass through the shipped statements, packs and errors."""
    assert main(["--kind", "wire", "--seeds", "100"]) == 0

    assert "100 seeds" in capsys.readouterr().out


def test_a_seed_on_the_wire_is_the_same_world_each_time() -> None:
    """Its retries, too, wait in the world's time and draw their jitter from the seed."""

    def trace(seed: int) -> list[str]:
        lines: list[str] = []
        WireSimulation(seed, log=lines.append).run()
        return lines

    assert trace(7) == trace(7) != trace(8)


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        ("reasons are mapped although they are not one an action", 10),
        ("the innocent of a transaction are not sent again", 20),
        ("whoever is named fails its neighbours", 65),
        ("each is told the reasons of all", 28),
        ("a first record is put over another", 0),
        ("a transaction's token is used again by the next claim", 55),
    ],
)
def test_a_bug_planted_in_the_store_is_found_on_the_wire(bug: str, first: int, tmp_path: Path) -> None:
    (mutant,) = [mutant for mutant in MUTANTS if mutant.name == bug]
    environment = os.environ | {"PYTHONPATH": str(plant(mutant, tmp_path))}
    seeds = ["--first", str(first), "--seeds", "1000", "--failures", "1", "--processes", "1", "--unsteered"]
    command = [sys.executable, "-m", "tests.simulation.simulate", "--kind", "wire", *seeds]
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)

    assert "again: python -m tests.simulation.simulate" in ran.stdout, ran.stdout + ran.stderr
