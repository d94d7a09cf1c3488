"""A plain handler without concurrency runs on the thread that called, where signals arrive too."""

from __future__ import annotations

import asyncio
import random
import signal
import sqlite3
import threading
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pytest

from idempotent_receiver import MemoryStore, Message, sqs_consumer
from idempotent_receiver.batch import runs
from idempotent_receiver.handler.attempt import run
from idempotent_receiver.testing.worker import failed_ids
from tests.contexts import Context
from tests.current_loop import current_loop
from tests.unit.batch.at_once import batch
from tests.unit.batch.test_left_behind import Noted

if TYPE_CHECKING:
    from collections.abc import Iterator


class Late(Exception):
    """What the handler of SIGALRM raises."""


@contextmanager
def alarms(error: type[BaseException]) -> Iterator[None]:
    """Within this block, SIGALRM raises an `error` on the main thread."""

    def rings(*_: object) -> None:
        raise error  # a new one each time: its traceback would grow

    before = signal.signal(signal.SIGALRM, rings)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_handler_has_what_belongs_to_the_thread_that_called() -> None:
    """As under Powertools' batch: an alarm, the current loop, a connection, thread-locals; and a context of its own."""
    local, variable = threading.local(), ContextVar("variable", default="unset")
    local.segment, seen = "segment", list[Any]()

    def handle(body: dict) -> None:
        signal.signal(signal.SIGALRM, signal.getsignal(signal.SIGALRM))
        seen.append((local.segment, connection.execute("select 1").fetchone(), asyncio.get_event_loop() is loop))
        seen.append(variable.get())
        variable.set("a handler's")

    with closing(sqlite3.connect(":memory:")) as connection, current_loop():
        loop = asyncio.get_event_loop()
        variable.set("the caller's")
        assert failed_ids(sqs_consumer(MemoryStore())(handle)(batch(*"ab"), Context())) == []

    assert seen == [("segment", (1,), True), "the caller's"] * 2
    assert variable.get() == "the caller's"


def test_an_alarm_fails_the_message_whose_handler_it_ends() -> None:
    store = MemoryStore()

    def handle(body: dict, message: Message) -> None:
        if message.id == "b":
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            threading.Event().wait(5)

    with alarms(Late):
        assert failed_ids(sqs_consumer(store)(handle)(batch(*"abc"), Context())) == ["b"]
    assert [store.items[id]["status"] for id in "abc"] == ["COMPLETED", "FAILED", "COMPLETED"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may ring in a finalizer
@pytest.mark.parametrize("error", [Late, KeyboardInterrupt])
def test_what_a_signal_raises_between_handlers_leaves_no_claim_and_no_thread(error: type[BaseException]) -> None:
    """Two hundred batches, each interrupted somewhere: the message that ran last fails, or the batch is abandoned."""
    draws, ids, store = random.Random(7), [str(number) for number in range(40)], MemoryStore()

    def handle(body: dict) -> None: ...

    consumer = sqs_consumer(store, logger=Noted())(handle)  # type: ignore[arg-type]
    interrupted = 0
    with alarms(error):
        for _ in range(200):
            assert failed_ids(consumer(batch(*ids), Context())) == []
            store.items.clear()
            failed = ids  # all, for Lambda, where the consumer raises
            with suppress(Late, KeyboardInterrupt):
                try:
                    signal.setitimer(signal.ITIMER_REAL, draws.uniform(0.0001, 0.003))
                    failed = failed_ids(consumer(batch(*ids), Context()))
                finally:  # in the block, because it may still ring here
                    signal.setitimer(signal.ITIMER_REAL, 0)
            interrupted += failed == ids
            claimed = [id for id, item in store.items.items() if item["status"] == "INPROGRESS" and item.get("owner")]
            assert claimed == []
            assert {id for id in ids if id not in failed} <= {
                id for id, item in store.items.items() if "data" in item or item["status"] == "COMPLETED"
            }
            store.items.clear()

    assert interrupted > 20


def test_an_interrupt_between_handlers_fails_the_message_that_was_taken_and_releases_the_rest() -> None:
    """Raised where the library's own code runs on the calling thread."""
    store, ran = MemoryStore(), list[str]()

    def handle(body: dict, message: Message) -> None:
        ran.append(message.id)

    def interrupts(*arguments: Any, **named: Any) -> Any:
        if ran == ["a", "b"]:
            raise Late
        return run(*arguments, **named)

    with patch.object(runs, "run", interrupts):
        assert failed_ids(sqs_consumer(store)(handle)(batch(*"abcd"), Context())) == ["c", "d"]

    assert [store.items[id]["status"] for id in "abc"] == ["COMPLETED", "COMPLETED", "FAILED"]
    assert store.items["d"].get("owner") is None
