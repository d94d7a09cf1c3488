"""`receiver work` with real processes on the local cloud: handlers longer than their leases, and processes that die."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import pytest

from harness.cloud import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.deployed import Aws

LEASE_SECONDS = 10
MARGIN_SECONDS = 3
LONGEST_SECONDS = 90


class Run(NamedTuple):
    """A line of a handler: when, in which process, what, of which message."""

    at: float
    pid: int
    what: str
    name: str


class Place:
    """A queue, its tables, and the lines that handlers leave."""

    def __init__(self, aws: Aws, folder: Path, *, fifo: bool = False) -> None:
        self.aws = aws
        self.folder = folder
        unique = uuid4().hex[:8]
        self.records, self.entries = f"records-{unique}", f"entries-{unique}"
        for table in (self.records, self.entries):
            aws.client("dynamodb").create_table(
                TableName=table,
                KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
                AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
                BillingMode="PAY_PER_REQUEST",
            )
        self.fifo = ".fifo" if fifo else ""
        attributes: Any = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if fifo else {}
        created = aws.client("sqs").create_queue(QueueName=f"orders-{unique}{self.fifo}", Attributes=attributes)
        self.url = created["QueueUrl"]
        self.lines = folder / "runs"
        self.lines.touch()
        self.sent: list[str] = []
        self.program = ["-m", "idempotent_receiver"]
        self.more: dict[str, str] = {}
        """Further variables of its worker."""

    def send(self, name: str, **body: Any) -> None:
        self.sent.append(name)
        grouped: Any = {"MessageGroupId": "group"} if self.fifo else {}
        self.aws.client("sqs").send_message(
            QueueUrl=self.url, MessageBody=json.dumps({"name": name, **body}), **grouped
        )

    @property
    def environment(self) -> dict[str, str]:
        credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
        return {
            **os.environ,
            **credentials,
            "AWS_ENDPOINT_URL": self.aws.endpoint_url,
            "RECORDS": self.records,
            "ENTRIES": self.entries,
            "RUNS": str(self.lines),
            **self.more,
        }

    def command(self, *options: str, url: str | None = None, handler: str = "worker_handlers:handle") -> list[str]:
        lease = [] if "--lease-seconds" in options else ["--lease-seconds", str(LEASE_SECONDS)]
        return [sys.executable, *self.program, "work", url or self.url, handler, *lease, *options]

    @contextmanager
    def worker(self, *options: str, handler: str = "worker_handlers:handle") -> Iterator[subprocess.Popen[bytes]]:
        """A running worker, killed with its processes at the end of the block."""
        log = (self.folder / "log").open("wb")
        command = self.command(*options, handler=handler)
        with (
            log,
            subprocess.Popen(
                command,
                cwd=ROOT / "tests" / "e2e",
                env=self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            ) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    @property
    def runs(self) -> list[Run]:
        split = [line.split() for line in self.lines.read_text().splitlines()]
        return [Run(float(at), int(pid), what, name) for at, pid, what, name in split]

    def of(self, name: str, what: str = "start") -> list[Run]:
        return [run for run in self.runs if run.name == name and run.what == what]

    def wait_for(self, done: Any, seconds: float = LONGEST_SECONDS) -> None:
        """Wait until `done()`."""
        ends = time.monotonic() + seconds
        while not done():
            assert time.monotonic() < ends, f"{self.runs}\n{(self.folder / 'log').read_text()[-3000:]}"
            time.sleep(0.1)

    def settled(self) -> bool:
        """Whether every message took effect, and the queue is empty."""
        return len(self.effects()) == len(self.sent) and self.messages(self.url) == {"0"}

    def messages(self, url: str) -> set[str]:
        """How many a queue has, visible and in flight."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        return set(
            self.aws.client("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"].values()
        )  # type: ignore[arg-type]

    def effects(self) -> dict[str, int]:
        """How often each message took effect."""
        items = self.aws.client("dynamodb").scan(TableName=self.entries, ConsistentRead=True)["Items"]
        return {item["id"]["S"]: int(item["times"]["N"]) for item in items}

    def overlaps(self) -> list[str]:
        """The messages of which two runs were at work at the same time. A killed run is taken to end with its lease."""
        found = []
        for name in self.sent:
            spans = []
            for start in self.of(name):
                ends = [end.at for end in self.of(name, "end") if end.pid == start.pid and end.at >= start.at]
                spans.append((start.at, min(ends, default=start.at)))
            spans.sort()
            found += [name for (_, end), (begin, _) in pairwise(spans) if begin < end]
        return found

    def once(self) -> None:
        """Assert that everything took effect once, and that no two runs of a message overlapped."""
        assert self.effects() == dict.fromkeys(self.sent, 1)
        assert self.overlaps() == []


@pytest.fixture
def place(aws: Aws, tmp_path: Path) -> Place:
    return Place(aws, tmp_path)


@pytest.mark.slow
def test_messages_are_handled_and_deleted_as_they_end(place: Place) -> None:
    """Four handlers at once in each of two processes."""
    for number in range(40):
        place.send(f"quick-{number}")

    health = place.folder / "health"

    with place.worker("--processes", "2", "--concurrency", "4", "--health-file", str(health)):
        place.wait_for(place.settled)
        place.wait_for(lambda: time.time() - health.stat().st_mtime < 1)

    place.once()
    assert len(place.runs) == 80


@pytest.mark.slow
def test_a_handler_longer_than_its_lease_and_its_visibility_runs_once(place: Place) -> None:
    """Its neighbours are acknowledged long before it ends."""
    place.send("long", seconds=4 * LEASE_SECONDS)
    for number in range(5):
        place.send(f"quick-{number}")

    with place.worker("--processes", "2", "--concurrency", "2"):
        place.wait_for(lambda: len(place.effects()) == 5, LEASE_SECONDS)
        place.wait_for(place.settled)

    place.once()
    assert len(place.of("long")) == 1


def test_fresh_processes_share_long_messages(place: Place) -> None:
    """One that received ten would make nine of them wait for as long as it takes."""
    for number in range(6):
        place.send(f"long-{number}", seconds=3)

    with place.worker("--processes", "3"):
        place.wait_for(place.settled)

    place.once()
    assert len({run.pid for run in place.runs}) == 3
    assert max(run.at for run in place.runs) - min(run.at for run in place.runs) < 4 * 3


def test_quick_messages_do_not_wait_for_a_long_one(place: Place) -> None:
    """Not even those that were received with it, by a process that had seen quick ones only."""
    with place.worker("--processes", "2"):
        for number in range(20):
            place.send(f"warm-{number}")
        place.wait_for(place.settled)
        place.send("long", seconds=8)
        for number in range(10):
            place.send(f"quick-{number}", seconds=0.01)
        place.wait_for(place.settled)

    place.once()
    [start] = place.of("long")
    assert max(run.at for run in place.runs if run.name.startswith("quick")) - start.at < 3
    assert len(place.of("long")) == 1


def test_what_a_killed_process_held_runs_again_at_once(place: Place) -> None:
    """Long before its lease and its visibility end: the process that takes its place releases it."""
    place.send("interrupted", seconds=3)

    with place.worker("--lease-seconds", "60"):
        place.wait_for(lambda: place.of("interrupted"))
        os.kill(place.of("interrupted")[0].pid, signal.SIGKILL)
        killed = time.time()
        place.wait_for(place.settled)

    place.once()
    assert place.of("interrupted")[1].at - killed < 30


def test_a_process_that_has_had_its_messages_is_replaced_and_nothing_is_lost_or_received_twice(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POWERTOOLS_LOG_LEVEL", "DEBUG")  # every message that is received leaves a line
    for number in range(21):
        place.send(f"order-{number}", seconds=0.05)

    began = time.monotonic()
    with place.worker("--processes", "2", "--concurrency", "2", "--max-messages-per-process", "3"):
        place.wait_for(place.settled)
        took = time.monotonic() - began

    place.once()
    starts = Counter(run.pid for run in place.runs if run.what == "start")
    assert (max(starts.values()), starts.total()) == (3, 21)
    assert len(starts) >= 7
    log = (place.folder / "log").read_text()
    assert "ended with status" not in log
    assert re.findall(r'"receive_count":(\d+)', log) == ["1"] * 21
    assert sum(map(int, re.findall(r'"message":"batch".*"messages":(\d+)', log))) == 21, "each batch was told of"
    assert took < 30, "an end that counted as a death would be followed by a pause"


def test_a_process_that_cannot_renew_is_dead_before_its_lease_ends(place: Place) -> None:
    """A handler that holds Python's lock keeps every thread from renewing. The message runs alone next time."""
    place.send("hangs", hangs=True)

    with place.worker("--processes", "1"):
        place.wait_for(lambda: place.of("hangs"))
        first = place.of("hangs")[0]
        place.wait_for(lambda: not _alive(first.pid), 2 * LEASE_SECONDS)
        assert time.time() - first.at <= LEASE_SECONDS - MARGIN_SECONDS + 1
        place.wait_for(place.settled)

    place.once()
    assert "could not renew a lease" in (place.folder / "log").read_text()


def test_a_process_that_is_frozen_together_with_its_supervisor_is_dead_before_its_lease_ends(place: Place) -> None:
    """By the kernel's timer. Another worker takes its message over."""
    place.send("frozen", seconds=4)

    with place.worker() as frozen, place.worker():
        place.wait_for(lambda: place.of("frozen"))
        first = place.of("frozen")[0]
        supervisor = int(_status(first.pid)["PPid"])
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(first.pid, signal.SIGSTOP)
        place.wait_for(lambda: not _alive(first.pid), 2 * LEASE_SECONDS)
        assert time.time() - first.at <= LEASE_SECONDS - MARGIN_SECONDS + 1
        os.kill(supervisor, signal.SIGCONT)
        place.wait_for(place.settled)
        assert frozen.poll() is None

    place.once()


def test_processes_die_with_their_supervisor(place: Place) -> None:
    place.send("orphan", seconds=30)

    with place.worker() as worker:
        place.wait_for(lambda: place.of("orphan"))
        worker.kill()
        place.wait_for(lambda: not _alive(place.of("orphan")[0].pid), 2)


@pytest.mark.parametrize("ends", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_what_runs_end_and_gives_back_the_rest(place: Place, ends: signal.Signals) -> None:
    """SIGHUP comes when a terminal is closed."""
    for number in range(8):
        place.send(f"drained-{number}", seconds=2)

    with place.worker() as worker:
        place.wait_for(lambda: place.of("drained-0") or place.runs)
        worker.send_signal(ends)
        assert worker.wait(25) == 0
    ended = {run.name for run in place.runs if run.what == "end"}
    assert set(place.effects()) == ended
    assert 1 <= len(ended) < 8

    with place.worker("--concurrency", "8"):
        place.wait_for(place.settled)
    place.once()


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"handler": "worker_handlers:undecorated"}, "is not decorated with @sqs_consumer"),
        ({"url": "https://sqs.example.com/misspelt"}, "cannot be read"),
        ({"lease": "5"}, "a lease of 5 seconds is too short"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_poll(place: Place, options: dict[str, str], why: str) -> None:
    place.send("waits")
    lease = ["--lease-seconds", options.pop("lease", str(LEASE_SECONDS))]

    done = subprocess.run(
        place.command(*lease, **options),
        cwd=ROOT / "tests" / "e2e",
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 2
    assert "".join(why.split()) in "".join(done.stderr.split())  # it may be broken into lines
    assert place.runs == []


def _alive(pid: int) -> bool:
    try:
        return not _status(pid)["State"].startswith("Z")
    except FileNotFoundError:
        return False


def _status(pid: int) -> dict[str, str]:
    with open(f"/proc/{pid}/status", encoding="utf-8") as lines:  # noqa: PTH123  # it is no file
        return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_what_a_worker_sends_takes_effect_once_at_the_next_though_its_processes_are_killed(
    aws: Aws, tmp_path: Path
) -> None:
    places = [tmp_path / name for name in ("first", "next")]
    for folder in places:
        folder.mkdir()
    first, following = (Place(aws, folder) for folder in places)
    first.more = {"NEXT": following.url, "PYTHONPATH": str(ROOT)}
    for number in range(40):
        first.send(f"{number}")

    with (
        first.worker("--processes", "2", "--concurrency", "2", handler="worker_sends:handle"),
        following.worker(),
    ):
        for ended in (5, 20, 32):
            first.wait_for(lambda ended=ended: len(first.runs) >= ended)
            os.kill(first.runs[-1].pid, signal.SIGKILL)
        first.wait_for(first.settled)
        following.wait_for(lambda: len(following.effects()) == 40)
        following.wait_for(lambda: following.messages(following.url) == {"0"})

    once = {f"{number}": 1 for number in range(40)}
    assert (first.effects(), following.effects()) == (once, once)
    assert len(first.runs) > 40, "no process was killed while its handler ran"
