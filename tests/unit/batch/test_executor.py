"""What coroutines and interrupts leave behind: nothing of it outlives its invocation, or delays the answer."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Message, sqs_consumer
from idempotent_receiver.batch.event_loop import MOST_LEFT_BEHIND, NOTHING_LEFT, LeftBehind, begin
from idempotent_receiver.batch.executor import ThreadPool
from idempotent_receiver.testing.worker import failed_ids
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.unit.batch.at_once import PATIENCE, Blocking, Collecting, batch


async def the_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


ONE_THREAD = LeftBehind(cancelled=[], tasks=[], generators=[], threads=1)


def closing(collecting: Collecting, within_seconds: float) -> tuple[threading.Thread, list[LeftBehind | None]]:
    """Close it on a thread of its own."""
    answers: list[LeftBehind | None] = []
    thread = threading.Thread(target=lambda: answers.append(collecting.close(within_seconds)), daemon=True)
    thread.start()
    return thread, answers


# What an executor is closed with.


async def for_ever(at_the_end: Callable[[], Any]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        at_the_end()


async def a_task(kept: list[Any], ended: Callable[[], None]) -> None:
    kept.append(asyncio.create_task(for_ever(ended)))


async def a_task_that_starts_another_at_its_end(kept: list[Any], ended: Callable[[], None]) -> None:
    kept.append(asyncio.create_task(for_ever(lambda: kept.append(asyncio.create_task(for_ever(ended))))))


async def a_task_that_exits(kept: list[Any], ended: Callable[[], None]) -> None:
    def leave() -> None:
        raise SystemExit(3)

    kept += [asyncio.create_task(for_ever(leave)), asyncio.create_task(for_ever(ended))]


async def a_task_that_interrupts(kept: list[Any], ended: Callable[[], None]) -> None:
    async def interrupts() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyboardInterrupt

    kept += [asyncio.create_task(interrupts()), asyncio.create_task(for_ever(ended))]


async def a_generator(kept: list[Any], ended: Callable[[], None]) -> None:
    async def generator() -> Any:
        try:
            yield 1
        finally:
            ended()

    kept.append(generator())
    await anext(kept[0])


@pytest.mark.parametrize(
    "leaves",
    [a_task, a_task_that_starts_another_at_its_end, a_task_that_exits, a_task_that_interrupts, a_generator],
    ids=lambda leaves: leaves.__name__,
)
def test_what_a_coroutine_leaves_behind_ends_before_the_invocation_does(leaves: Callable[..., Any]) -> None:
    """It is cancelled and awaited, with what it starts meanwhile: nothing may wake up in a later invocation."""
    ends, kept = [], list[Any]()

    async def job() -> None:
        await leaves(kept, lambda: ends.append("ended"))
        await asyncio.sleep(0)

    collecting = Collecting()
    collecting.run(job)
    assert ends == []

    left = collecting.close()
    assert left is None or replace(left, cancelled=[]) == NOTHING_LEFT
    assert (left is None) == (leaves is a_generator)
    assert ends == ["ended"]
    if leaves in (a_task_that_exits, a_task_that_interrupts):
        assert isinstance(kept[0].exception(), SystemExit | KeyboardInterrupt)


def test_the_threads_that_a_coroutine_leaves_behind_are_waited_for_at_the_end() -> None:
    """Also for a coroutine that was not cancelled. The next invocation has threads of its own."""
    block, collecting = Blocking(), Collecting()
    collecting.run(block.left)
    assert block.running.wait(PATIENCE)
    thread, _ = closing(collecting, PATIENCE)
    assert block.ends == []
    block.go_on.set()
    thread.join(PATIENCE)

    assert block.ends == ["thread"]
    again = Collecting(*collecting.shared)

    async def works() -> tuple[str, str]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda done: (done, threading.current_thread().name), "worked")

    assert again.run(works) == [("worked", "idempotent-receiver_0")]
    again.close()


def test_a_coroutine_that_is_cancelled_before_its_first_step_reports_its_end_too() -> None:
    """Another one blocks the loop; without a report the invocation would wait for ever."""
    block, collecting = Blocking(), Collecting()

    async def blocker() -> str:
        block()  # a handler that blocks its loop, as some do
        return "blocker"

    async def second() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "cancelled"
        return "never"

    collecting.start_async(blocker)
    assert block.running.wait(PATIENCE)
    collecting.start_async(second)
    collecting.executor.cancel_async()
    block.go_on.set()

    assert sorted(collecting.wait(2)) == ["blocker", "cancelled"]
    collecting.close()


@pytest.mark.scenario("S38", mutant="the threads of a cancelled coroutine outlive its invocation")
def test_the_threads_of_a_cancelled_coroutine_are_waited_for() -> None:
    """`asyncio.to_thread` cannot be cancelled; its thread must not outlive the invocation."""
    block, collecting = Blocking(), Collecting()

    async def job() -> str:
        with suppress(asyncio.CancelledError):
            await asyncio.to_thread(block)
        return "cancelled"

    collecting.start_async(job)
    assert block.running.wait(PATIENCE)
    collecting.executor.cancel_async()
    collecting.executor.step(0.05)
    assert collecting.told == []

    block.go_on.set()

    assert collecting.wait() == ["cancelled"]
    assert block.ends == ["thread"]
    collecting.close()


def test_a_task_that_outlives_its_cancelled_coroutine_is_waited_for_however_little_time_is_left() -> None:
    """Its message comes again, and must not run beside it."""
    collecting, running, go_on, ends = Collecting(), threading.Event(), threading.Event(), list[str]()

    async def stubborn() -> None:
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)
        ends.append("task")

    async def handle() -> str:
        task = asyncio.create_task(stubborn())
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
            running.set()
            await asyncio.Event().wait()
        return f"cancelled beside {task.get_name()[:4]}"

    collecting.start_async(handle)
    assert running.wait(PATIENCE)
    collecting.executor.cancel_async()
    assert collecting.wait() == ["cancelled beside Task"]
    thread, answers = closing(collecting, 0)
    thread.join(0.05)
    assert (thread.is_alive(), ends) == (True, [])

    go_on.set()
    thread.join(PATIENCE)

    assert [left.tasks for left in answers] == [[]]
    assert ends == ["task"]


def test_where_no_time_is_left_a_step_does_not_wait() -> None:
    began = time.monotonic()
    Collecting().executor.step(-1)
    assert time.monotonic() - began < 0.5


def test_what_waits_for_a_thread_at_the_end_never_starts() -> None:
    block, collecting, jobs = Blocking(), Collecting(), 50

    async def leaves_more_than_there_are_threads() -> None:
        for _ in range(jobs):
            await block.left()

    collecting.run(leaves_more_than_there_are_threads)
    left = collecting.close(0.5)  # enough to empty the line
    block.go_on.set()
    assert left is not None
    for thread in threading.enumerate():
        if thread.name.startswith("idempotent-receiver_"):
            thread.join(PATIENCE)

    assert len(block.ends) == left.threads < jobs


def test_a_cancellation_after_the_last_coroutine_has_returned_does_not_delay_the_answer() -> None:
    """The deadline comes while the last one's end is recorded: no message that is retried left that thread behind."""
    block, cancelled, collecting = Blocking(), threading.Event(), Collecting()
    (loop,) = collecting.run(block.left)
    collecting.executor.cancel_async()
    loop.call_soon_threadsafe(cancelled.set)
    assert cancelled.wait(PATIENCE)

    thread, answers = closing(collecting, 0)
    thread.join(PATIENCE / 2)
    ended = not thread.is_alive()
    block.go_on.set()
    thread.join(PATIENCE)

    assert ended
    assert answers == [ONE_THREAD]


def test_once_many_loops_are_left_alone_the_next_invocation_waits_for_what_it_leaves_behind() -> None:
    """Each costs threads and open files, so their number needs a bound."""
    block, shared = Blocking(), (ThreadPool(), begin)

    def leave() -> Collecting:
        collecting = Collecting(*shared)
        collecting.run(block.left)
        return collecting

    try:
        for _ in range(MOST_LEFT_BEHIND):
            assert leave().close(0) is not None
        thread, answers = closing(leave(), 0)
        thread.join(0.5)
    finally:
        block.go_on.set()
    thread.join(PATIENCE)

    assert answers == [None]


def test_tasks_that_never_stop_starting_others_are_left_on_the_loop_and_named() -> None:
    """Cancelling them for ever would keep the next invocation waiting."""
    kept, slain, collecting = list[Any](), threading.Event(), Collecting()

    async def hydra() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if not slain.is_set():
                kept.append(asyncio.create_task(hydra()))

    async def job() -> None:
        kept.append(asyncio.create_task(hydra()))
        await asyncio.sleep(0)

    collecting.run(job)
    left = collecting.close()
    again = Collecting(*collecting.shared)
    (loop,) = again.run(the_loop)
    again.close()
    slain.set()
    loop.call_soon_threadsafe(kept[-1].cancel)

    assert left is not None
    assert len(left.tasks) == 1


# Whole consumers, on real threads.


def test_coroutines_that_wait_behind_a_suspended_one_are_not_started() -> None:
    """All were started together; the machine, with its clock, is suspended in the first, which does not await."""
    clock, ran = ManualClock(), []

    async def handle(body: dict, message: Message) -> None:
        ran.append(message.id)
        clock.stepped_seconds += 3600

    handler = controlled(store := MemoryStore(), concurrency=5, clock=clock)(handle)

    assert failed_ids(handler(batch(*"abcde"), Context())) == list("bcde")
    assert ran == ["a"]
    assert [store.items[id].get("owner") for id in "abcde"] == ["invocation-1", None, None, None, None]


def test_what_a_coroutine_that_raised_leaves_behind_delays_the_answer_until_it_has_ended() -> None:
    """One of two gathered threads failed, so the message is retried: nothing may still run beside that."""
    ends = []

    async def handle(body: dict) -> None:
        def pays() -> None:
            threading.Event().wait(0.7)
            ends.append("thread")

        def fails() -> None:
            raise ValueError

        await asyncio.gather(asyncio.to_thread(pays), asyncio.to_thread(fails))

    handler = sqs_consumer(MemoryStore(), stop_margin_seconds=0.1)(handle)
    assert failed_ids(handler(batch("a"), Context(seconds=0.3))) == ["a"]
    ends.append("answer")

    assert ends == ["thread", "answer"]
