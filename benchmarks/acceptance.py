"""What a run must show, line by line: wanted, measured, met or not. The cells that it takes are here too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.measure import Cell, Measured, Spread, Table, cpu, ratio, wall

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PEERS = ("ours", "bare", "powertools", "idemkit")
"""The two whose ratio is the narrowest run one after the other: what a machine does besides comes and goes."""

REDELIVERS = ("ours", "powertools", "idemkit")
"""The bare client sends what fresh messages need, and nothing else."""

FRESH = {
    10: Cell(name="10 fresh", messages=10, subjects=PEERS, repeats=5),
    100: Cell(name="100 fresh", messages=100, subjects=PEERS, repeats=3),
    1_000: Cell(name="1,000 fresh", messages=1_000, subjects=PEERS, repeats=1),
    10_000: Cell(name="10,000 fresh", messages=10_000, subjects=("ours", "bare"), repeats=1),
}
REDELIVERED = {
    10: Cell(name="10 redelivered", messages=10, subjects=REDELIVERS, repeats=3, duplicates=1.0),
    100: Cell(name="100 redelivered", messages=100, subjects=REDELIVERS, duplicates=1.0),
    1_000: Cell(name="1,000 redelivered", messages=1_000, subjects=("ours",), duplicates=1.0),
}
HALF = Cell(name="100, half redelivered", messages=100, subjects=REDELIVERS, duplicates=0.5)
WRITING = Cell(
    name="100 fresh, each with a write of its own",
    messages=100,
    subjects=("ours", "powertools"),
    writes=True,
)
ON_ALL_CPUS = Cell(name="1,000 fresh, on all CPUs", messages=1_000, subjects=("ours", "bare"), pinned=False)
CELLS = (*FRESH.values(), HALF, *REDELIVERED.values(), WRITING, ON_ALL_CPUS)

FASTER = {10: 8.0, 100: 35.0, 1_000: 55.0}
CPU_SHARE = {10: 4.0, 100: 7.0, 1_000: 7.0}
FROM_THE_LIMIT = 1.6
MEMORY_MB = 60.0
MEMORY_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that a run must show."""

    what: str
    wanted: str
    measured: str
    met: bool


def lines(table: Table, peaks: Mapping[str, Spread], cold: Mapping[str, Mapping[str, Spread]] | None) -> Iterator[Line]:
    """All lines, in the order in which they were asked for."""
    yield from _requests(table)
    yield from _speed(table)
    yield from _cpu(table)
    yield from _limit(table)
    yield _memory(peaks)
    yield from _write_units(table)
    yield from _cold(cold)


def _requests(table: Table) -> Iterator[Line]:
    for messages, cell in FRESH.items():
        requests, most = _most(table[cell]["ours"], "requests"), 2 * -(-messages // 25)
        yield Line(f"requests, {cell.name}", f"at most {most}", f"{requests:.0f}", requests <= most)
    for messages, cell in REDELIVERED.items():
        ours, most = table[cell]["ours"], -(-messages // 100)
        requests, writes = _most(ours, "requests"), _most(ours, "write_units")
        measured = f"{requests:.0f} and {writes:.0f}"
        yield Line(f"reads and writes, {cell.name}", f"at most {most} and 0", measured, requests <= most and not writes)


def _speed(table: Table) -> Iterator[Line]:
    for messages, least in FASTER.items():
        cell = FRESH[messages]
        times = ratio(table[cell]["powertools"], table[cell]["ours"], wall)
        yield Line(
            f"times faster than Powertools, {cell.name}", f"at least {least:g}", str(times), times.median >= least
        )


def _cpu(table: Table) -> Iterator[Line]:
    for messages, least in CPU_SHARE.items():
        cell = FRESH[messages]
        times = ratio(table[cell]["powertools"], table[cell]["ours"], cpu)
        what = f"times Powertools' CPU is ours, {cell.name}"
        yield Line(what, f"at least {least:g}", str(times), times.median >= least)


def _limit(table: Table) -> Iterator[Line]:
    for messages in (100, 1_000):
        cell = FRESH[messages]
        times = ratio(table[cell]["ours"], table[cell]["bare"], wall)
        met = times.median <= FROM_THE_LIMIT
        yield Line(f"times as long as a bare client, {cell.name}", f"at most {FROM_THE_LIMIT:g}", str(times), met)


def _memory(peaks: Mapping[str, Spread]) -> Line:
    more = peaks["ours"].median - peaks["empty"].median
    imports = peaks["imports"].median - peaks["empty"].median
    measured = f"{more:.1f}, of which {imports:.1f} are imports"
    return Line("MB above an empty function's, 10,000 fresh", f"less than {MEMORY_MB:g}", measured, more < MEMORY_MB)


def _write_units(table: Table) -> Iterator[Line]:
    for cell in (FRESH[100], HALF, REDELIVERED[100]):
        ours, theirs = (_most(table[cell][subject], "write_units") / 100 for subject in ("ours", "powertools"))
        yield Line(f"write units a message, {cell.name}", f"at most {theirs:g}", f"{ours:g}", ours <= theirs)


def _cold(cold: Mapping[str, Mapping[str, Spread]] | None) -> Iterator[Line]:
    if cold is None:
        yield Line("CPU ms of a cold start", "no more than Powertools'", "no Python 3.13 runs here", met=False)
        return
    for name, both in cold.items():
        ours, theirs = both["ours"], both["powertools"]
        met = ours.median <= theirs.most  # what overlaps is no worse
        yield Line(f"CPU ms of a cold start, {name}", f"at most {theirs}", str(ours), met)


def _most(measured: Measured, name: str) -> float:
    return measured.exact(name).most


def shown(all_lines: list[Line]) -> str:
    """The lines as a table for people."""
    header = Line("what", "wanted", "measured", met=True)
    widths = [max(len(getattr(line, name)) for line in [header, *all_lines]) for name in ("what", "wanted", "measured")]

    def row(line: Line, met: str) -> str:
        cells = (line.what, line.wanted, line.measured)
        return "  ".join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)), met]).rstrip()

    rows = [row(line, "met" if line.met else "NOT MET") for line in all_lines]
    return "\n".join([row(header, ""), "  ".join("-" * width for width in widths), *rows])
