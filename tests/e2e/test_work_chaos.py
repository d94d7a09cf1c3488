"""Chaos for `receiver work` with real processes on the local cloud: processes and supervisors are killed, stopped past
their leases and told to end, at random. Every message takes effect once, and no two runs of one are at work at a time.

N and SEED come from the environment; `make chaos WORKERS=containers` takes 20,000 messages.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from local.cloud import ROOT
from tests.e2e.test_work import LEASE_SECONDS, Place, _alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.e2e.deployed import Aws

N = int(os.environ.get("N") or 300)
SEED = int(os.environ.get("SEED") or 1)
ACCOUNTS = 40
SUPERVISORS = 2
PAST_A_LEASE_SECONDS = LEASE_SECONDS + 3
LONGEST_BACKOFF_SECONDS = 15 * 60
"""What was received often and meets the lease of a dead worker may wait for so long."""
HANGING = 0.005
"""How many of the messages hold Python's lock for ever at their first attempt."""
WITHOUT_FAULTS = 0.8
"""How much must be done when the faults end: what is left is to be done in peace."""


class Deaths(threading.Thread):
    """Sees when processes die: those of supervisors that it knows, and their children."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.at: dict[int, float] = {}
        self.supervisors: set[int] = set()
        self._living: set[int] = set()
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(0.05):
            for supervisor in tuple(self.supervisors):
                self._living |= set(children(supervisor)) - self.at.keys()  # a stopped one keeps its dead
            dead = {pid for pid in self._living if not _alive(pid)}
            self.at |= dict.fromkeys(dead, time.time())
            self._living -= dead

    def end(self) -> None:
        self._ended.set()
        self.join()


def children(supervisor: int) -> list[int]:
    with suppress(OSError):
        return [int(pid) for pid in Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()]
    return []


class Workers:
    """Supervisors with two processes each. Those that end are replaced until `keep` is over."""

    def __init__(self, place: Place, deaths: Deaths, **environment: str) -> None:
        self._place = place
        self._deaths = deaths
        self._environment = {**place.environment, **environment}
        self.running: list[subprocess.Popen[bytes]] = []
        self.leaving: list[subprocess.Popen[bytes]] = []
        self._log = (place.folder / "log").open("ab")

    def replenish(self) -> None:
        """Start as many supervisors as are missing."""
        self.running = [one for one in self.running if one.poll() is None]
        while len(self.running) < SUPERVISORS:
            command = self._place.command(
                "--processes", "2", "--concurrency", "4", handler="worker_chaos_handlers:transfer"
            )
            started = subprocess.Popen(
                command,
                cwd=ROOT / "tests" / "e2e",
                env=self._environment,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            self.running.append(started)
            self._deaths.supervisors.add(started.pid)

    def close(self) -> None:
        """Kill them, and their processes with them."""
        for one in (*self.running, *self.leaving):
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGCONT)
            one.kill()
            one.wait()
        self._log.close()


class Chaos:
    """What befalls workers."""

    def __init__(self, workers: Workers, seed: int) -> None:
        self._workers = workers
        self._random = random.Random(seed)
        self._stopped: list[tuple[float, int]] = []
        self.counts: Counter[str] = Counter()
        self._faults: list[Callable[[subprocess.Popen[bytes]], None]] = [
            self.kill_a_process,
            self.kill_a_process,
            self.kill_a_supervisor,
            self.freeze_a_process,
            self.freeze_a_supervisor,
            self.freeze_all,
            self.drain,
        ]

    def strike(self) -> None:
        """One fault."""
        fault = self._random.choice(self._faults)
        fault(self._random.choice(self._workers.running))
        self.counts[fault.__name__] += 1

    def thaw(self, *, all: bool = False) -> None:
        """Let those continue that have been stopped for long enough."""
        due = [one for one in self._stopped if all or time.monotonic() >= one[0]]
        for one in due:
            self._stopped.remove(one)
            with suppress(ProcessLookupError):
                os.kill(one[1], signal.SIGCONT)

    def kill_a_process(self, supervisor: subprocess.Popen[bytes]) -> None:
        for pid in self._one_of(supervisor):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_a_supervisor(self, supervisor: subprocess.Popen[bytes]) -> None:
        supervisor.kill()
        supervisor.wait()

    def freeze_a_process(self, supervisor: subprocess.Popen[bytes]) -> None:
        self._freeze(*self._one_of(supervisor))

    def freeze_a_supervisor(self, supervisor: subprocess.Popen[bytes]) -> None:
        self._freeze(supervisor.pid)

    def freeze_all(self, supervisor: subprocess.Popen[bytes]) -> None:
        self._freeze(supervisor.pid, *children(supervisor.pid))

    def drain(self, supervisor: subprocess.Popen[bytes]) -> None:
        supervisor.terminate()
        self._workers.running.remove(supervisor)
        self._workers.leaving.append(supervisor)

    def _one_of(self, supervisor: subprocess.Popen[bytes]) -> list[int]:
        found = children(supervisor.pid)
        return [self._random.choice(found)] if found else []

    def _freeze(self, *pids: int) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                self._stopped.append((time.monotonic() + PAST_A_LEASE_SECONDS, pid))


def overlaps(place: Place, deaths: dict[int, float]) -> dict[str, list[tuple[float, float]]]:
    """The messages of which two runs were at work at the same time. A run without an end lasted until its process's
    death, however long that was stopped.
    """
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    begun: dict[tuple[int, str], float] = {}
    for run in place.runs:
        if run.what == "start":
            begun[run.pid, run.name] = run.at
        else:
            spans[run.name].append((begun.pop((run.pid, run.name)), run.at))
    for (pid, name), at in begun.items():
        spans[name].append((at, deaths.get(pid, time.time())))
    return {name: sorted(each) for name, each in spans.items() if any(a[1] > b[0] for a, b in pairwise(sorted(each)))}


def books(place: Place) -> dict[str, int]:
    """All that the ledger has: how often each message took effect, and the accounts' balances."""
    found: dict[str, int] = {}
    for page in (
        place.aws.client("dynamodb").get_paginator("scan").paginate(TableName=place.entries, ConsistentRead=True)
    ):
        found |= {item["id"]["S"]: int(item["times"]["N"]) for item in page["Items"]}
    return found


def effects(place: Place) -> dict[str, int]:
    return {id: times for id, times in books(place).items() if not id.startswith("account-")}


def balances(transfers: list[dict[str, Any]]) -> dict[str, int]:
    """What the accounts must have."""
    found: Counter[str] = Counter()
    for one in transfers:
        found[one["from"]] -= one["amount"]
        found[one["to"]] += one["amount"]
    return dict(found)


def transfers(number: int, seconds: Callable[[random.Random], float], hanging: float = 0.0) -> list[dict[str, Any]]:
    drawn = random.Random(SEED)
    made = []
    for count in range(number):
        debtor, creditor = drawn.sample(range(ACCOUNTS), 2)
        accounts = {"from": f"account-{debtor}", "to": f"account-{creditor}"}
        amount = drawn.randint(1, 100)
        message = {"name": f"transfer-{count}", "seconds": seconds(drawn), "amount": amount, **accounts}
        made.append({**message, "hangs": drawn.random() < hanging})
    return made


def mostly_short(drawn: random.Random) -> float:
    """One of fifty outlasts its lease."""
    if drawn.random() < 0.02:
        return LEASE_SECONDS * drawn.uniform(1.1, 1.5)
    return drawn.uniform(0, 1.5 if N <= 1_000 else 0.3)


def send(place: Place, messages: list[dict[str, Any]]) -> None:
    place.sent += [one["name"] for one in messages]
    for start in range(0, len(messages), 10):
        entries = [
            {"Id": str(each), "MessageBody": json.dumps(one)} for each, one in enumerate(messages[start : start + 10])
        ]
        answer = place.aws.client("sqs").send_message_batch(QueueUrl=place.url, Entries=entries)
        assert len(answer["Successful"]) == len(entries)


@contextmanager
def at_work(place: Place, **environment: str) -> Iterator[tuple[Workers, Deaths]]:
    deaths = Deaths()
    deaths.start()
    workers = Workers(place, deaths, **environment)
    try:
        workers.replenish()
        yield workers, deaths
    finally:
        workers.close()
        time.sleep(0.3)
        deaths.end()


@pytest.fixture
def place(aws: Aws, tmp_path: Path) -> Place:
    return Place(aws, tmp_path)


def test_everything_takes_effect_once_whatever_befalls_the_workers(place: Place) -> None:
    sent = transfers(N, mostly_short, HANGING)
    send(place, sent)
    with at_work(place) as (workers, deaths):
        chaos, pause = Chaos(workers, SEED), random.Random(SEED)
        ends = time.monotonic() + LONGEST_BACKOFF_SECONDS + N
        while (done := len(effects(place))) < N:
            assert time.monotonic() < ends, f"{done} of {N}: {chaos.counts}"
            time.sleep(pause.uniform(0.3, 2))
            workers.replenish()
            chaos.thaw()
            if done < WITHOUT_FAULTS * N:
                chaos.strike()
        chaos.thaw(all=True)
        place.wait_for(lambda: empty(place), LONGEST_BACKOFF_SECONDS)
    print(f"{N} messages, {len(place.runs)} lines of runs, {dict(chaos.counts)}")

    found = books(place)
    assert {id: times for id, times in found.items() if id in place.sent} == dict.fromkeys(place.sent, 1)
    assert {id: times for id, times in found.items() if id not in place.sent} == balances(sent)
    assert overlaps(place, deaths.at) == {}
    assert chaos.counts.total() >= 5


def test_without_renewal_runs_overlap(place: Place) -> None:
    """The control: what is measured above would be seen."""
    sent = transfers(8, lambda drawn: 1.5 * LEASE_SECONDS)
    send(place, sent)
    with at_work(place, WITHOUT_RENEWAL="yes") as (_, deaths):
        place.wait_for(lambda: overlaps(place, deaths.at), 4 * LEASE_SECONDS)


def empty(place: Place) -> bool:
    """Whether nothing is left in the queue."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = place.aws.client("sqs").get_queue_attributes(QueueUrl=place.url, AttributeNames=names)["Attributes"]  # type: ignore[arg-type]
    return set(left.values()) == {"0"}


# Order.


def test_groups_keep_their_order_through_a_processs_death(place: Place) -> None:
    """Two groups, and two processes, of which one is killed in the middle of a group."""
    sqs = place.aws.client("sqs")
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    place.url = sqs.create_queue(QueueName=f"{place.records}.fifo", Attributes=attributes)["QueueUrl"]  # type: ignore[arg-type]
    for number in range(6):
        for group in "ab":
            name = f"{group}-{number}"
            place.sent.append(name)
            sqs.send_message(
                QueueUrl=place.url, MessageBody=json.dumps({"name": name, "seconds": 1}), MessageGroupId=group
            )

    with place.worker("--processes", "2", "--concurrency", "2"):
        place.wait_for(lambda: place.of("a-2"))
        os.kill(place.of("a-2")[0].pid, signal.SIGKILL)
        place.wait_for(place.settled)

    place.once()
    assert len(place.of("a-2")) == 2
    for group in "ab":
        order = [run.name for run in place.runs if run.what == "start" and run.name.startswith(group)]
        assert order == sorted(order)
