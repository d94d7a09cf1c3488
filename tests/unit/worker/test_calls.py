"""Calls outside Lambda: their record's lease is renewed, and what is recorded meanwhile disturbs no renewal."""

from __future__ import annotations

import json
import threading
import time
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Transaction, sqs_consumer
from idempotent_receiver.batch import calling
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.sqs.handlers import consumer_inside
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.process import Limits, Process
from idempotent_receiver.worker.reports import Reports
from tests.unit.worker.test_process import SOON, NoTimer, Queue, until

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE_SECONDS = 0.6


class Caller:
    """A process whose one message makes these calls."""

    def __init__(self, calls: list[Callable[..., None]]) -> None:
        self.queue, self.store, self.lost = Queue(), MemoryStore(), SimpleQueue[str]()
        clock, limits = SystemClock(), Limits(lease_seconds=LEASE_SECONDS, margin_seconds=0.1, concurrency=1)
        leases = Leases(
            self.store,
            clock,
            NoTimer(),
            lambda record_id, why: self.lost.put(why),
            lease_seconds=limits.lease_seconds,
            margin_seconds=limits.margin_seconds,
        )

        def handler(body: str, tx: Transaction) -> None:
            for function in calls:
                tx.call(function)

        consumer = consumer_inside(sqs_consumer(self.store, calls=calls, logger=SILENT, metrics=SILENT)(handler))
        assert consumer is not None
        queue: Any = self.queue
        self.process = Process(consumer, queue, leases=leases, limits=limits, reports=Reports(None, "me"), clock=clock)
        self._thread = threading.Thread(target=self.process.run, daemon=True)
        self._thread.start()

    @property
    def item(self) -> dict[str, Any]:
        return self.store.items["m"]

    def ends(self) -> None:
        self.process.draining = True
        self._thread.join(SOON)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("checkpoint_seconds", [0.05, 60.0])
def test_three_calls_of_a_lease_and_a_half_each_are_made_once_under_a_live_lease(
    checkpoint_seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds the record meanwhile leaves it alone; with checkpoints, it also says what is done."""
    monkeypatch.setattr(calling, "CHECKPOINT_SECONDS", checkpoint_seconds)
    made: list[str] = []
    left: list[int] = []
    dead: list[str] = []

    def slow(name: str) -> None:
        ends = time.monotonic() + 1.5 * LEASE_SECONDS
        while time.monotonic() < ends:
            time.sleep(0.02)
            if caller.item["in_progress_expiration"] <= time.time() * 1000:
                dead.append(name)
        left.append(len([one for one in json.loads(caller.item["outbox"]) if one is not None]))
        made.append(name)

    def one() -> None:
        slow("one")

    def two() -> None:
        slow("two")

    def three() -> None:
        slow("three")

    caller = Caller([one, two, three])
    caller.queue.send(("m", "1"))
    until(lambda: made)
    caller.queue.send(("m", "2"))  # redelivered meanwhile
    until(lambda: "1" in caller.queue.deleted)
    caller.ends()

    assert (made, dead, caller.lost.empty()) == (["one", "two", "three"], [], True)
    assert caller.item["status"] == "COMPLETED"
    assert left == ([3, 2, 1] if checkpoint_seconds < 1 else [3, 3, 3])
