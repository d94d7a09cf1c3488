"""Random simulations in which the workers have the shipped `DynamoDBStore`, behind botocore and a faulty network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.simulate import main
from tests.simulation.wire import WireSimulation

if TYPE_CHECKING:
    import pytest


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
