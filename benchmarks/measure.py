"""Runs measurements one after the other, each in its own process. The subjects alternate: A B, B A, A B.

A subject may be named `ours@../old`: our consumer with the library of another checkout.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.endpoint import ROOT, Loopback
from benchmarks.settings import ENTRIES, TABLE, Cell
from benchmarks.worker import Sample

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.cpus import Cpus

LONGEST_SECONDS = 180
VERSIONS = ("aws-lambda-powertools", "idemkit", "fanferro", "boto3", "botocore", "pydantic")
QUICK = ("ours", "bare", "unclaimed", "bare_unclaimed")
"""Subjects so fast that ten times as many samples are both affordable and needed."""


class MeasurementError(Exception):
    """A measurement failed; the message contains the end of its error output."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median, minimum and maximum of several values."""

    median: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """The spread of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g} to {self.most:.3g})"


Rounds = list[list[Sample]]
"""One subject's samples for one cell: a list for each round."""

Table = dict[Cell, dict[str, Rounds]]


def spread(rounds: Rounds, name: str) -> Spread:
    """The spread of a sample's field over all rounds."""
    return Spread.of([getattr(sample, name) for samples in rounds for sample in samples])


def ratios(one: Rounds, other: Rounds, name: str) -> list[float]:
    """The ratio of one subject's `name` to the other's: a ratio of medians for each round."""

    def medians(rounds: Rounds) -> Iterator[float]:
        return (statistics.median(getattr(sample, name) for sample in samples) for samples in rounds)

    return [a / b for a, b in zip(medians(one), medians(other), strict=True)]


def measured(cells: Sequence[Cell], endpoint: Loopback, rounds: int, cpus: Cpus | None) -> Table:
    """Measure all cells, each subject once in every round."""
    table: Table = {cell: {subject: [] for subject in cell.subjects} for cell in cells}
    for number in range(rounds):
        for cell in cells:
            for subject in cell.subjects[:: -1 if number % 2 else 1]:
                samples = _run(cell, subject, endpoint, cpus)
                table[cell][subject].append(samples)
                best = f"{min(sample.wall_ms for sample in samples):9.1f} ms"
                print(f"round {number + 1}/{rounds}  {cell.name:<58} {subject:<14} {best}", file=sys.stderr, flush=True)
    return table


def _run(cell: Cell, subject: str, endpoint: Loopback, cpus: Cpus | None) -> list[Sample]:
    module, _, checkout = subject.partition("@")
    endpoint.clear()
    endpoint.create_table(TABLE, "effective_key" if module == "idemkit" else "id")
    endpoint.create_table(ENTRIES, "account")
    slow = cell.messages > 1_000 or cell.handler_seconds or cell.hot_items or cell.failing
    task = {
        "subject": module,
        "cell": asdict(cell),
        "port": endpoint.port,
        "repeats": cell.repeats * (10 if module in QUICK and not slow else 1),
        "cpus": None if cpus is None else [cpus.own] if cell.pinned else cpus.every,
    }
    output = python(["-m", "benchmarks.worker", json.dumps(task)], endpoint.url, Path(checkout or ROOT))
    return [Sample(**sample) for sample in json.loads(output)]


def python(arguments: Sequence[str], endpoint_url: str, checkout: Path = ROOT) -> str:
    """Run this Python with a checkout's library, all AWS clients using this endpoint, and return what it prints."""
    path = os.pathsep.join([str(checkout.resolve() / "src"), str(ROOT)])
    return output_of([sys.executable, *arguments], PYTHONPATH=path, AWS_ENDPOINT_URL=endpoint_url)


def output_of(command: Sequence[str], **environment: str) -> str:
    """Run a command with a function's environment and these variables, and return what it prints."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=aws_environment(AWS_LAMBDA_FUNCTION_NAME="consumer", **environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise MeasurementError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


def aws_environment(**more: str) -> dict[str, str]:
    """Every subject's environment, plus these variables."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "unchecked",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        **more,
    }


def machine() -> dict[str, Any]:
    """The machine and the packages' versions."""
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg(),
        **{name: _installed(name) for name in VERSIONS},
    }


def _installed(name: str) -> str | None:
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return None
