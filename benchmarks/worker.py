"""One measurement, in a process of its own: `python -m benchmarks.worker '{...}'` prints what it measured as JSON.

A warm worker is measured: the subject is built and has handled a batch before the clock runs. What is timed is the
call of the Lambda handler and nothing else; the CPU is that of the whole process, its threads included.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import io
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.cpus import keep_to
from benchmarks.endpoint import ask
from benchmarks.peak import peak_kb
from benchmarks.settings import Context, Event, Handler, Settings, event, redelivered


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to measure. `duplicates` is the share of messages that come a second time, completed; `cpus` are those
    that the worker may use, if that is to be bounded.
    """

    subject: str
    messages: int
    repeats: int
    port: int
    duplicates: float = 0.0
    handler_seconds: float = 0.0
    concurrency: int = 1
    writes: bool = False
    warm_up: int = 25
    cpus: list[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One batch: seconds, and what the endpoint was asked for."""

    wall_seconds: float
    cpu_seconds: float
    requests: int
    write_units: float
    read_units: float
    endpoint_cpu_seconds: float


def main(task: Task) -> None:
    """Measure, and print."""
    if task.cpus is not None:
        keep_to(task.cpus)
    settings = Settings(
        table="records",
        entries="entries",
        handler_seconds=task.handler_seconds,
        concurrency=task.concurrency,
        writes=task.writes,
    )
    module = importlib.import_module(f"benchmarks.subjects.{task.subject}")
    prepare = getattr(module, "prepare", lambda batch, settings: batch)
    with contextlib.redirect_stdout(io.StringIO()) as told:
        handler: Handler = module.build(settings)
        _call(handler, prepare(event(task.warm_up), settings))
        samples = [_sample(task, handler, lambda batch: prepare(batch, settings)) for _ in range(task.repeats)]
    said = len(told.getvalue())
    print(json.dumps({"samples": [asdict(sample) for sample in samples], "peak_kb": peak_kb(), "said": said}))


def _sample(task: Task, handler: Handler, prepare: Any) -> Sample:
    batch = _batch(task, handler, prepare)
    gc.collect()
    ask(task.port, "Delay", Seconds=float(os.environ["BENCH_DELAY_SECONDS"]))
    before = ask(task.port, "Bill")
    started, started_cpu = time.perf_counter(), time.process_time()
    _call(handler, batch)
    wall, cpu = time.perf_counter() - started, time.process_time() - started_cpu
    after = ask(task.port, "Bill")
    return Sample(
        wall_seconds=wall,
        cpu_seconds=cpu,
        requests=sum(after["Requests"].values()) - sum(before["Requests"].values()),
        write_units=after["WriteUnits"] - before["WriteUnits"],
        read_units=after["ReadUnits"] - before["ReadUnits"],
        endpoint_cpu_seconds=after["CpuSeconds"] - before["CpuSeconds"],
    )


def _batch(task: Task, handler: Handler, prepare: Any) -> Event:
    """The batch to measure; what it has seen before is handled now, without the round trips."""
    known = round(task.messages * task.duplicates)
    fresh = event(task.messages - known)
    if not known:
        ready: Event = prepare(fresh)
        return ready
    first = event(known)
    ask(task.port, "Delay", Seconds=0.0)
    _call(handler, first)
    return redelivered(first, fresh)


def _call(handler: Handler, batch: Event) -> None:
    answer = handler(batch, Context())
    assert answer == {"batchItemFailures": []}, f"every message succeeds here: {str(answer)[:300]}"


if __name__ == "__main__":
    main(Task(**json.loads(sys.argv[1])))
