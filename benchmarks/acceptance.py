"""The promises that a run must keep, each with what is wanted and what was measured, and the cells that they need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.measure import Spread, Table, ratios, spread
from benchmarks.settings import Cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PEERS = ("ours", "bare", "powertools", "idemkit")
"""Ours and the bare client are neighbours: their ratio is the narrowest, and the machine's load comes and goes."""

REDELIVERS = ("ours", "powertools", "idemkit")
"""Without the bare client, which only sends the requests that fresh messages need."""

FRESH = {
    10: Cell(name="10 fresh", messages=10, subjects=PEERS, repeats=5),
    100: Cell(name="100 fresh", messages=100, subjects=PEERS, repeats=3),
    1_000: Cell(name="1,000 fresh", messages=1_000, subjects=PEERS),
    10_000: Cell(name="10,000 fresh", messages=10_000, subjects=("ours", "bare")),
}
REDELIVERED = {
    10: Cell(name="10 redelivered", messages=10, subjects=REDELIVERS, repeats=3, duplicates=1.0),
    100: Cell(name="100 redelivered", messages=100, subjects=REDELIVERS, duplicates=1.0),
    1_000: Cell(name="1,000 redelivered", messages=1_000, subjects=("ours",), duplicates=1.0),
}
HALF = Cell(name="100, half redelivered", messages=100, subjects=REDELIVERS, duplicates=0.5)
WRITING = Cell(
    name="100 fresh, each with a write of its own", messages=100, subjects=("ours", "powertools"), writes=True
)
ON_ALL_CPUS = Cell(name="1,000 fresh, on all CPUs", messages=1_000, subjects=("ours", "bare"), pinned=False)
CELLS = (*FRESH.values(), HALF, *REDELIVERED.values(), WRITING, ON_ALL_CPUS)

TIMES_FASTER = {10: 8.0, 100: 35.0, 1_000: 55.0}
TIMES_LESS_CPU = {10: 4.0, 100: 7.0, 1_000: 7.0}
TIMES_THE_LIMIT = {100: 1.6, 1_000: 1.6}
MEMORY_MB = 60.0
MEMORY_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One promise."""

    what: str
    wanted: str
    measured: str
    met: bool


def lines(table: Table, peaks: Mapping[str, Spread], cold: Mapping[str, Mapping[str, Spread]]) -> Iterator[Line]:
    """All promises."""
    yield from _requests(table)
    for messages, least in TIMES_FASTER.items():
        yield _at_least("times faster than Powertools", FRESH[messages], table, "wall_ms", least)
    for messages, least in TIMES_LESS_CPU.items():
        yield _at_least("times Powertools' CPU is ours", FRESH[messages], table, "cpu_ms", least)
    for messages, most in TIMES_THE_LIMIT.items():
        cell = FRESH[messages]
        times = Spread.of(ratios(table[cell]["ours"], table[cell]["bare"], "wall_ms"))
        what = f"times as long as a bare client, {cell.name}"
        yield Line(what, f"at most {most:g}", str(times), times.median <= most)
    yield _memory(peaks)
    yield from _write_units(table)
    yield from _cold(cold)


def _requests(table: Table) -> Iterator[Line]:
    for messages, cell in FRESH.items():
        requests, most = spread(table[cell]["ours"], "requests").most, 2 * -(-messages // 25)
        yield Line(f"requests, {cell.name}", f"at most {most}", f"{requests:.0f}", requests <= most)
    for messages, cell in REDELIVERED.items():
        requests, writes = (spread(table[cell]["ours"], name).most for name in ("requests", "write_units"))
        most = -(-messages // 100)
        measured, met = f"{requests:.0f} and {writes:.0f}", requests <= most and not writes
        yield Line(f"reads and writes, {cell.name}", f"at most {most} and 0", measured, met)


def _at_least(what: str, cell: Cell, table: Table, field: str, least: float) -> Line:
    times = Spread.of(ratios(table[cell]["powertools"], table[cell]["ours"], field))
    return Line(f"{what}, {cell.name}", f"at least {least:g}", str(times), times.median >= least)


def _memory(peaks: Mapping[str, Spread]) -> Line:
    more, imports = (peaks[kind].median - peaks["empty"].median for kind in ("ours", "imports"))
    measured = f"{more:.1f}, of which {imports:.1f} are imports"
    return Line("MB above an empty function's, 10,000 fresh", f"less than {MEMORY_MB:g}", measured, more < MEMORY_MB)


def _write_units(table: Table) -> Iterator[Line]:
    for cell in (FRESH[100], HALF, REDELIVERED[100]):
        ours, theirs = (spread(table[cell][who], "write_units").most / 100 for who in ("ours", "powertools"))
        yield Line(f"write units a message, {cell.name}", f"at most {theirs:g}", f"{ours:g}", ours <= theirs)


def _cold(cold: Mapping[str, Mapping[str, Spread]]) -> Iterator[Line]:
    if not cold:
        yield Line("CPU ms of a cold start", "no more than Powertools'", "no Python 3.13 runs here", met=False)
    for name, both in cold.items():
        ours, theirs = both["ours"], both["powertools"]
        met = ours.median <= theirs.most  # overlapping spreads count as equal
        yield Line(f"CPU ms of a cold start, {name}", f"at most {theirs}", str(ours), met)
