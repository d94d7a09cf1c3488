"""Handlers that write to PostgreSQL: what a message costs beside a Session by hand and beside Powertools, the promises,
and the report.

The server writes through to the disk. A proxy on the loopback counts round trips, and makes each half a millisecond
longer in one of the loads, as between a function and its database in one zone.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from sqlalchemy import make_url

from benchmarks.acceptance import Line
from benchmarks.document import accepted
from benchmarks.measure import Spread, python
from benchmarks.settings import TABLE
from benchmarks.sql_worker import Sample
from harness.databases import postgresql
from harness.trips import counted
from idempotent_receiver.sql.store import RUNS_A_DELETION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.cpus import Cpus
    from benchmarks.endpoint import Loopback

    Table = dict[str, dict[str, list[Sample]]]
    """Each subject's samples for each load, by round."""

MESSAGES, ROUNDS = 100, 7
LOADS = {"the loopback": 0.0, "the loopback and 0.5 ms": 0.0005}
"""Seconds that the proxy adds to a round trip."""
OURS, BY_HAND, POWERTOOLS = "ours, psycopg 3", "by hand, psycopg 3", "powertools, psycopg 3"
OURS_2, BY_HAND_2 = "ours, psycopg2", "by hand, psycopg2"

MOST_TRIPS, MOST_MORE_TRIPS = 300, 100
"""For the messages: by psycopg 3; by psycopg2, more than by hand."""
DELETION_TRIPS = MESSAGES // RUNS_A_DELETION * 3
"""For looking for expired records: BEGIN, a SELECT, ROLLBACK or COMMIT."""
TIMES_BY_HAND = 1.2
TIMES_BY_HANDS_CPU = 2.0
TIMES_FASTER = dict(zip(LOADS, (5.0, 3.0), strict=True))
"""Than Powertools, whose requests to DynamoDB take the same time with either load."""
DELAY_SECONDS = 0.005
"""A round trip to DynamoDB."""


def measured(endpoint: Loopback, cpus: Cpus | None) -> Table:
    """Measure all subjects with each load. Raises Unavailable without PostgreSQL."""
    table: Table = {}
    for load, delay_seconds in LOADS.items():
        endpoint.clear()
        endpoint.create_table(TABLE, "id")
        endpoint.delay(DELAY_SECONDS)
        with postgresql(durable=True) as url, counted(make_url(url).port or 0, delay_seconds) as (port, _):
            task = {
                "url": make_url(url).set(port=port).render_as_string(),
                "port": endpoint.port,
                "messages": MESSAGES,
                "rounds": ROUNDS,
                "cpus": None if cpus is None else [cpus.own],
            }
            output = python(["-m", "benchmarks.sql_worker", json.dumps(task)], endpoint.url)
        table[load] = {name: [Sample(**one) for one in each] for name, each in json.loads(output).items()}
        for name, each in table[load].items():
            best = f"{min(one.wall_ms for one in each):9.1f} ms"
            print(f"{load:<58} {name:<22} {best}", file=sys.stderr, flush=True)
    return table


def promises(table: Table) -> Iterator[Line]:
    """The promises, and whether they were kept. Trips and requests are counted exactly, so each batch decides; of the
    times, the least of all rounds, because a disk and a machine's other load only add to them.
    """
    for load, subjects in table.items():
        trips, requests = (_each(subjects, field, max) for field in ("trips", "requests"))
        yield _at_most(f"round trips by psycopg 3, {load}", MOST_TRIPS + DELETION_TRIPS, trips[OURS])
        most = trips[BY_HAND_2] + MOST_MORE_TRIPS + DELETION_TRIPS
        yield _at_most(f"round trips by psycopg2, {load}", most, trips[OURS_2])
        yield _at_most(f"requests to DynamoDB, {load}", 0, requests[OURS])
        wall, cpu = (_each(subjects, field, min) for field in ("wall_ms", "cpu_ms"))
        yield _at_most(f"times as long as a Session by hand, {load}", TIMES_BY_HAND, wall[OURS] / wall[BY_HAND])
        yield _at_most(f"times the CPU of a Session by hand, {load}", TIMES_BY_HANDS_CPU, cpu[OURS] / cpu[BY_HAND])
        least, times = TIMES_FASTER[load], wall[POWERTOOLS] / wall[OURS]
        what = f"times faster than Powertools and a transaction, {load}"
        yield Line(what, f"at least {least:g}", f"{times:.3g}", times >= least)


def _each(subjects: Mapping[str, list[Sample]], field: str, of: Callable[..., Any]) -> dict[str, Any]:
    return {name: of(getattr(one, field) for one in each) for name, each in subjects.items()}


def _at_most(what: str, most: float, found: float) -> Line:
    return Line(what, f"at most {most:g}", f"{found:.3g}", found <= most)


def summary(table: Table) -> list[dict[str, Any]]:
    """The spreads over all rounds, by load and subject."""
    names = [field.name for field in fields(Sample)]
    return [
        {
            "name": load,
            "subjects": {
                name: {field: asdict(Spread.of([getattr(one, field) for one in each])) for field in names}
                for name, each in subjects.items()
            },
        }
        for load, subjects in table.items()
    ]


def report(results: Mapping[str, Any]) -> str:
    """All figures in Markdown: the least of all rounds."""
    return "\n".join([*_rows(results), "", *accepted(results, "sql")])


def _rows(results: Mapping[str, Any]) -> Iterator[str]:
    yield f"| {MESSAGES} messages, one UPDATE each, over | | milliseconds | CPU ms | round trips | requests |"
    yield "|---|---|---:|---:|---:|---:|"
    for load in results["loads"]:
        for name, one in load["subjects"].items():
            leasts = (f"{one[field.name]['least']:,.0f}" for field in fields(Sample))
            yield f"| {load['name']} | {name} | {' | '.join(leasts)} |"
