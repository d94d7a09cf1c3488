"""What finished coroutines leave behind, and what an interrupt finds, in whole consumers on real threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Message, sqs_consumer
from idempotent_receiver.batch.executor import ThreadExecutor, ThreadPool
from idempotent_receiver.testing.worker import failed_ids
from tests.consumers import controlled
from tests.contexts import Context
from tests.unit.batch.at_once import PATIENCE, Blocking, batch


class Noted:
    """A logger that keeps its warnings."""

    log_level = 20

    def __init__(self) -> None:
        self.warnings: list[dict[str, Any]] = []

    def info(self, *_: object, **__: object) -> None: ...

    error = debug = info

    def warning(self, text: str, extra: dict[str, Any]) -> None:
        self.warnings.append(extra)


async def thread(go_on: threading.Event, kept: list[Any]) -> None:
    asyncio.get_running_loop().run_in_executor(None, go_on.wait, PATIENCE)


async def task(go_on: threading.Event, kept: list[Any]) -> None:
    async def stubborn() -> None:
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)

    kept.append(asyncio.create_task(stubborn()))
    await asyncio.sleep(0)


async def task_that_blocks_its_loop(go_on: threading.Event, kept: list[Any]) -> None:
    async def blocking() -> None:
        go_on.wait(PATIENCE)

    kept.append(asyncio.create_task(blocking()))


async def generator(go_on: threading.Event, kept: list[Any]) -> None:
    async def slow_to_close() -> Any:
        try:
            yield 1
        finally:
            while not go_on.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.001)

    kept.append(slow_to_close())
    await anext(kept[-1])


@pytest.mark.parametrize(
    ("leaves", "named"),
    [
        (thread, {"threads": 1}),
        (task, {"tasks": ["task.<locals>.stubborn"]}),
        (task_that_blocks_its_loop, {"tasks": ["task_that_blocks_its_loop.<locals>.blocking"]}),
        (generator, {"generators": ["generator.<locals>.slow_to_close"]}),
    ],
)
@pytest.mark.parametrize(("left_ms", "within_seconds"), [(700, 0.7), (60_000, 10)])
def test_what_a_finished_coroutine_leaves_behind_does_not_delay_the_answer(
    leaves: Callable[[threading.Event, list[Any]], Any], named: dict[str, Any], left_ms: int, within_seconds: float
) -> None:
    """The log names it, and the next invocations have the same loop: their clients are bound to it."""
    store, log, go_on, kept, loops = MemoryStore(), Noted(), threading.Event(), [], []

    async def handle(body: dict, message: Message) -> None:
        loops.append(asyncio.get_running_loop())
        if message.id == "a":
            await leaves(go_on, kept)

    handler = sqs_consumer(store, stop_margin_seconds=0.2, logger=log)(handle)  # type: ignore[arg-type]
    try:
        began = time.monotonic()
        assert failed_ids(handler(batch("a"), Context(seconds=left_ms / 1000))) == []
        took = time.monotonic() - began
        if leaves is task_that_blocks_its_loop:
            go_on.set()  # nothing else runs until then
        assert [failed_ids(handler(batch(id), Context())) for id in "bc"] == [[], []]
    finally:
        go_on.set()

    assert took < within_seconds
    assert log.warnings == [{"tasks": [], "generators": [], "threads": 0} | named]
    assert len(set(loops)) == 1
    assert [store.items[id]["status"] for id in "abc"] == ["COMPLETED"] * 3


@pytest.mark.scenario("S39", mutant="an interrupt leaves everything as it is")
@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_the_process_records_what_has_finished_and_releases_the_rest(
    signal: type[BaseException],
) -> None:
    """The invocation ends; claims that never started are released at once."""
    store, block, workers, interrupted = MemoryStore(), Blocking(), ThreadPool(), threading.Event()

    def handle(body: dict, message: Message) -> None:
        if message.id != "0":
            block()

    class Interrupted(ThreadExecutor):
        """The caller's wait is interrupted, as by a signal, once the second handler runs."""

        def step(self, timeout_seconds: float | None) -> None:
            if block.running.is_set() and not interrupted.is_set():
                interrupted.set()
                raise signal
            super().step(0.01)

    handler = controlled(store, executor=lambda: Interrupted(workers, None))(handle)

    try:
        with pytest.raises(signal):
            handler(batch(*"0123"), Context())
    finally:
        block.go_on.set()

    assert [store.items[id]["status"] for id in "01"] == ["COMPLETED", "INPROGRESS"]
    assert [store.items[id].get("owner") for id in "123"] == ["invocation-1", None, None]


def test_a_coroutine_that_overruns_is_cancelled_at_the_margin_and_the_answer_is_in_time() -> None:
    """With a second of margin and half a second more; the deadline itself wakes the receiver."""
    store = MemoryStore()

    async def handle(body: dict) -> None:
        await asyncio.Event().wait()

    handler = sqs_consumer(store, concurrency=2)(handle)

    assert failed_ids(handler(batch(*"ab"), Context(seconds=1.1))) == ["a", "b"]
    assert {item["status"] for item in store.items.values()} == {"FAILED"}
