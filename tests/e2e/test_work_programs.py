"""Handlers that start processes of their own, in `receiver work` on the local cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.e2e.test_work import Place

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.deployed import Aws

HANDLER = "worker_programs:handle"


@pytest.fixture
def place(aws: Aws, tmp_path: Path) -> Place:
    return Place(aws, tmp_path)


@pytest.mark.parametrize("does", ["reads standard input", "runs a program that reads standard input", "uses a pool"])
def test_what_ends_elsewhere_ends_in_a_worker(place: Place, does: str) -> None:
    """Its standard input is empty, as on Lambda, and what it forks ends at SIGTERM, which is how a pool is ended."""
    place.send("first", does=does)
    place.send("second", does="nothing")

    with place.worker(handler=HANDLER):
        place.wait_for(place.settled, 20)

    place.once()


def test_a_forked_process_that_comes_back_from_the_handler_goes_no_further(place: Place) -> None:
    """It would run the rest of the batch a second time."""
    for number in range(5):
        place.send(f"neighbour-{number}", does="nothing")
    place.send("forks", does="forks")
    for number in range(5, 9):
        place.send(f"neighbour-{number}", does="nothing")

    with place.worker(handler=HANDLER):
        place.wait_for(place.settled, 20)

    place.once()
    assert len(place.of("forks", "end")) == 2
    assert [len(place.of(name)) for name in place.sent if name != "forks"] == [1] * 9
