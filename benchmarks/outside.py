"""Workers outside Lambda: the loads that they drain, the promises for ours, and the report."""

from __future__ import annotations

import sys
from dataclasses import asdict, fields
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from benchmarks.acceptance import Line, at_least, at_most
from benchmarks.document import accepted
from benchmarks.draining import Drained, Load, beside_a_long_one, drained
from benchmarks.measure import Spread

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.cpus import Cpus
    from benchmarks.endpoint import Loopback

    Table = dict[Load, dict[str, list[Drained]]]
    """Each subject's results for each load, by round."""

ROUNDS = 3
OURS, PEER, ANCHOR = "receiver work", "idemkit", "fanferro"
MOST_REQUESTS_A_MESSAGE = 0.5
MOST_CPU_MS_A_MESSAGE = 0.75
TIMES_FASTER = 5.0
MOST_SECONDS_BESIDE_A_LONG_ONE = 2.0


def _load(processes: int, handler_seconds: float, concurrency: int, *messages: int) -> Load:
    names = (OURS, PEER, ANCHOR) if find_spec(ANCHOR) else (OURS, PEER)  # it needs Python 3.12
    return Load(
        handler_seconds=handler_seconds,
        concurrency=concurrency,
        processes=processes,
        messages=tuple(zip(names, messages, strict=False)),
    )


LOADS = (
    _load(1, 0.0, 1, 4_000, 80, 6_000),
    _load(4, 0.0, 1, 6_000, 300, 12_000),
    _load(1, 0.02, 10, 800, 60, 1_500),
    _load(4, 0.02, 10, 2_400, 200, 4_000),
)


def measured(endpoint: Loopback, cpus: Cpus | None) -> Table:
    """Let every subject drain every load, once in each round."""
    table: Table = {load: {name: [] for name, _ in load.messages} for load in LOADS}
    for number in range(ROUNDS):
        for load in LOADS:
            for name, messages in load.messages[:: -1 if number % 2 else 1]:
                one = drained(load, name, messages, endpoint, cpus)
                table[load][name].append(one)
                speed = f"{one.messages_a_second:9.1f} a second"
                print(f"round {number + 1}/{ROUNDS}  {load.name:<58} {name:<14} {speed}", file=sys.stderr, flush=True)
    return table


def beside_a_long_one_seconds(endpoint: Loopback) -> list[float]:
    """How long quick messages took next to a long one, by round."""
    return [beside_a_long_one(endpoint) for _ in range(ROUNDS)]


def promises(table: Table, beside_seconds: Sequence[float]) -> Iterator[Line]:
    """The promises, and whether they were kept. Requests are counted exactly, so each round decides; speeds are
    compared within a round, and the median decides.
    """
    for load, subjects in table.items():
        requests = max(one.requests_a_message for one in subjects[OURS])
        yield Line(
            f"requests a message, all services together, {load.name}",
            f"at most {MOST_REQUESTS_A_MESSAGE:g}",
            f"{requests:.3f}",
            requests <= MOST_REQUESTS_A_MESSAGE,
        )
    for load, subjects in table.items():
        if not load.handler_seconds:
            cpu_ms = Spread.of([one.cpu_ms_a_message for one in subjects[OURS]])
            yield at_most(f"CPU ms a message, {load.name}", MOST_CPU_MS_A_MESSAGE, cpu_ms)
    for load, subjects in table.items():
        both = zip(subjects[OURS], subjects[PEER], strict=True)
        times = Spread.of([ours.messages_a_second / theirs.messages_a_second for ours, theirs in both])
        yield at_least(f"times {PEER}'s messages a second, {load.name}", TIMES_FASTER, times)
    what = "seconds until ten messages of 10 ms have ended beside one of 40 s, 2 processes"
    yield at_most(what, MOST_SECONDS_BESIDE_A_LONG_ONE, Spread.of(beside_seconds))


def summary(table: Table) -> list[dict[str, Any]]:
    """The spreads over all rounds, by load and subject."""
    names = [field.name for field in fields(Drained)]
    return [
        {
            "name": load.name,
            "subjects": {
                name: {field: asdict(Spread.of([getattr(one, field) for one in rounds])) for field in names}
                for name, rounds in subjects.items()
            },
        }
        for load, subjects in table.items()
    ]


def report(results: Mapping[str, Any]) -> str:
    """All figures in Markdown."""
    return "\n".join([*_rows(results), "", *accepted(results, "outside")])


def _rows(results: Mapping[str, Any]) -> Iterator[str]:
    host = results["machine"]
    versions = ", ".join(f"{name} {host[name]}" for name in (PEER, ANCHOR, "botocore") if host[name])
    yield (
        f"Measured {results['measured']} on {host['cpus']} CPUs at load {host['load_average'][0]:.1f}, Python"
        f" {host['python']}, {versions}, round trips of 5 ms. Medians of {ROUNDS} rounds;"
        " `benchmarks/outside.json` has the spreads:"
    )
    yield ""
    yield "| load | | messages a second | requests a message | CPU ms a message |"
    yield "|---|---|---:|---:|---:|"
    for load in results["loads"]:
        for name, one in load["subjects"].items():
            speed, *others, _units = (one[field.name] for field in fields(Drained))
            medians = " | ".join(f"{other['median']:.2f}" for other in others)
            yield f"| {load['name']} | {name} | {speed['median']:,.0f} | {medians} |"
