"""The figures of one run, as a dashboard shows them: `python -m local.figures FILE` runs the workload and keeps them.

What the function has printed is read from its log: metrics in the embedded format, failures, durations. How full the
queues are is asked during the run. What only AWS counts (the age of the oldest message, throttles) is missing.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from local.redelivery import Redeliveries, ServiceTrigger
from local.run import VISIBILITY_SECONDS
from local.workload.deployment import PARAMETERS, deployed, log_events
from local.workload.driver import LOCAL, drive
from local.workload.fake_service import FakeService
from local.workload.report import Report
from local.workload.transfers import CURRENCY, generate

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from local.workload.driver import Progress

NUMBER, SEED = 500, 1

DURATION = re.compile(r"^REPORT .*?\bDuration: ([0-9.]+) ms")
ENDED_BADLY = re.compile(r"Task timed out|Runtime\.ExitError|^Worker process died")
"""A time-out or a crash, as Lambda says it, or as the local cloud does."""


@dataclass
class Figures:
    """Everything by time, in seconds from the first message's sending."""

    timeout_ms: int
    metrics: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    durations_ms: list[tuple[float, float]] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)
    depths: list[tuple[float, int, int, int]] = field(default_factory=list)
    """When, and how many messages were waiting, in flight, and dead letters."""


def taken(events: Iterable[tuple[float, str]], timeout_ms: int) -> Figures:
    """The figures in a log: lines with the time of each."""
    figures, failures = Figures(timeout_ms), Counter[str]()
    for seconds, line in events:
        duration = DURATION.match(line)
        if duration:
            figures.durations_ms.append((seconds, float(duration[1])))
        if ENDED_BADLY.search(line):
            figures.errors.append(seconds)
        said = json.loads(line) if line.startswith("{") else {}
        for name, value in _counted(said):
            figures.metrics.setdefault(name, []).append((seconds, value))
        if "error_type" in said:
            failures[said["error_type"]] += 1
    figures.failures = dict(failures.most_common())
    return figures


def _counted(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The values of a line in the embedded metric format."""
    for directive in found.get("_aws", {}).get("CloudWatchMetrics", []):
        for metric in directive["Metrics"]:
            yield metric["Name"], sum(found[metric["Name"]])


def measured(number: int, seed: int) -> Figures:
    workload, service = generate(seed, number), FakeService()
    depths: list[tuple[float, int, int, int]] = []
    with deployed(service, Report()) as (cloud, client):
        client.shorten_visibility(VISIBILITY_SECONDS)
        client.open_accounts(workload.opening, CURRENCY)
        service.ledger = client.posted
        begun = time.time()

        def say(seen: Progress) -> None:
            depths.append((time.time() - begun, seen.queue.waiting, seen.queue.in_flight, seen.dead_letters.total))

        _, gave_up = drive(client, workload, Redeliveries(client, workload, ServiceTrigger(service)), LOCAL, say)
        if gave_up is not None:
            raise RuntimeError(gave_up)
        log = log_events(cloud, client.stack.outputs["ConsumerLogGroup"])
        figures = taken(
            ((at_ms / 1000 - begun, line) for at_ms, line in log), 1000 * int(PARAMETERS["FunctionTimeout"])
        )
    figures.depths = depths
    return figures


def main() -> int:
    (file,) = sys.argv[1:]
    figures = measured(NUMBER, SEED)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps({"number": NUMBER, "seed": SEED, **vars(figures)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
