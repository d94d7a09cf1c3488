"""The figures of one run, as a dashboard shows them: `python -m local.figures FILE` plays the story and keeps them.

What the function has printed is read from its log: metrics in the embedded format, failures, durations. How full the
queues were is asked while it plays. What only AWS counts (the age of the oldest message, throttles) is not among it.
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

from local.caller import at_local_cloud
from local.cloud import running_cloud
from local.deploy import deploy
from local.play import LOCAL, Player, StandinPrompter
from local.run import PARAMETERS, VISIBILITY_SECONDS, overlay_of
from local.stage import Stage
from local.standin import Server, Standin
from local.story import CURRENCY, tell

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from local.cloud import Cloud
    from local.play import Progress

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
        for name, value in _counted(line):
            figures.metrics.setdefault(name, []).append((seconds, value))
        failures.update(_failed(line))
    figures.failures = dict(failures.most_common())
    return figures


def _parsed(line: str) -> dict[str, Any]:
    return json.loads(line) if line.startswith("{") else {}


def _counted(line: str) -> Iterator[tuple[str, float]]:
    """The values of a line in the embedded metric format."""
    found = _parsed(line)
    for directive in found.get("_aws", {}).get("CloudWatchMetrics", []):
        for metric in directive["Metrics"]:
            yield metric["Name"], sum(found[metric["Name"]])


def _failed(line: str) -> Sequence[str]:
    found = _parsed(line)
    return [found["error_type"]] if "error_type" in found else []


def played(number: int, seed: int) -> Figures:
    """Play the story of `make run` on a cloud of its own, and take the figures."""
    story = tell(seed, number)
    standin = Standin(story.kinds)
    with Server(standin) as port, running_cloud() as cloud:
        stack = deploy(cloud, overlay=overlay_of(port, protected=True), parameters=PARAMETERS)
        clients: dict[str, Any] = {"sqs": cloud.client("sqs"), "dynamodb": cloud.client("dynamodb")}
        clients |= {"functions": cloud.client("lambda"), "api": at_local_cloud(cloud, stack)}
        stage = Stage(stack=stack, **clients)
        stage.shorten_visibility(VISIBILITY_SECONDS)
        stage.open_accounts(story.opening, CURRENCY)
        standin.attach(lambda names: frozenset(entry.transfer for entry in stage.entries_of(names)))
        player = Player(stage, story, StandinPrompter(standin))
        begun, depths = time.time(), []

        def said(seen: Progress) -> None:
            letters = seen.dead_letters.total
            depths.append((time.time() - begun, seen.queue.waiting, seen.queue.in_flight, letters))

        player.send(said)
        gave_up = player.finish(LOCAL, said)
        if gave_up is not None:
            raise RuntimeError(gave_up)
        timeout_ms = 1000 * int(PARAMETERS["FunctionTimeout"])
        figures = taken(_log(cloud, stack.outputs["ConsumerLogGroup"], begun), timeout_ms)
    figures.depths = depths
    return figures


def _log(cloud: Cloud, group: str, begun: float) -> list[tuple[float, str]]:
    pages = cloud.client("logs").get_paginator("filter_log_events").paginate(logGroupName=group)
    return [(event["timestamp"] / 1000 - begun, event["message"]) for page in pages for event in page["events"]]


def main() -> int:
    """Play, and keep the figures in the file that is named."""
    (file,) = sys.argv[1:]
    figures = played(NUMBER, SEED)
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps({"number": NUMBER, "seed": SEED, **vars(figures)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
