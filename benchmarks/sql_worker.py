"""A measurement on PostgreSQL in a process of its own: `python -m benchmarks.sql_worker '{...}'` prints samples, by
subject, as JSON.

All subjects take turns in this process, batch by batch, because a disk's time for a commit varies from second to
second. Each has an engine of its own, and has handled three batches before, so that psycopg has prepared what it will.
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from sqlalchemy import create_engine, make_url

from benchmarks.cpus import keep_to
from benchmarks.endpoint import ask
from benchmarks.settings import Context, event
from benchmarks.subjects.sql import SUBJECTS, create
from benchmarks.worker import check
from harness.trips import asked

if TYPE_CHECKING:
    from benchmarks.settings import Handler

ACCOUNTS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One batch: its time, its round trips to the database, and its requests to DynamoDB's endpoint."""

    wall_ms: float
    cpu_ms: float
    trips: int
    requests: int


def main(url: str, port: int, messages: int, rounds: int, cpus: list[int] | None) -> None:
    """Measure, and print the samples. The `url` is a proxy's; `port` is the endpoint's."""
    if cpus is not None:
        keep_to(cpus)
    samples: dict[str, list[Sample]] = {name: [] for name in SUBJECTS}
    with contextlib.redirect_stdout(io.StringIO()):
        handlers = _handlers(url)
        proxy = make_url(url).port or 0
        for handler in [*handlers.values()] * 3:
            _sample(handler, port, proxy, messages)
        for number in range(rounds):
            for name in [*SUBJECTS][:: -1 if number % 2 else 1]:
                samples[name].append(_sample(handlers[name], port, proxy, messages))
    print(json.dumps({name: [asdict(one) for one in each] for name, each in samples.items()}))


def _handlers(url: str) -> dict[str, Handler]:
    create(create_engine(url), ACCOUNTS)
    return {
        name: build(create_engine(make_url(url).set(drivername=f"postgresql+{driver}")))
        for name, (build, driver) in SUBJECTS.items()
    }


def _sample(handler: Handler, port: int, proxy: int, messages: int) -> Sample:
    batch = event(messages, hot_items=ACCOUNTS)
    gc.collect()
    trips, requests = asked(proxy), ask(port, "Bill")["requests"]
    started, cpu_started = time.perf_counter(), time.process_time()
    answer = handler(batch, Context())
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    check(answer, batch)
    return Sample(
        wall_ms=wall * 1000,
        cpu_ms=cpu * 1000,
        trips=asked(proxy) - trips,
        requests=ask(port, "Bill")["requests"] - requests,
    )


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
