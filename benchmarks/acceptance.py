"""The promises that a run must keep, each with its target and the measured value, and the cells that they need."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarks import writing
from benchmarks.measure import Spread, Table, ratios, spread
from benchmarks.settings import Cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PEERS = ("ours", "bare", "powertools", "idemkit")
"""Ours and the bare client are neighbours: their ratio is the narrowest, and the machine's load varies."""

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
ON_ALL_CPUS = Cell(name="1,000 fresh, on all CPUs", messages=1_000, subjects=("ours", "bare"), pinned=False)
CELLS = (
    *FRESH.values(), HALF, *REDELIVERED.values(), ON_ALL_CPUS, *writing.FRESH.values(), *writing.READING.values(),
    writing.SENDING,
)  # fmt: skip

TIMES_FASTER = {10: 8.0, 100: 35.0, 1_000: 90.0}
TIMES_LESS_CPU = {10: 4.0, 100: 7.0, 1_000: 7.0}
TIMES_THE_LIMIT = {100: 1.6, 1_000: 1.25}

TIMES_FASTER_READING = {1: 3.5, 25: 15.0}
"""By concurrency."""

TIMES_FASTER_SENDING = 25.0
SENDING_TAKES = {"ours": (24, 600), "unclaimed": (18, 500)}
"""For our two modes: the most requests and write units of the batch."""

TIMES_THE_LIMITS_CPU = 1.7
MORE_REQUESTS_FOR_FAILURES = 6
MEMORY_MB = 60.0
MEMORY_MESSAGES = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """The promises for a hundred messages with one write each, in one of our two modes, and the speed by size."""

    subject: str
    limit: str
    suffix: str
    requests: int
    units: int
    times_faster: Mapping[int, float]


WRITING = (
    Writing(subject="ours", limit="bare", suffix="", requests=8, units=500, times_faster={100: 45.0, 1_000: 60.0}),
    Writing(
        subject="unclaimed",
        limit="bare_unclaimed",
        suffix=", without claims",
        requests=2,
        units=400,
        times_faster={100: 90.0, 1_000: 110.0},
    ),
)


@dataclass(frozen=True, slots=True)
class Line:
    """One promise."""

    what: str
    wanted: str
    measured: str
    met: bool


def lines(
    table: Table, runs: Sequence[Table], peaks: Mapping[str, Spread], cold: Mapping[str, Mapping[str, Spread]]
) -> Iterator[Line]:
    """All promises. A thousand fresh messages are judged by the median of several runs, including `table`."""
    yield from _requests(table)
    for messages, least in TIMES_FASTER.items():
        times = _times(runs, FRESH[messages], "wall_ms", "powertools", "ours")
        yield at_least(f"times faster than Powertools, {FRESH[messages].name}", least, times)
    for messages, least in TIMES_LESS_CPU.items():
        times = _times(runs, FRESH[messages], "cpu_ms", "powertools", "ours")
        yield at_least(f"times Powertools' CPU is ours, {FRESH[messages].name}", least, times)
    for messages, most in TIMES_THE_LIMIT.items():
        times = _times(runs, FRESH[messages], "wall_ms", "ours", "bare")
        yield at_most(f"times as long as a bare client, {FRESH[messages].name}", most, times)
    yield _memory(peaks)
    yield from _write_units(table)
    yield from _writing(table)
    yield from _reading(table)
    yield from _sending(table)
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


def at_least(what: str, least: float, times: Spread) -> Line:
    """A promise that a median of at least this keeps."""
    return Line(what, f"at least {least:g}", str(times), times.median >= least)


def at_most(what: str, most: float, times: Spread) -> Line:
    """A promise that a median of at most this keeps."""
    return Line(what, f"at most {most:g}", str(times), times.median <= most)


def _times(runs: Sequence[Table], cell: Cell, field: str, one: str, other: str) -> Spread:
    """The ratio of one subject's need to the other's: by run if there are several, else by round."""
    by_run = [ratios(table[cell][one], table[cell][other], field) for table in runs if cell in table]
    return Spread.of(by_run[0] if len(by_run) == 1 else [median(by_round) for by_round in by_run])


def _writing(table: Table) -> Iterator[Line]:
    for promise in WRITING:
        yield from _writing_as(promise, table)


def _reading(table: Table) -> Iterator[Line]:
    for concurrency, least in TIMES_FASTER_READING.items():
        cell = writing.READING[concurrency]
        times = _times([table], cell, "wall_ms", "powertools", "ours")
        yield at_least(f"times faster than Powertools, {cell.name}", least, times)


def _sending(table: Table) -> Iterator[Line]:
    cell = writing.SENDING
    for subject, (requests, units) in SENDING_TAKES.items():
        found = {field: spread(table[cell][subject], field).most for field in ("requests", "write_units")}
        for field, most in zip(found, (requests, units), strict=True):
            what = f"{field.replace('_', ' ')} of {subject}, {cell.name}"
            yield Line(what, f"at most {most}", f"{found[field]:.0f}", found[field] <= most)
        times = _times([table], cell, "wall_ms", "powertools", subject)
        yield at_least(f"times faster than Powertools, {subject}, {cell.name}", TIMES_FASTER_SENDING, times)


def _writing_as(promise: Writing, table: Table) -> Iterator[Line]:
    """The promises for one of our two modes: with claims, or without."""
    hundred, ours = writing.FRESH[100], promise.subject
    requests, units = (spread(table[hundred][ours], field).most for field in ("requests", "write_units"))
    name = f"{hundred.name}{promise.suffix}"
    yield Line(f"requests, {name}", f"at most {promise.requests}", f"{requests:.0f}", requests <= promise.requests)
    yield Line(f"write units, {name}", f"at most {promise.units}", f"{units:.0f}", units <= promise.units)
    more = spread(table[writing.TENTH_FAILS][ours], "requests").most - requests
    what, most = f"more requests, {writing.TENTH_FAILS.name}{promise.suffix}", MORE_REQUESTS_FOR_FAILURES
    yield Line(what, f"at most {most}", f"{more:.0f}", more <= most)
    for messages, least in promise.times_faster.items():
        cell = writing.FRESH[messages]
        name = f"{cell.name}{promise.suffix}"
        yield at_least(
            f"times faster than Powertools, {name}", least, _times([table], cell, "wall_ms", "powertools", ours)
        )
        times = _times([table], cell, "cpu_ms", ours, promise.limit)
        yield at_most(f"times a bare client's CPU, {name}", TIMES_THE_LIMITS_CPU, times)


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
