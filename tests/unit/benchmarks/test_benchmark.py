"""What the benchmark measures and promises: its batches, how promises are judged, and the report."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from benchmarks import acceptance, outside, writing
from benchmarks.draining import Drained
from benchmarks.measure import Spread
from benchmarks.worker import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.measure import Table
    from benchmarks.settings import Cell

SAMPLE = Sample(wall_ms=1.0, cpu_ms=1.0, requests=2, write_units=100.0, read_units=0.0)
MEMORY = dict.fromkeys(("empty", "imports", "ours"), Spread.of([1.0]))


def measured(cells: Sequence[Cell], **wall_ms: float) -> Table:
    """One round, with so many milliseconds for each subject; it takes Powertools a thousand."""
    taken = {"powertools": 1_000.0, **wall_ms}
    return {cell: {who: [[replace(SAMPLE, wall_ms=taken.get(who, 1.0))]] for who in cell.subjects} for cell in cells}


def line(what: str, *runs: Table) -> acceptance.Line:
    """The one promise of that name; the first run is the one with all cells."""
    (found,) = (one for one in acceptance.lines(runs[0], runs, MEMORY, {}) if one.what == what)
    return found


@pytest.fixture
def everything() -> Table:
    return measured([*acceptance.CELLS, *writing.OTHERS])


def test_a_thousand_messages_are_judged_by_the_median_of_three_runs(everything: Table) -> None:
    """One run that went badly does not decide, two do."""
    thousand = [acceptance.FRESH[1_000]]
    good, bad = (measured(thousand, ours=ours, bare=1.0) for ours in (1.2, 2.0))
    what = "times as long as a bare client, 1,000 fresh"

    assert line(what, everything, good, bad).met
    assert not line(what, everything, bad, bad).met


@pytest.mark.parametrize(("suffix", "subject", "most"), [("", "ours", 8), (", without claims", "unclaimed", 2)])
def test_more_requests_than_promised_are_not_met(everything: Table, suffix: str, subject: str, most: int) -> None:
    hundred = writing.FRESH[100]
    what = f"requests, {hundred.name}{suffix}"

    for requests in (most, most + 1):
        everything[hundred][subject] = [[replace(SAMPLE, requests=requests)]]
        assert line(what, everything).met == (requests <= most)


def drained(**messages_a_second: float) -> outside.Table:
    """One round, in which each subject drains so many messages a second."""
    return {
        load: {
            name: [
                Drained(
                    messages_a_second=messages_a_second.get(name, 1_000.0),
                    requests_a_message=0.5,
                    cpu_ms_a_message=1.0,
                    write_units_a_message=2.0,
                )
            ]
            for name, _ in load.messages
        }
        for load in outside.LOADS
    }


def test_workers_outside_lambda_are_judged_by_each_rounds_requests_and_by_the_median_speed() -> None:
    good, bad = drained(idemkit=200.0), drained(idemkit=201.0)
    assert [line.met for line in outside.promises(good)] == [True] * 8
    assert [line.met for line in outside.promises(bad)] == [True] * 4 + [False] * 4

    mixed = {
        load: {name: [*good[load][name], *bad[load][name], *good[load][name]] for name in good[load]} for load in good
    }
    assert all(line.met for line in outside.promises(mixed))
    one = mixed[outside.LOADS[0]][outside.OURS]
    one[1] = replace(one[1], requests_a_message=0.501)
    assert [line.met for line in outside.promises(mixed)] == [False] + [True] * 7
