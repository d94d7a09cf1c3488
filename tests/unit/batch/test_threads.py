"""Threads and the event loop: jobs run beside their caller, and report their results."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from contextvars import ContextVar
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore, Message, current_claim, sqs_consumer
from idempotent_receiver.batch.executor import ThreadPool
from idempotent_receiver.testing.worker import failed_ids
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.simulation.world import sqs_record
from tests.unit.batch.at_once import PATIENCE, Collecting

if TYPE_CHECKING:
    from collections.abc import Iterator

variable: ContextVar[str] = ContextVar("variable", default="unset")


@pytest.fixture
def collecting() -> Iterator[Collecting]:
    """An executor that is closed at the end."""
    made = Collecting()
    yield made
    made.close()


def test_a_job_runs_on_a_daemon_and_reports_to_its_callers_thread(collecting: Collecting) -> None:
    """A thread that hangs must not keep the process from ending."""
    homes: list[threading.Thread] = []

    collecting.executor.start(threading.current_thread, lambda there: homes.extend([there, threading.current_thread()]))
    while not homes:
        collecting.executor.step(PATIENCE)

    assert homes[0].daemon
    assert homes[0].name == "idempotent-receiver"
    assert homes[0] is not homes[1]
    assert homes[1] is threading.current_thread()


def test_an_invocation_without_anything_to_do_waits_for_nothing(collecting: Collecting) -> None:
    """A step whose time is over returns, and nothing needs a loop."""
    collecting.executor.step(0)
    collecting.executor.step(-5)
    collecting.executor.cancel_async()

    assert (collecting.told, collecting.close()) == ([], None)


def test_threads_are_reused_by_the_next_invocation() -> None:
    """Starting a thread costs more than a job."""
    workers, names = ThreadPool(), set()
    for _ in range(20):
        collecting = Collecting(workers, None)
        collecting.start(lambda: names.add(threading.get_ident()))
        collecting.wait()
        collecting.close()

    assert len(names) <= 3


@pytest.mark.parametrize("busy", [False, True])
def test_a_thread_ends_with_its_pool_also_in_the_middle_of_a_job(busy: bool) -> None:
    """An environment may make many consumers, as tests do."""
    pool, gate, began = ThreadPool(), threading.Event(), SimpleQueue[threading.Thread]()

    def job() -> None:
        began.put(threading.current_thread())
        assert not busy or gate.wait(PATIENCE)

    pool.run(job)
    thread = began.get(timeout=PATIENCE)
    del pool
    gc.collect()
    gate.set()

    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_job_sees_its_callers_context_and_keeps_its_changes_to_itself(
    collecting: Collecting, asynchronous: bool
) -> None:
    """A variable that a handler sets does not reach the next handler."""

    def job() -> str:
        seen = variable.get()
        variable.set("job's")
        return seen

    async def coroutine() -> str:
        return job()

    token = variable.set("caller's")
    try:
        for count in (1, 2):
            collecting.start_async(coroutine) if asynchronous else collecting.start(job)
            collecting.wait(count)
    finally:
        variable.reset(token)

    assert collecting.told == ["caller's", "caller's"]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_exception_of_a_job_is_raised_where_the_job_was_started(collecting: Collecting, asynchronous: bool) -> None:
    """Jobs must not raise, so it is a defect and must not be lost in a thread."""

    def job() -> float:
        return 1 / 0

    async def coroutine() -> float:
        return job()

    collecting.start_async(coroutine) if asynchronous else collecting.start(job)

    with pytest.raises(ZeroDivisionError):
        collecting.executor.step(PATIENCE)


def test_coroutines_run_together_on_one_loop_with_a_thread_of_its_own(collecting: Collecting) -> None:
    async def job() -> tuple[int, int]:
        await asyncio.sleep(0)
        return id(asyncio.get_running_loop()), threading.get_ident()

    ((_, thread),) = set(collecting.run(job, job, job))

    assert thread != threading.get_ident()


def test_a_coroutine_that_waits_is_not_collected_as_garbage(collecting: Collecting) -> None:
    """An event loop holds its tasks weakly, and nothing else refers to this one's future."""
    futures: list[weakref.ref[Any]] = []

    async def job() -> str:
        future = asyncio.get_running_loop().create_future()
        futures.append(weakref.ref(future))
        try:
            await future
        except asyncio.CancelledError:
            return "cancelled"
        return "never"

    # The second runs once the first waits at its `await`.
    collecting.start_async(job, lambda: asyncio.sleep(0, "turned"))
    collecting.wait()
    gc.collect()
    collecting.executor.cancel_async()

    assert collecting.wait(2) == ["turned", "cancelled"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_task_that_would_end_the_loop_ends_no_other_coroutine(collecting: Collecting, error: BaseException) -> None:
    """A handler's own task calls `sys.exit`: the other coroutines go on."""
    go_on, left = threading.Event(), []

    async def exits() -> None:
        raise error

    async def careless() -> str:
        left.append(asyncio.create_task(exits()))
        await asyncio.wait(left)
        left[0].exception()
        return "careless"

    async def other() -> str:
        while not go_on.is_set():  # noqa: ASYNC110  # set by another thread
            await asyncio.sleep(0)
        return "other"

    collecting.start_async(other, careless)
    assert collecting.wait() == ["careless"]
    go_on.set()

    assert collecting.wait(2) == ["careless", "other"]


def test_a_forgotten_loop_is_closed() -> None:
    """There is no ResourceWarning in a user's tests."""
    collecting = Collecting()
    collecting.run(lambda: asyncio.sleep(0))
    collecting.close()
    del collecting
    gc.collect()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_handlers_really_run_at_the_same_time_each_with_its_own_claim(asynchronous: bool) -> None:
    """Up to the concurrency: each waits for the others."""
    together, seen = threading.Barrier(4, timeout=PATIENCE), []

    def plain(body: dict, message: Message) -> None:
        together.wait()
        seen.append((message.id, current_claim().key))

    async def coroutine(body: dict, message: Message) -> None:
        await asyncio.to_thread(together.wait)
        seen.append((message.id, current_claim().key))

    handler = sqs_consumer(MemoryStore(), concurrency=4)(coroutine if asynchronous else plain)
    event = {"Records": [sqs_record(id) for id in "abcdefgh"]}

    assert failed_ids(handler(event, Context(ManualClock()))) == []
    assert sorted(seen) == [(id, id) for id in "abcdefgh"]
