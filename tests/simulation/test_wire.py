"""Random simulations in which the workers have the shipped `DynamoDBStore`, behind botocore and a faulty network."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.simulation.plan import CLOCKS_OFF_SECONDS
from tests.simulation.planted import run_planted
from tests.simulation.simulate import main
from tests.simulation.wire import WireSimulation

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("seeds", [10, 100])
def test_worlds_on_the_wire_keep_the_invariants_and_settle(seeds: int, capsys: pytest.CaptureFixture[str]) -> None:
    """What DynamoDB is asked and what it answers pass through the shipped statements, packs and errors."""
    assert main(["--kind", "wire", "--seeds", str(seeds)]) == 0

    assert f"{seeds} seeds" in capsys.readouterr().out


def test_no_message_is_received_before_it_was_sent() -> None:
    """On a FIFO queue one that was redriven would stand before it, and be missed when it starts."""
    for seed in range(20):
        messages = WireSimulation(seed, CLOCKS_OFF_SECONDS).messages
        assert [each.id for each in messages if each.sent_at > each.visible_at] == []


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
    seeds = ["--first", str(first), "--seeds", "1000", "--failures", "1", "--processes", "1", "--unsteered"]
    ran = run_planted(bug, tmp_path, "-m", "tests.simulation.simulate", "--kind", "wire", *seeds)

    assert "again: python -m tests.simulation.simulate" in ran.stdout, ran.stdout + ran.stderr
