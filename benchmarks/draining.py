"""How fast workers outside Lambda drain a queue, and at what cost: `receiver work` and its alternatives.

A worker is a separate program, with all its processes. They poll an empty queue and drain a few messages first, so
start-up does not count. Then messages are put into the queue all at once. The time runs from the first receive to the
last deletion, both at the endpoint, which also counts the requests up to then, to all services together. The CPU time
is that of all processes of the worker.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.endpoint import ROOT, Loopback, ask
from benchmarks.measure import MeasurementError, aws_environment
from benchmarks.settings import QUEUE, TABLE, event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.cpus import Cpus

DELAY_SECONDS = 0.005
WARMING_PER_PROCESS = 40
LONGEST_SECONDS = 60.0
LOOK_SECONDS = 0.02
QUICK_SECONDS = 0.01
RECEIVER_WORK = "import typer; from idempotent_receiver.operations.cli.work import work; typer.run(work)"
"""The command when the package is not installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Handlers of one kind in several processes, and the number of messages that each drains in a few seconds."""

    handler_seconds: float
    concurrency: int
    processes: int
    messages: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """What the report calls it."""
        kind = "instant handlers"
        if self.handler_seconds:
            kind = f"{self.handler_seconds * 1000:.0f} ms handlers x{self.concurrency}"
        return f"{kind}, {self.processes} process{'es' * (self.processes > 1)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """One subject's results for one load."""

    messages_a_second: float
    requests_a_message: float
    cpu_ms_a_message: float
    write_units_a_message: float


@dataclass(frozen=True, slots=True)
class Subject:
    """The command lines that together drain the queue, and the key of their table."""

    commands: Callable[[Load, str], list[list[str]]]
    key: str = "id"


def _receiver_work(load: Load, queue_url: str, handler: str = "ours") -> list[list[str]]:
    options = ["--processes", str(load.processes), "--concurrency", str(load.concurrency)]
    return [[sys.executable, "-c", RECEIVER_WORK, queue_url, f"benchmarks.polling.{handler}:lambda_handler", *options]]


def _run_forever(load: Load, queue_url: str) -> list[list[str]]:
    return [[sys.executable, "-m", "benchmarks.polling.idemkit", queue_url]] * load.processes


def _rust_consumer(load: Load, queue_url: str) -> list[list[str]]:
    concurrency = [str(load.concurrency)] if load.handler_seconds else []
    return [[sys.executable, "-m", "benchmarks.polling.fanferro", queue_url, *concurrency]] * load.processes


SUBJECTS = {
    "receiver work": Subject(_receiver_work),
    "idemkit": Subject(_run_forever, key="effective_key"),
    "fanferro": Subject(_rust_consumer),
}


def drained(load: Load, name: str, messages: int, endpoint: Loopback, cpus: Cpus | None) -> Drained:
    """Let a subject drain this many messages. Raises MeasurementError if it does not."""
    subject = SUBJECTS[name]
    endpoint.clear()
    endpoint.create_table(TABLE, subject.key)
    commands = subject.commands(load, endpoint.create_queue(QUEUE))
    endpoint.delay(DELAY_SECONDS)
    only = None if cpus is None else [cpus.own] if load.processes == 1 else list(cpus.every)
    with running(commands, _environment(load, endpoint), only) as worker:
        _drain(WARMING_PER_PROCESS * load.processes, subject, worker, endpoint, load)
        cpu_before, bill_before = worker.cpu_seconds(), ask(endpoint.port, "Bill")
        seconds, requests = _drain(messages, subject, worker, endpoint, load)
        cpu_seconds = worker.cpu_seconds() - cpu_before
        write_units = ask(endpoint.port, "Bill")["write_units"] - bill_before["write_units"]
    return Drained(
        messages_a_second=messages / seconds,
        requests_a_message=requests / messages,
        cpu_ms_a_message=cpu_seconds * 1000 / messages,
        write_units_a_message=write_units / messages,
    )


def beside_a_long_one(endpoint: Loopback) -> float:
    """The seconds that ten messages of 10 ms take on two processes of `receiver work`, with one of 40 s among them.
    Raises MeasurementError if they do not end.
    """
    load = Load(handler_seconds=QUICK_SECONDS, concurrency=1, processes=2, messages=())
    endpoint.clear()
    endpoint.create_table(TABLE, "id")
    commands = _receiver_work(load, endpoint.create_queue(QUEUE), "mixed")
    endpoint.delay(DELAY_SECONDS)
    quick = [QUICK_SECONDS] * 5
    with running(commands, _environment(load, endpoint), None) as worker:
        _seconds_until(0, [QUICK_SECONDS] * WARMING_PER_PROCESS * load.processes, worker, endpoint, load)
        return _seconds_until(1, [*quick, 40.0, *quick], worker, endpoint, load)


def _seconds_until(left: int, seconds: Sequence[float], worker: Worker, endpoint: Loopback, load: Load) -> float:
    """Put messages of this duration into the queue, and wait until this many are left."""
    worker.wait(lambda: ask(endpoint.port, "Drained", QueueName=QUEUE)["waiting"] >= load.processes)
    began = time.monotonic()
    ask(endpoint.port, "Put", QueueName=QUEUE, Bodies=[json.dumps({"seconds": one}) for one in seconds])
    worker.wait(lambda: ask(endpoint.port, "Drained", QueueName=QUEUE)["left"] == left)
    return time.monotonic() - began


def _environment(load: Load, endpoint: Loopback) -> dict[str, str]:
    return aws_environment(
        PYTHONPATH=os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        AWS_ENDPOINT_URL=endpoint.url,
        HANDLER_SECONDS=str(load.handler_seconds),
    )


def _drain(messages: int, subject: Subject, worker: Worker, endpoint: Loopback, load: Load) -> tuple[float, int]:
    """Put messages into the queue once all processes wait for them; the seconds and the requests until all are gone."""
    bodies = [record["body"] for record in event(messages)["Records"]]
    worker.wait(lambda: ask(endpoint.port, "Drained", QueueName=QUEUE)["waiting"] >= load.processes)
    ask(endpoint.port, "Put", QueueName=QUEUE, Bodies=bodies)
    worker.wait(lambda: ask(endpoint.port, "Drained", QueueName=QUEUE)["seconds"] is not None)
    told = ask(endpoint.port, "Drained", QueueName=QUEUE)
    return told["seconds"], told["requests"]


class Worker:
    """A subject's programs while they run."""

    def __init__(self, programs: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
        self._programs = programs
        self._log = log

    def wait(self, until: Callable[[], bool]) -> None:
        """Wait until the programs have reached a state."""
        deadline = time.monotonic() + LONGEST_SECONDS
        while not until():
            ended = [program.returncode for program in self._programs if program.poll() is not None]
            if ended or time.monotonic() > deadline:
                what = f"a worker ended with {ended[0]}" if ended else f"not done in {LONGEST_SECONDS:.0f} s"
                raise MeasurementError(f"{what}:\n{self._log.read_text(errors='replace')[-2000:]}")
            time.sleep(LOOK_SECONDS)

    def cpu_seconds(self) -> float:
        """The CPU time of all processes so far, including those that have ended and been waited for."""
        found, parents = {}, defaultdict(list)
        for stat in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):  # it has just ended
                # The fields after the command, which may hold anything: the state, the parent, and so on.
                fields = stat.read_text().rpartition(")")[2].split()
                found[int(stat.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
                parents[int(fields[1])].append(int(stat.parent.name))
        family = [program.pid for program in self._programs]
        for process in family:  # grows as children are found
            family += parents[process]
        return sum(found[process] for process in family)


@contextlib.contextmanager
def running(
    commands: Sequence[Sequence[str]], environment: Mapping[str, str], cpus: Sequence[int] | None
) -> Iterator[Worker]:
    """Run the commands, only on these CPUs if given, and kill them with all their processes at the end."""
    programs: list[subprocess.Popen[bytes]] = []
    with tempfile.NamedTemporaryFile() as log:
        try:
            for command in commands:
                program = subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
                programs.append(program)
                if cpus is not None:
                    os.sched_setaffinity(program.pid, cpus)  # before it has threads or children
            yield Worker(programs, Path(log.name))
        finally:
            for program in programs:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(program.pid, signal.SIGKILL)
                program.wait()
