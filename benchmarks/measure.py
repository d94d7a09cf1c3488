"""Running measurements one after the other, each in a process of its own, the subjects taking turns: A B A B."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from benchmarks.endpoint import ROOT, Loopback
from benchmarks.worker import Sample, Task

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.cpus import Cpus

LONGEST_SECONDS = 180
QUICK = ("ours", "bare")
"""What takes so little time that more of it may be measured, and so short that more of it must be."""

KEYS = {"records": {"idemkit": "effective_key"}, "entries": {}}


class MeasurementError(Exception):
    """A measurement ended otherwise than it should; the message ends with its last words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One line of the results: the same batch for each of its subjects. `pinned` ones have one CPU, of their own."""

    name: str
    messages: int
    subjects: tuple[str, ...]
    repeats: int = 1
    delay_seconds: float = 0.005
    duplicates: float = 0.0
    handler_seconds: float = 0.0
    concurrency: int = 1
    writes: bool = False
    pinned: bool = True

    def task(self, subject: str, port: int, cpus: Cpus | None) -> Task:
        """What a worker is told."""
        return Task(
            subject=subject,
            messages=self.messages,
            repeats=self.repeats * (10 if self._is_quick(subject) else 1),
            port=port,
            duplicates=self.duplicates,
            handler_seconds=self.handler_seconds,
            concurrency=self.concurrency,
            writes=self.writes,
            warm_up=2 if self.handler_seconds else min(100, max(25, self.messages)),
            cpus=None if cpus is None else [cpus.own] if self.pinned else list(cpus.every),
        )

    def _is_quick(self, subject: str) -> bool:
        return subject in QUICK and self.messages <= 1_000 and not self.handler_seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of what was measured, and the least and the most."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of one value or more."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g} to {self.most:.3g})"


@dataclass(slots=True)
class Measured:
    """What one subject needed for one cell: a list of samples for each round."""

    rounds: list[list[Sample]] = field(default_factory=list)
    peaks_kb: list[int] = field(default_factory=list)

    @property
    def samples(self) -> list[Sample]:
        """All rounds' samples."""
        return [sample for samples in self.rounds for sample in samples]

    @property
    def wall_ms(self) -> Spread:
        """Milliseconds from the call to its answer."""
        return Spread.of([sample.wall_seconds * 1000 for sample in self.samples])

    @property
    def cpu_ms(self) -> Spread:
        """Milliseconds of CPU."""
        return Spread.of([sample.cpu_seconds * 1000 for sample in self.samples])

    @property
    def peak_mb(self) -> Spread:
        """The process's largest size, in MB."""
        return Spread.of([peak / 1024 for peak in self.peaks_kb])

    def exact(self, name: str) -> Spread:
        """Requests or units: the same in every sample, unless time decides how full they are."""
        return Spread.of([float(getattr(sample, name)) for sample in self.samples])

    def told(self, messages: int) -> dict[str, Any]:
        """For the results' file."""
        return {
            "wall_ms": asdict(self.wall_ms),
            "cpu_ms": asdict(self.cpu_ms),
            "cpu_ms_a_message": self.cpu_ms.median / messages,
            "requests": asdict(self.exact("requests")),
            "write_units": asdict(self.exact("write_units")),
            "read_units": asdict(self.exact("read_units")),
            "peak_mb": asdict(self.peak_mb),
            "endpoint_cpu_ms": Spread.of([sample.endpoint_cpu_seconds * 1000 for sample in self.samples]).median,
            "samples": len(self.samples),
        }


Table = dict[Cell, dict[str, Measured]]


def ratio(one: Measured, other: Measured, of: Callable[[Sample], float]) -> Spread:
    """How many times as much `one` needs as `other`: of the medians of all rounds, and the spread of the rounds'."""

    def middle(samples: Sequence[Sample]) -> float:
        return statistics.median(of(sample) for sample in samples)

    rounds = [middle(a) / middle(b) for a, b in zip(one.rounds, other.rounds, strict=True)]
    return Spread(middle(one.samples) / middle(other.samples), min(rounds), max(rounds))


def wall(sample: Sample) -> float:
    """For `ratio`."""
    return sample.wall_seconds


def cpu(sample: Sample) -> float:
    """For `ratio`."""
    return sample.cpu_seconds


def measured(
    cells: Sequence[Cell], endpoint: Loopback, rounds: int, say: Callable[[str], None], cpus: Cpus | None = None
) -> Table:
    """Measure all cells, each subject once a round."""
    table: Table = {cell: {subject: Measured() for subject in cell.subjects} for cell in cells}
    for number, cell, subject in _turns(cells, rounds):
        found = _run(cell, subject, endpoint, cpus)
        samples = [Sample(**sample) for sample in found["samples"]]
        table[cell][subject].rounds.append(samples)
        table[cell][subject].peaks_kb.append(found["peak_kb"])
        best = min(sample.wall_seconds for sample in samples)
        say(f"round {number}/{rounds}  {cell.name:<44} {subject:<11} {best * 1000:9.1f} ms")
    return table


def _turns(cells: Sequence[Cell], rounds: int) -> Iterator[tuple[int, Cell, str]]:
    for number in range(1, rounds + 1):
        for cell in cells:
            for subject in cell.subjects:
                yield number, cell, subject


def _run(cell: Cell, subject: str, endpoint: Loopback, cpus: Cpus | None) -> dict[str, Any]:
    endpoint.clear()
    for table, keys in KEYS.items():
        endpoint.create_table(table, keys.get(subject, "id" if table == "records" else "account"))
    told = json.dumps(asdict(cell.task(subject, endpoint.port, cpus)))
    output = python(["-m", "benchmarks.worker", told], endpoint.url, BENCH_DELAY_SECONDS=str(cell.delay_seconds))
    found: dict[str, Any] = json.loads(output)
    return found


def python(arguments: Sequence[str], endpoint_url: str, **environment: str) -> str:
    """What a Python of this environment prints, in which all AWS clients go to this endpoint."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "AWS_ENDPOINT_URL": endpoint_url,
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "unchecked",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_LAMBDA_FUNCTION_NAME": "consumer",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise MeasurementError(f"{' '.join(arguments)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def machine() -> dict[str, Any]:
    """Where and by what it was measured."""
    from importlib.metadata import version  # noqa: PLC0415  # only asked once

    packages = ("aws-lambda-powertools", "idemkit", "boto3", "botocore", "pydantic")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        **{name: version(name) for name in packages},
    }
