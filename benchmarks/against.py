"""`make bench AGAINST=../old`: the speed of this checkout against another one's, in one run.

For each size, the two handle fresh messages in separate processes, one directly after the other and each first in every
other pair, so that other load affects both alike. Only the public names in the other checkout's `src` are used, because
its modules may be laid out differently.
"""

from __future__ import annotations

import os
import statistics
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import measured, ratios, spread
from benchmarks.settings import Cell

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.cpus import Cpus
    from benchmarks.endpoint import Loopback
    from benchmarks.measure import Rounds

SIZES = (1, 10, 100, 1_000)
PAIRS = int(os.environ.get("N") or 20)
COUNTS = ("requests", "write_units", "read_units")


def compare(other: str, endpoint: Loopback, cpus: Cpus | None) -> str:
    """A table of this checkout's costs as multiples of the other's, and the counts of both."""
    if not Path(other, "src", "idempotent_receiver").is_dir():
        raise SystemExit(f"AGAINST={other} is not a checkout of this project")
    subjects = ("ours", f"ours@{other}")
    cells = [Cell(name=f"{size:,} fresh", messages=size, subjects=subjects) for size in SIZES]
    table = measured(cells, endpoint, PAIRS, cpus)
    return "\n".join(_rows(other, {cell.name: list(both.values()) for cell, both in table.items()}))


def _rows(other: str, table: dict[str, list[Rounds]]) -> Iterator[str]:
    yield f"This checkout / {other}: medians of {PAIRS} paired ratios (with their quartiles); counts of both."
    yield ""
    yield "| batch | wall time | CPU time | requests | write units | read units |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, (here, there) in table.items():
        times = (_quartiles(ratios(here, there, field)) for field in ("wall_ms", "cpu_ms"))
        counts = (f"{spread(here, field).median:,.0f} / {spread(there, field).median:,.0f}" for field in COUNTS)
        yield f"| {name} | {' | '.join([*times, *counts])} |"


def _quartiles(values: list[float]) -> str:
    first, median, third = statistics.quantiles(values, n=4)
    return f"{median:.3f} ({first:.3f} to {third:.3f})"
