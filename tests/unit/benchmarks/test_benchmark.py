"""What the benchmark measures and promises: its batches, how promises are judged, and the report."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks import acceptance, cost, document, outside, writing
from benchmarks.draining import Drained, running
from benchmarks.measure import Spread, spread
from benchmarks.settings import event, failing
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


@pytest.mark.parametrize(("messages", "share", "failed"), [(10, 0.1, [9]), (200, 0.01, [99, 199]), (100, 0.0, [])])
def test_messages_that_fail_are_spread_evenly(messages: int, share: float, failed: list[int]) -> None:
    batch = event(messages, failing=share)

    ids = [record["messageId"] for record in batch["Records"]]
    assert failing(batch) == [ids[place] for place in failed]


@pytest.mark.parametrize(("hot_items", "items"), [(0, 100), (10, 10), (1, 1)])
def test_messages_share_so_many_items(hot_items: int, items: int) -> None:
    bodies = [json.loads(record["body"]) for record in event(100, hot_items=hot_items)["Records"]]

    assert len({body["account"] for body in bodies}) == items


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


def test_the_report_has_every_batch(everything: Table) -> None:
    """With a price for whoever handles messages."""
    fields = ("wall_ms", "cpu_ms", "requests", "write_units", "read_units")
    cells: list[dict[str, Any]] = [
        asdict(cell)
        | {
            "subjects": {
                who: {field: asdict(spread(rounds, field)) for field in fields} | {"cpu_ms_a_message": 0.1}
                for who, rounds in subjects.items()
            }
        }
        for cell, subjects in everything.items()
    ]
    host = dict.fromkeys(("python", "cpus", "aws-lambda-powertools", "idemkit", "botocore"), "1")
    results = {"measured": "today", "machine": host | {"load_average": [0.1]}, "cells": cells, "acceptance": []}

    text = document.report(results | {"cost": cost.estimate(results)})

    rows = [row for row in text.splitlines() if row.startswith("| 1,000 | own | 10% | ")]
    assert [row.split(" | ")[3] for row in rows] == ["ours", "unclaimed"]
    assert all(row.endswith(" 0.06 |") for row in rows)
    assert all(f"| {cell.name} | ours | " in text for cell in acceptance.CELLS if not cell.writes)


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


def test_the_cpu_time_of_a_worker_is_that_of_all_its_processes() -> None:
    """Of children that run, and of those that have ended."""
    burn = "import time\nwhile time.process_time() < 0.3: pass\n"
    parent = (
        "import subprocess, sys\n"
        f"subprocess.run([sys.executable, '-c', {burn!r}])\n"
        f"subprocess.run([sys.executable, '-c', {burn + 'time.sleep(60)'!r}])\n"
    )
    with running([[sys.executable, "-c", parent]], {}, None) as worker:
        worker.wait(lambda: worker.cpu_seconds() >= 0.5)
