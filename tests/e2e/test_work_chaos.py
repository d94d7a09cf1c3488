"""Chaos for `receiver work` with real processes on the local cloud: processes and supervisors are killed, stopped past
their leases, told to end, and parted from DynamoDB or SQS, at random and behind an unreliable network. Every message
takes effect once, and no two runs of one are at work at a time.

N and SEED come from the environment; `make chaos WORKERS=containers` takes 20,000 messages.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter, defaultdict
from contextlib import contextmanager, suppress
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import pytest

from harness.serving import serving
from harness.workload.evidence import Log
from tests.chaos.network_faults import LONGEST_DELAY_SECONDS
from tests.chaos.proxy import Cut, Partitions, Proxy, Service
from tests.e2e.test_work import LEASE_SECONDS, Place, _status
from tests.e2e.worker_cast import Chaos, Deaths, Workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.e2e.deployed import Aws

N = int(os.environ.get("N") or 200)
SEED = int(os.environ.get("SEED") or 1)
LONG = N > 1_000
ACCOUNTS = 40
HANGING_IN = 100 if LONG else 50
"""One of this many messages holds Python's lock for ever at its first attempt."""
BETWEEN_FAULTS_SECONDS = (1.0, 4.0) if LONG else (0.3, 2.0)
IN_PEACE = 0.1 if LONG else 0.2
"""How much is left to be done when the faults end."""


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


def balances(transfers: list[dict[str, Any]]) -> dict[str, int]:
    """What the accounts must have."""
    found: Counter[str] = Counter()
    for one in transfers:
        found[one["from"]] -= one["amount"]
        found[one["to"]] += one["amount"]
    return dict(found)


def transfers(number: int, seconds: Callable[[random.Random], float]) -> list[dict[str, Any]]:
    drawn = random.Random(SEED)
    made = []
    for count in range(number):
        debtor, creditor = drawn.sample(range(ACCOUNTS), 2)
        accounts = {"from": f"account-{debtor}", "to": f"account-{creditor}"}
        amount = drawn.randint(1, 100)
        message = {"name": f"transfer-{count}", "seconds": seconds(drawn), "amount": amount, **accounts}
        made.append({**message, "hangs": count % HANGING_IN == HANGING_IN // 2})
    return made


def mostly_short(drawn: random.Random) -> float:
    """One of fifty outlasts its lease."""
    if drawn.random() < 0.02:
        return LEASE_SECONDS * drawn.uniform(1.1, 1.5)
    return drawn.uniform(0, 0.3 if LONG else 1.5)


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


@contextmanager
def unreliable_network(place: Place) -> Iterator[tuple[str, Partitions, Proxy]]:
    """An endpoint of the cloud at which requests and answers are lost and late, and workers can be parted from it."""
    port = int(place.aws.endpoint_url.rpartition(":")[2])
    proxy = Proxy(port, SEED, Log(place.folder / "proxy.jsonl"))
    partitions = Partitions(proxy.respond)
    with serving(partitions.respond) as own_port:
        yield f"http://127.0.0.1:{own_port}", partitions, proxy
        # Requests in flight may still arrive, and must do no harm.
        partitions.await_end()
        proxy.await_quiet(LONGEST_DELAY_SECONDS * 2)


def test_everything_takes_effect_once_whatever_befalls_the_workers(place: Place) -> None:
    sent = transfers(N, mostly_short)
    send(place, sent)
    begun = time.monotonic()
    with (
        unreliable_network(place) as (endpoint_url, partitions, proxy),
        at_work(place, AWS_ENDPOINT_URL=endpoint_url) as (workers, deaths),
    ):
        chaos, pause, next_fault = Chaos(workers, partitions, SEED), random.Random(SEED), 0.0
        while (left := unsettled(place)) > 0:
            seconds = time.monotonic() - begun
            assert seconds < 300 + N, f"{left} of {N} are left: {chaos.counts}"
            time.sleep(0.3)
            workers.replenish()
            chaos.thaw()
            if left > IN_PEACE * N and seconds > next_fault:
                chaos.strike()
                next_fault = seconds + pause.uniform(*BETWEEN_FAULTS_SECONDS)
                if chaos.counts.total() % 10 == 0:
                    print(f"{seconds:.0f} s, {left} left, {chaos.counts.total()} faults", flush=True)
        chaos.thaw(all=True)
    seconds = time.monotonic() - begun

    runs = place.runs
    starts = Counter(run.name for run in runs if run.what == "start")
    hung = sum(one["hangs"] and starts[one["name"]] > 1 for one in sent)
    drained = sum(one.poll() == 0 for one in workers.leaving)
    print(f"{N} messages, seed {SEED}, {seconds:.0f} s; {starts.total()} runs; {proxy.requests.total()} requests")
    for name, count in sorted(chaos.counts.items()):
        print(f"{count:6} {name}")
    for (service, cut), count in sorted(partitions.met.items()):
        print(f"{count:6} requests and answers parted from {service.name}: {cut}")
    print(f"{len(deaths.at):6} processes died, {chaos.died_frozen} of them frozen; {hung} handlers held Python's lock")
    print(f"{drained:6} supervisors drained to their end")

    found = books(place)
    assert {id: times for id, times in found.items() if id in starts} == dict.fromkeys(place.sent, 1)
    assert {id: times for id, times in found.items() if id not in starts} == balances(sent)
    assert overlaps(place, deaths.at) == {}
    assert chaos.counts.total() >= 10
    if LONG:
        assert chaos.counts.keys() == chaos.cast.keys()
        assert partitions.met.keys() == set(product(Service, Cut))
        assert min(chaos.died_frozen, hung, drained) > 0


def test_without_renewal_runs_overlap(place: Place) -> None:
    """The control: what is measured above would be seen."""
    sent = transfers(8, lambda drawn: 1.5 * LEASE_SECONDS)
    send(place, sent)
    with at_work(place, WITHOUT_RENEWAL="yes") as (_, deaths):
        place.wait_for(lambda: overlaps(place, deaths.at), 4 * LEASE_SECONDS)


def unsettled(place: Place) -> int:
    """How many messages are left in the queue."""
    names = [
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    ]
    left = place.aws.client("sqs").get_queue_attributes(QueueUrl=place.url, AttributeNames=names)["Attributes"]  # type: ignore[arg-type]
    return sum(map(int, left.values()))


# Order.


@pytest.mark.parametrize(("number", "whole"), [(signal.SIGKILL, False), (signal.SIGKILL, True), (signal.SIGSTOP, True)])
def test_groups_keep_their_order_through_a_workers_death(place: Place, number: signal.Signals, *, whole: bool) -> None:
    """Two groups, and two workers, of which one dies in the middle of a group: its process is killed, or the whole
    worker, or it is frozen until its timer kills it.
    """
    sqs = place.aws.client("sqs")
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    place.url = sqs.create_queue(QueueName=f"{place.records}.fifo", Attributes=attributes)["QueueUrl"]  # type: ignore[arg-type]
    for count in range(6):
        for group in "ab":
            name = f"{group}-{count}"
            place.sent.append(name)
            sqs.send_message(
                QueueUrl=place.url, MessageBody=json.dumps({"name": name, "seconds": 1}), MessageGroupId=group
            )

    with place.worker("--concurrency", "2"), place.worker("--concurrency", "2"):
        place.wait_for(lambda: place.of("a-2"))
        process = place.of("a-2")[0].pid
        for pid in (*([int(_status(process)["PPid"])] if whole else []), process):
            with suppress(ProcessLookupError):  # it has died with its supervisor
                os.kill(pid, number)
        place.wait_for(place.settled)

    place.once()
    assert len(place.of("a-2")) == 2
    for group in "ab":
        order = [run.name for run in place.runs if run.what == "start" and run.name.startswith(group)]
        assert order == sorted(order)
