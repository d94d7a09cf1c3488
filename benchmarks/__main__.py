"""`make bench`: measure, compare with the promises, and write results.json, the plots, docs/scale.md
and the table in the README.

FULL=1 also measures the whole grid. ENFORCE=0 reports missed promises without failing. OUTSIDE=1 measures only the
workers outside Lambda, and SQL=1 only handlers that write to PostgreSQL; the other figures stay. AGAINST=../old only
compares this checkout with another one.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import acceptance, against, cost, document, grid, memory, outside, plots, sql, writing
from benchmarks.coldstart import cold_starts
from benchmarks.cpus import keep_off_the_subjects
from benchmarks.endpoint import ROOT, Loopback, running_endpoint
from benchmarks.measure import machine, measured, spread
from benchmarks.validation import differences
from harness.cloud import embedded_cloud
from harness.databases import Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.acceptance import Line
    from benchmarks.cpus import Cpus
    from benchmarks.measure import Rounds, Table
    from benchmarks.settings import Cell

RESULTS = Path(__file__).with_name("results.json")
OUTSIDE_RESULTS = Path(__file__).with_name("outside.json")
SQL_RESULTS = Path(__file__).with_name("sql.json")
DOCS = ROOT / "docs"

ROUNDS = 3
GRID_ROUNDS = 2
COLD_REPEATS = 7


def main() -> int:
    """Measure everything; return 1 if a promise was missed."""
    cpus = keep_off_the_subjects()
    with running_endpoint() as endpoint:
        if other := os.environ.get("AGAINST"):
            print(against.compare(other, endpoint, cpus))
            return 0
        parts = {"": _on_lambda, "OUTSIDE": _outside, "SQL": _sql}
        only = [measure for name, measure in parts.items() if os.environ.get(name) == "1"]
        lines = [line for measure in only or parts.values() for line in measure(endpoint, cpus)]
    return 0 if all(line.met for line in lines) or os.environ.get("ENFORCE") == "0" else 1


def _on_lambda(endpoint: Loopback, cpus: Cpus | None) -> list[Line]:
    """Measure the subjects that handle batches as on Lambda, write the results, and return the promises."""
    started, before = time.monotonic(), machine()
    _validate(endpoint)
    table, runs = _table(endpoint, cpus)
    full = measured(grid.cells(), endpoint, GRID_ROUNDS, cpus) if os.environ.get("FULL") == "1" else {}
    peaks = memory.peaks(acceptance.MEMORY_MESSAGES, endpoint, ROUNDS)
    python313 = os.environ.get("PYTHON_313")
    cold = cold_starts(python313, COLD_REPEATS) if python313 else {}
    lines = list(acceptance.lines(table, runs, peaks, cold))
    results: dict[str, Any] = {
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": before | {"load_average_after": os.getloadavg(), "subjects_cpu": cpus and cpus.own},
        "seconds": round(time.monotonic() - started),
        "cells": [_summary(cell, table[cell]) for cell in sorted(table, key=_place)],
        "grid": [_summary(cell, subjects) for cell, subjects in full.items()],
        "peak_mb": {kind: asdict(one) for kind, one in peaks.items()},
        "cold_start_cpu_ms": {pair: {who: asdict(one) for who, one in both.items()} for pair, both in cold.items()},
        "acceptance": [asdict(line) for line in lines],
    }
    results["cost"] = cost.estimate(results)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    plots.draw(results, DOCS)
    document.fill(DOCS / "scale.md", "results", document.report(results))
    document.fill(ROOT / "README.md", "comparison", document.comparison(results))
    print(f"{document.report(results)}\n\nMeasured in {results['seconds']} s.")
    return lines


def _outside(endpoint: Loopback, cpus: Cpus | None) -> list[Line]:
    """Measure the workers outside Lambda, write the results, and return the promises."""
    started, before = time.monotonic(), machine()
    table = outside.measured(endpoint, cpus)
    lines = list(outside.promises(table, outside.beside_a_long_one_seconds(endpoint)))
    results: dict[str, Any] = {
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": before | {"load_average_after": os.getloadavg(), "subjects_cpu": cpus and cpus.own},
        "seconds": round(time.monotonic() - started),
        "loads": outside.summary(table),
        "acceptance": [asdict(line) for line in lines],
    }
    OUTSIDE_RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    document.fill(DOCS / "scale.md", "results outside Lambda", outside.report(results))
    print(f"{outside.report(results)}\n\nMeasured in {results['seconds']} s.")
    return lines


def _sql(endpoint: Loopback, cpus: Cpus | None) -> list[Line]:
    """Measure handlers that write to PostgreSQL, write the results, and return the promises: none without a server."""
    started, before = time.monotonic(), machine()
    try:
        table = sql.measured(endpoint, cpus)
    except Unavailable as why:
        print(f"Handlers that write to PostgreSQL are not measured: {why}.", file=sys.stderr)
        return []
    lines = list(sql.promises(table))
    results: dict[str, Any] = {
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": before | {"load_average_after": os.getloadavg(), "subjects_cpu": cpus and cpus.own},
        "seconds": round(time.monotonic() - started),
        "loads": sql.summary(table),
        "acceptance": [asdict(line) for line in lines],
    }
    SQL_RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print(f"{sql.report(results)}\n\nMeasured in {results['seconds']} s.")
    return lines


def _validate(endpoint: Loopback) -> None:
    """Stop if the endpoint does not behave like DynamoDB."""
    with embedded_cloud() as cloud:
        found = differences(("ours", "unclaimed", "powertools", "idemkit"), endpoint, cloud.endpoint_url)
    wrong = {subject: ids[:3] for subject, ids in found.items() if ids}
    if wrong:
        raise SystemExit(f"the endpoint and an emulator hold different records, so no figure can be trusted: {wrong}")
    print("every subject leaves the same records on the endpoint as on an emulator", file=sys.stderr, flush=True)


def _table(endpoint: Loopback, cpus: Cpus | None) -> tuple[Table, list[Table]]:
    """All cells, and the runs that decide about a thousand fresh messages: one before all others, one among them, and
    one after them, because their ratios are close to the promises, and the machine's load varies.
    """
    decisive = [acceptance.FRESH[1_000]]
    first = measured(decisive, endpoint, ROUNDS, cpus)
    table = measured(acceptance.CELLS, endpoint, ROUNDS, cpus) | measured(writing.OTHERS, endpoint, 1, cpus)
    return table, [first, table, measured(decisive, endpoint, ROUNDS, cpus)]


def _place(cell: Cell) -> int:
    """A cell's position in the report: those that write come last, in their order."""
    return 1 + [*writing.CELLS, *writing.READING.values(), writing.SENDING].index(cell) if cell.writes else 0


def _summary(cell: Cell, subjects: Mapping[str, Rounds]) -> dict[str, Any]:
    fields = ("wall_ms", "cpu_ms", "requests", "write_units", "read_units")
    return asdict(cell) | {
        "subjects": {
            subject: {field: asdict(spread(rounds, field)) for field in fields}
            | {"cpu_ms_a_message": spread(rounds, "cpu_ms").median / cell.messages, "samples": sum(map(len, rounds))}
            for subject, rounds in subjects.items()
        }
    }


if __name__ == "__main__":
    sys.exit(main())
