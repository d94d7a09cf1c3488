"""`make bench`: measure, compare with what was promised, write results.json and the plots.

FULL=1 measures the whole grid besides. ENFORCE=0 reports what is not met without failing for it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import acceptance, cost, document, grid, memory, plots
from benchmarks.coldstart import cold_starts, find_python313
from benchmarks.cpus import keep_off_the_subjects
from benchmarks.endpoint import ROOT, Loopback, running_endpoint
from benchmarks.measure import Table, cpu, machine, measured, ratio, wall
from benchmarks.validation import differences
from local.cloud import embedded_cloud

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.acceptance import Line
    from benchmarks.measure import Cell, Spread

RESULTS = Path(__file__).with_name("results.json")
DOCS = ROOT / "docs"

ROUNDS = 3
GRID_ROUNDS = 2
COLD_REPEATS = 7


def main() -> int:
    """Measure all; the exit status says whether all that is wanted was met."""
    started = time.monotonic()
    before = machine()
    cpus = keep_off_the_subjects()
    with running_endpoint() as endpoint:
        _validate(endpoint)
        table = measured(acceptance.CELLS, endpoint, ROUNDS, _say, cpus)
        full = measured(grid.cells(), endpoint, GRID_ROUNDS, _say, cpus) if os.environ.get("FULL") == "1" else {}
        peaks = memory.peaks(acceptance.MEMORY_MESSAGES, endpoint, ROUNDS)
    python313 = find_python313()
    cold = cold_starts(python313, COLD_REPEATS) if python313 else None
    lines = list(acceptance.lines(table, peaks, cold))
    results: dict[str, Any] = {
        "measured": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": before | {"load_average_after": os.getloadavg(), "subjects_cpu": cpus and cpus.own},
        "seconds": round(time.monotonic() - started),
        "cells": [_told(cell, of) for cell, of in table.items()],
        "grid": [_told(cell, of) for cell, of in full.items()],
        "peak_mb": {kind: asdict(spread) for kind, spread in peaks.items()},
        "cold_start_cpu_ms": _spreads(cold),
        "acceptance": [asdict(line) for line in lines],
    }
    results["cost"] = cost.estimate(results)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    plots.draw(results, DOCS)
    document.fill(results, DOCS / "scale.md")
    return _judge(table, lines, results)


def _validate(endpoint: Loopback) -> None:
    """Stop at once if our endpoint is no stand-in for what it stands for."""
    with embedded_cloud() as cloud:
        found = differences(("ours", "powertools", "idemkit"), endpoint, cloud.endpoint_url)
    wrong = {subject: ids[:3] for subject, ids in found.items() if ids}
    if wrong:
        raise SystemExit(f"the endpoint is not to be trusted: it and an emulator hold different records: {wrong}")
    _say("every subject leaves the same records on the endpoint as on an emulator")


def _told(cell: Cell, of: Mapping[str, Any]) -> dict[str, Any]:
    told = asdict(cell)
    told["subjects"] = {subject: one.told(cell.messages) for subject, one in of.items()}
    told["as_much_as_ours"] = {
        subject: {"wall": asdict(ratio(one, of["ours"], wall)), "cpu": asdict(ratio(one, of["ours"], cpu))}
        for subject, one in of.items()
        if subject != "ours"
    }
    return told


def _spreads(cold: Mapping[str, Mapping[str, Spread]] | None) -> Any:
    return {name: {who: asdict(spread) for who, spread in both.items()} for name, both in (cold or {}).items()}


def _judge(table: Table, lines: Sequence[Line], results: Mapping[str, Any]) -> int:
    print(f"\n{_overview(table)}\n\n{acceptance.shown(list(lines))}\n\n{cost.shown(results['cost'])}\n")
    host = results["machine"]
    print(f"{results['seconds']} s on {host['cpus']} CPUs, Python {host['python']}, load {host['load_average'][0]:.1f}")
    missed = [line for line in lines if not line.met]
    return 1 if missed and os.environ.get("ENFORCE") != "0" else 0


def _overview(table: Table) -> str:
    rows = [f"{'':<40} {'':<11} {'wall ms':>24} {'CPU ms a message':>17} {'requests':>9} {'writes':>7} {'reads':>6}"]
    for cell, of in table.items():
        for subject, one in of.items():
            cpu_ms = one.cpu_ms.median / cell.messages
            counts = [one.exact(name).median for name in ("requests", "write_units", "read_units")]
            told = "{:>9.0f} {:>7.0f} {:>6.0f}".format(*counts)
            rows.append(f"{cell.name:<40} {subject:<11} {one.wall_ms!s:>24} {cpu_ms:>17.3f} {told}")
    return "\n".join(rows)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
