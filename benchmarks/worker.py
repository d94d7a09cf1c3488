"""One measurement in a process of its own: `python -m benchmarks.worker '{...}'` prints its samples as JSON.

The worker is warm: the subject is built and has handled a batch before the clock starts. Only the call of the Lambda
handler is timed; the CPU time is that of the whole process, threads included.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from benchmarks.cpus import keep_to
from benchmarks.endpoint import ask
from benchmarks.settings import Cell, Context, event, failing, redelivered

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.settings import Event, Handler

    Prepare = Callable[[Event, Cell], Event]
    """Adds to a batch what the subject needs beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One batch: its time, and its requests and capacity units at the endpoint."""

    wall_ms: float
    cpu_ms: float
    requests: int
    write_units: float
    read_units: float


def main(subject: str, cell: Cell, port: int, repeats: int, cpus: list[int] | None) -> None:
    """Measure, and print the samples. `cpus` are the only CPUs that this process may use, or None."""
    if cpus is not None:
        keep_to(cpus)
    module = importlib.import_module(f"benchmarks.subjects.{subject}")
    with contextlib.redirect_stdout(io.StringIO()):
        handler: Handler = module.build(cell)
        prepare: Prepare = getattr(module, "prepare", lambda batch, cell: batch)
        warming = 2 if cell.handler_seconds else min(100, max(25, cell.messages))
        _handle(handler, prepare(_fresh(warming, cell), cell))
        samples = [_sample(cell, port, handler, prepare) for _ in range(repeats)]
    print(json.dumps([asdict(sample) for sample in samples]))


def _sample(cell: Cell, port: int, handler: Handler, prepare: Prepare) -> Sample:
    batch = prepare(_batch(cell, port, handler), cell)
    gc.collect()
    ask(port, "Delay", Seconds=cell.delay_seconds)
    before = ask(port, "Bill")
    started, cpu_started = time.perf_counter(), time.process_time()
    answer = handler(batch, Context())
    wall, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    after = ask(port, "Bill")
    check(answer, batch)
    return Sample(wall_ms=wall * 1000, cpu_ms=cpu * 1000, **{name: after[name] - before[name] for name in after})


def _batch(cell: Cell, port: int, handler: Handler) -> Event:
    """The batch to measure. Its duplicates are handled for the first time now, without the delay."""
    known = round(cell.messages * cell.duplicates)
    fresh = _fresh(cell.messages - known, cell)
    if not known:
        return fresh
    first = _fresh(known, cell)
    ask(port, "Delay", Seconds=0.0)
    _handle(handler, first)
    return redelivered(first, fresh)


def _fresh(messages: int, cell: Cell) -> Event:
    return event(messages, hot_items=cell.hot_items, failing=cell.failing)


def _handle(handler: Handler, batch: Event) -> None:
    check(handler(batch, Context()), batch)


def check(answer: Any, batch: Event) -> None:
    """Exactly those messages are to be delivered again whose condition did not hold."""
    failed = sorted(failure["itemIdentifier"] for failure in answer["batchItemFailures"])
    assert failed == sorted(failing(batch)), f"{len(failed)} messages failed: {str(answer)[:300]}"


if __name__ == "__main__":
    task = json.loads(sys.argv[1])
    main(**task | {"cell": Cell(**task["cell"])})
