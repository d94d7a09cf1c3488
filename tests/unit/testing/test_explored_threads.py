"""On which thread `explore` runs a handler: on the kind of thread on which it runs when it is deployed."""

from __future__ import annotations

import signal
import sqlite3
import threading
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, sqs_consumer
from idempotent_receiver.testing import explore, stuck
from tests.unit.testing.handlers import ORDER

connection = sqlite3.connect(":memory:")


def with_an_alarm(order: dict) -> None:
    signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))


def with_a_connection(order: dict) -> None:
    connection.execute("select 1")


async def with_a_coroutine(order: dict) -> None:
    connection.execute("select 1")


@pytest.mark.filterwarnings("ignore:explore ran")
@pytest.mark.parametrize(
    ("handle", "concurrency", "works"),
    [
        (with_an_alarm, 1, True),
        (with_a_connection, 1, True),
        (with_an_alarm, 2, False),
        (with_a_connection, 2, False),
        (with_a_coroutine, 1, False),
    ],
)
def test_a_handler_runs_on_the_kind_of_thread_on_which_it_will_when_deployed(
    handle: Any, concurrency: int, works: bool
) -> None:
    """What belongs to the calling thread is for plain handlers without concurrency: others fail every message."""
    handler = sqs_consumer(MemoryStore(), concurrency=concurrency)(handle)

    explored = explore(handler, ORDER, no_effects="it tries its thread", most_schedules=20, check=False)

    assert (explored.violations == []) == works


@pytest.mark.parametrize("waits", [True, False], ids=["for a lock", "in a loop"])
def test_what_is_stuck_on_another_thread_ends_with_its_story(monkeypatch: pytest.MonkeyPatch, waits: bool) -> None:
    monkeypatch.setattr(stuck, "MOST_SECONDS", 0.3)
    monkeypatch.setattr(stuck, "LONGEST_UNWINDING_SECONDS", 0.3)
    go_on = threading.Event()

    @sqs_consumer(MemoryStore())
    async def handler(order: dict) -> None:
        while not go_on.is_set():
            if waits:
                go_on.wait()

    try:
        explored = explore(handler, ORDER, no_effects="it hangs", check=False)
    finally:
        go_on.set()

    assert not explored.complete
    assert len(explored.violations) == 1
