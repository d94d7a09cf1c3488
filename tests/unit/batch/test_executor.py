"""Threads and the event loop: jobs run beside their caller, report their results, and leave nothing behind."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from queue import SimpleQueue
from typing import Any

import pytest

from idempotent_receiver import MemoryStore, Message, current_claim, sqs_consumer
from idempotent_receiver.batch.event_loop import MOST_LEFT_BEHIND, LeftBehind, Loops
from idempotent_receiver.batch.executor import ThreadExecutor, ThreadPool
from idempotent_receiver.testing.worker import failed_ids
from tests.manual_clock import ManualClock
from tests.simulation.world import sqs_record

PATIENCE = 10.0
"""Seconds after which a test that waits for another thread gives up; none waits for time to pass."""

variable: ContextVar[str] = ContextVar("variable", default="unset")


class Context:
    """Lambda's context, with enough time or with little."""

    aws_request_id, function_name = "r", "f"

    def __init__(self, left_ms: int = 60_000) -> None:
        self.left_ms = left_ms

    def get_remaining_time_in_millis(self) -> int:
        return self.left_ms


class Collecting:
    """An executor that collects its jobs' results."""

    def __init__(self, workers: ThreadPool | None = None, loops: Loops | None = None) -> None:
        self.executor = ThreadExecutor(workers or ThreadPool(), loops or Loops())
        self.told: list[Any] = []

    def start(self, job: Callable[[], Any]) -> None:
        self.executor.start(job, self.told.append)

    def start_async(self, job: Callable[[], Any]) -> None:
        self.executor.start_async(job, self.told.append)

    def wait(self, count: int = 1) -> list[Any]:
        """Step until that many results have arrived."""
        while len(self.told) < count:
            before = len(self.told)
            self.executor.step(PATIENCE)
            assert len(self.told) > before, f"{count - before} jobs never told their end"
        return self.told


@pytest.fixture
def collecting() -> Iterator[Collecting]:
    """An executor that is closed at the end."""
    made = Collecting()
    yield made
    made.executor.close(PATIENCE)


def batch(*ids: str) -> dict[str, Any]:
    return {"Records": [sqs_record(id) for id in ids]}


# Threads.


def test_a_job_runs_on_another_thread_and_reports_its_result(collecting: Collecting) -> None:
    """`then` is called on the caller's thread, by `step`."""
    here = threading.get_ident()
    homes: list[tuple[int, int]] = []

    collecting.executor.start(threading.get_ident, lambda there: homes.append((there, threading.get_ident())))
    while not homes:
        collecting.executor.step(PATIENCE)

    assert homes[0][0] != here
    assert homes[0][1] == here


def test_a_step_without_anything_to_do_ends_when_its_time_is_over(collecting: Collecting) -> None:
    """With zero or less it does not wait."""
    collecting.executor.step(0)
    collecting.executor.step(-5)

    assert collecting.told == []


def test_threads_are_reused_by_the_next_invocation() -> None:
    """Starting a thread costs more than a job."""
    workers, names = ThreadPool(), set()
    for _ in range(20):
        collecting = Collecting(workers)
        collecting.start(lambda: names.add(threading.get_ident()))
        collecting.wait()
        collecting.executor.close(PATIENCE)

    assert len(names) <= 3


def test_jobs_run_at_the_same_time(collecting: Collecting) -> None:
    """Each waits for the others, so none could end alone."""
    together = threading.Barrier(5, timeout=PATIENCE)
    for _ in range(5):
        collecting.start(together.wait)

    assert sorted(collecting.wait(5)) == [0, 1, 2, 3, 4]


def test_a_job_sees_its_callers_context_and_keeps_its_changes_to_itself(collecting: Collecting) -> None:
    """A variable that a handler sets does not reach the next handler."""
    token = variable.set("caller's")
    try:
        for count in (1, 2):
            collecting.start(lambda: (variable.get(), variable.set("job's"))[0])
            collecting.wait(count)
    finally:
        variable.reset(token)

    assert collecting.told == ["caller's", "caller's"]


def test_an_exception_of_a_job_is_raised_where_the_job_was_started(collecting: Collecting) -> None:
    """Jobs must not raise, so it is a defect and must not be lost in a thread."""
    collecting.start(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError):
        collecting.executor.step(PATIENCE)


def test_a_thread_that_hangs_does_not_keep_the_process_from_ending(collecting: Collecting) -> None:
    """All of them are daemons."""
    collecting.start(lambda: threading.current_thread().daemon)

    assert collecting.wait() == [True]


# Coroutines.


def test_coroutines_run_together_on_one_loop_and_report_their_results(collecting: Collecting) -> None:
    """The loop runs on a thread of its own."""

    async def job() -> tuple[int, int]:
        await asyncio.sleep(0)
        return id(asyncio.get_running_loop()), threading.get_ident()

    for _ in range(3):
        collecting.start_async(job)

    assert len(set(collecting.wait(3))) == 1
    assert collecting.told[0][1] != threading.get_ident()


def test_the_loop_is_the_same_in_the_next_invocation() -> None:
    """Clients that a handler keeps are bound to it."""
    workers, kept, loops = ThreadPool(), Loops(), []

    async def job() -> None:
        loops.append(asyncio.get_running_loop())

    for _ in range(3):
        collecting = Collecting(workers, kept)
        collecting.start_async(job)
        collecting.wait()
        collecting.executor.close(PATIENCE)

    assert len(loops) == 3
    assert len(set(map(id, loops))) == 1


def test_what_a_coroutine_leaves_behind_is_cancelled_and_awaited_before_the_invocation_ends() -> None:
    """Nothing may wake up in a later one."""
    ends = []

    async def leftover() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            ends.append("cleaned up")

    async def job() -> None:
        collecting.left = asyncio.create_task(leftover())  # type: ignore[attr-defined]
        await asyncio.sleep(0)

    collecting = Collecting()
    collecting.start_async(job)
    collecting.wait()
    assert ends == []

    collecting.executor.close(PATIENCE)

    assert ends == ["cleaned up"]


def test_cancelled_coroutines_still_report_their_end(collecting: Collecting) -> None:
    """With whatever they return or raise."""
    waiting = threading.Event()

    async def job() -> str:
        waiting.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "cancelled"
        return "never"

    collecting.start_async(job)
    assert waiting.wait(PATIENCE)
    collecting.executor.cancel_async()

    assert collecting.wait() == ["cancelled"]


def test_a_coroutine_that_is_cancelled_before_its_first_step_reports_its_end_too(collecting: Collecting) -> None:
    """Another one blocks the loop; without a report the invocation would wait for ever."""
    blocking, go_on = threading.Event(), threading.Event()

    async def blocker() -> str:
        blocking.set()
        assert go_on.wait(PATIENCE)  # a handler that blocks its loop, as some do
        return "blocker"

    async def second() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "cancelled"
        return "never"

    collecting.start_async(blocker)
    assert blocking.wait(PATIENCE)
    collecting.start_async(second)
    collecting.executor.cancel_async()
    go_on.set()

    assert sorted(collecting.wait(2)) == ["blocker", "cancelled"]


def test_a_coroutine_that_waits_is_not_collected_as_garbage(collecting: Collecting) -> None:
    """An event loop holds its tasks weakly, and nothing else refers to this one's future."""
    waiting = threading.Event()
    futures: list[weakref.ref[Any]] = []

    async def job() -> str:
        future = asyncio.get_running_loop().create_future()
        futures.append(weakref.ref(future))
        waiting.set()
        try:
            await future
        except asyncio.CancelledError:
            return "cancelled"
        return "never"

    collecting.start_async(job)
    assert waiting.wait(PATIENCE)
    # One iteration of the loop later the job waits at its `await`.
    collecting.start_async(lambda: asyncio.sleep(0, "turned"))
    collecting.wait()
    gc.collect()
    collecting.executor.cancel_async()

    assert collecting.wait(2) == ["turned", "cancelled"]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_task_that_would_end_the_loop_ends_no_other_coroutine(collecting: Collecting, error: BaseException) -> None:
    """A handler's own task calls `sys.exit`: the other coroutines go on."""
    go_on = threading.Event()

    async def exits() -> None:
        raise error

    async def careless() -> str:
        collecting.left = asyncio.create_task(exits())  # type: ignore[attr-defined]
        await asyncio.wait([collecting.left])  # type: ignore[attr-defined]
        collecting.left.exception()  # type: ignore[attr-defined]
        return "careless"

    async def other() -> str:
        while not go_on.is_set():  # noqa: ASYNC110  # set by another thread
            await asyncio.sleep(0)
        return "other"

    collecting.start_async(other)
    collecting.start_async(careless)
    assert collecting.wait() == ["careless"]
    go_on.set()

    assert collecting.wait(2) == ["careless", "other"]


@pytest.mark.scenario("S38", mutant="the threads of a cancelled coroutine outlive its invocation")
def test_the_threads_of_a_cancelled_coroutine_are_waited_for(collecting: Collecting) -> None:
    """`asyncio.to_thread` cannot be cancelled; its thread must not outlive the invocation."""
    running, go_on, ends = threading.Event(), threading.Event(), []

    def block() -> None:
        running.set()
        assert go_on.wait(PATIENCE)
        ends.append("thread")

    async def job() -> str:
        try:
            await asyncio.to_thread(block)
        except asyncio.CancelledError:
            return "cancelled"
        return "never"

    collecting.start_async(job)
    assert running.wait(PATIENCE)
    collecting.executor.cancel_async()
    collecting.executor.step(0.05)
    assert collecting.told == []

    go_on.set()

    assert collecting.wait() == ["cancelled"]
    assert ends == ["thread"]


def test_the_threads_that_a_coroutine_leaves_behind_are_waited_for_at_the_end() -> None:
    """Also for a coroutine that was not cancelled."""
    running, go_on, ends = threading.Event(), threading.Event(), []

    def block() -> None:
        running.set()
        assert go_on.wait(PATIENCE)
        ends.append("thread")

    async def job() -> None:
        asyncio.get_running_loop().run_in_executor(None, block)

    collecting = Collecting()
    collecting.start_async(job)
    collecting.wait()
    assert running.wait(PATIENCE)
    closing = threading.Thread(target=collecting.executor.close, args=[PATIENCE])
    closing.start()
    assert ends == []
    go_on.set()
    closing.join(PATIENCE)

    assert ends == ["thread"]


def test_threads_can_be_used_again_in_the_next_invocation() -> None:
    """An invocation's pool ends with it; the next one has its own."""
    workers, loops = ThreadPool(), Loops()
    for _ in range(2):
        collecting = Collecting(workers, loops)
        collecting.start_async(lambda: asyncio.to_thread(lambda: "worked"))
        assert collecting.wait() == ["worked"]
        collecting.executor.close(PATIENCE)


def test_async_generators_are_closed_before_the_invocation_ends() -> None:
    """Their `finally` may hold a connection."""
    ends, kept = [], []

    async def generator() -> Any:
        try:
            yield 1
        finally:
            ends.append("closed")

    async def job() -> None:
        kept.append(generator())
        await anext(kept[0])

    collecting = Collecting()
    collecting.start_async(job)
    collecting.wait()
    collecting.executor.close(PATIENCE)

    assert ends == ["closed"]


def test_a_thread_ends_with_its_pool_also_in_the_middle_of_a_job() -> None:
    """An environment may make many consumers, as tests do."""
    pool, gate, began = ThreadPool(), threading.Event(), SimpleQueue[threading.Thread]()

    def job() -> None:
        began.put(threading.current_thread())
        gate.wait(PATIENCE)

    pool.run(job)
    thread = began.get(timeout=PATIENCE)
    del pool
    gc.collect()
    gate.set()

    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_an_invocation_without_coroutines_needs_no_loop() -> None:
    """Closing it waits for nothing."""
    collecting = Collecting()
    collecting.start(lambda: 1)
    collecting.wait()

    collecting.executor.cancel_async()
    collecting.executor.close(PATIENCE)


def test_a_forgotten_loop_is_closed() -> None:
    """There is no ResourceWarning in a user's tests."""

    async def job() -> None: ...

    collecting = Collecting()
    collecting.start_async(job)
    collecting.wait()
    collecting.executor.close(PATIENCE)
    del collecting
    gc.collect()


# Whole consumers, on real threads.


@pytest.mark.parametrize("asynchronous", [False, True])
def test_handlers_really_run_at_the_same_time(asynchronous: bool) -> None:
    """Up to the concurrency: each waits for the others."""
    together, here = threading.Barrier(4, timeout=PATIENCE), []

    def plain(body: dict, message: Message) -> None:
        together.wait()
        here.append(message.id)

    async def coroutine(body: dict, message: Message) -> None:
        await asyncio.to_thread(together.wait)
        here.append(message.id)

    handler = sqs_consumer(MemoryStore(), concurrency=4)(coroutine if asynchronous else plain)

    assert failed_ids(handler(batch(*"abcd"), Context())) == []
    assert sorted(here) == list("abcd")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_current_claim_is_each_handlers_own(asynchronous: bool) -> None:
    """However many run at once, on whichever thread."""
    seen: list[tuple[str, str]] = []

    def plain(body: dict, message: Message) -> None:
        seen.append((message.id, current_claim().key))

    async def coroutine(body: dict, message: Message) -> None:
        await asyncio.sleep(0)
        seen.append((message.id, current_claim().key))

    handler = sqs_consumer(MemoryStore(), concurrency=8)(coroutine if asynchronous else plain)
    handler(batch(*map(str, range(100))), Context())

    assert len(seen) == 100
    assert all(id == key for id, key in seen)


def test_a_context_variable_that_a_handler_sets_does_not_reach_the_next() -> None:
    """Not even on the same thread."""
    seen = []

    def handle(body: dict, message: Message) -> None:
        seen.append(variable.get())
        variable.set(message.id)

    sqs_consumer(MemoryStore())(handle)(batch(*"abc"), Context())

    assert seen == ["unset"] * 3
    assert variable.get() == "unset"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_what_would_end_a_thread_or_a_process_is_that_messages_failure(error: type[BaseException]) -> None:
    """In a thread as in a coroutine; the warm process goes on."""

    def plain(body: dict, message: Message) -> None:
        if message.id == "b":
            raise error

    async def coroutine(body: dict, message: Message) -> None:
        plain(body, message)

    for function in (plain, coroutine):
        handler = sqs_consumer(MemoryStore(), concurrency=2)(function)
        assert failed_ids(handler(batch(*"abc"), Context())) == ["b"]
        assert failed_ids(handler(batch(*"de"), Context())) == []


@pytest.mark.scenario("S39", mutant="an interrupt leaves everything as it is")
@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_of_the_process_records_what_has_finished_and_releases_the_rest(
    signal: type[BaseException],
) -> None:
    """The invocation ends; claims that never started are released at once."""
    store, finished = MemoryStore(), threading.Event()
    running, go_on = threading.Event(), threading.Event()

    def handle(body: dict, message: Message) -> None:
        if message.id == "0":
            return
        running.set()
        go_on.wait(PATIENCE)

    class Interrupted(ThreadExecutor):
        """The caller's wait is interrupted, as by a signal, once the second handler runs."""

        def step(self, timeout_seconds: float | None) -> None:
            if running.is_set() and not finished.is_set():
                finished.set()
                raise signal
            super().step(0.01)

    workers, loops = ThreadPool(), Loops()
    handler = sqs_consumer(store, executor=lambda: Interrupted(workers, loops))(handle)

    try:
        with pytest.raises(signal):
            handler(batch(*"0123"), Context())
    finally:
        go_on.set()

    assert store.items["0"]["status"] == "COMPLETED"
    assert store.items["1"]["status"] == "INPROGRESS"
    assert store.items["1"]["owner"] == "r"
    for id in "23":
        assert "owner" not in store.items[id]


def test_a_coroutine_that_overruns_is_cancelled_at_the_margin_and_the_answer_is_in_time() -> None:
    """With a second of margin and half a second more; the deadline itself wakes the receiver."""
    store = MemoryStore()

    async def handle(body: dict) -> None:
        await asyncio.Event().wait()

    handler = sqs_consumer(store, concurrency=2)(handle)

    assert failed_ids(handler(batch(*"ab"), Context(left_ms=1_100))) == ["a", "b"]
    assert {item["status"] for item in store.items.values()} == {"FAILED"}


def test_coroutines_that_wait_behind_a_suspended_one_are_not_started() -> None:
    """All were started together; the machine, with its clock, is suspended in the first, which does not await."""
    clock, ran = ManualClock(), []

    async def handle(body: dict, message: Message) -> None:
        ran.append(message.id)
        clock.stepped_seconds += 3600

    handler = sqs_consumer(store := MemoryStore(), concurrency=5, clock=clock)(handle)

    assert failed_ids(handler(batch(*"abcde"), Context())) == list("bcde")
    assert ran == ["a"]
    assert [store.items[id].get("owner") for id in "abcde"] == ["r", None, None, None, None]


class Noted:
    """A logger that keeps its warnings."""

    log_level = 20

    def __init__(self) -> None:
        self.warnings: list[tuple[str, dict[str, Any]]] = []

    def info(self, *_: object, **__: object) -> None: ...

    error = debug = info

    def warning(self, text: str, extra: dict[str, Any]) -> None:
        self.warnings.append((text, extra))


async def thread_left_behind(go_on: threading.Event, loops: list[Any]) -> None:
    asyncio.get_running_loop().run_in_executor(None, go_on.wait, PATIENCE)


async def task_left_behind(go_on: threading.Event, loops: list[Any]) -> None:
    async def stubborn() -> None:
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0.001)

    loops.append(asyncio.create_task(stubborn()))
    await asyncio.sleep(0)


async def task_that_blocks_its_loop(go_on: threading.Event, loops: list[Any]) -> None:
    async def blocking() -> None:
        go_on.wait(PATIENCE)

    loops.append(asyncio.create_task(blocking()))


async def generator_left_behind(go_on: threading.Event, loops: list[Any]) -> None:
    async def slow_to_close() -> Any:
        try:
            yield 1
        finally:
            while not go_on.is_set():  # noqa: ASYNC110  # set by another thread
                await asyncio.sleep(0.001)

    loops.append(slow_to_close())
    await anext(loops[-1])


@pytest.mark.parametrize(
    ("leaves", "named"),
    [
        (thread_left_behind, {"tasks": [], "generators": [], "threads": 1}),
        (task_left_behind, {"tasks": ["task_left_behind.<locals>.stubborn"], "generators": [], "threads": 0}),
        (
            task_that_blocks_its_loop,
            {"tasks": ["task_that_blocks_its_loop.<locals>.blocking"], "generators": [], "threads": 0},
        ),
        (
            generator_left_behind,
            {"tasks": [], "generators": ["generator_left_behind.<locals>.slow_to_close"], "threads": 0},
        ),
    ],
)
@pytest.mark.parametrize(("left_ms", "within_seconds"), [(700, 0.7), (60_000, 10)])
def test_what_a_finished_coroutine_leaves_behind_does_not_delay_the_answer(
    leaves: Callable[[threading.Event, list[Any]], Any], named: dict[str, Any], left_ms: int, within_seconds: float
) -> None:
    """The log names it, and it keeps its loop for itself: the next invocations use another until it has ended."""
    store, log, go_on, kept, loops = MemoryStore(), Noted(), threading.Event(), [], []

    async def handle(body: dict, message: Message) -> None:
        loops.append(asyncio.get_running_loop())
        if message.id == "a":
            await leaves(go_on, kept)

    handler = sqs_consumer(store, stop_margin_seconds=0.2, logger=log)(handle)  # type: ignore[arg-type]
    try:
        began = time.monotonic()
        assert failed_ids(handler(batch("a"), Context(left_ms=left_ms))) == []
        took = time.monotonic() - began
        assert failed_ids(handler(batch("b"), Context())) == []
        assert failed_ids(handler(batch("c"), Context())) == []
    finally:
        go_on.set()

    assert took < within_seconds
    assert log.warnings == [("what a coroutine left behind still runs, and was not waited for any longer", named)]
    assert loops[0] is not loops[1]
    assert loops[1] is loops[2]
    assert [store.items[id]["status"] for id in "abc"] == ["COMPLETED"] * 3


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
    assert failed_ids(handler(batch("a"), Context(left_ms=300))) == ["a"]
    ends.append("answer")

    assert ends == ["thread", "answer"]


def test_a_cancellation_after_the_last_coroutine_has_returned_does_not_delay_the_answer() -> None:
    """The deadline comes while the last one's end is recorded: no message that is retried left that thread behind."""
    go_on, cancelled, loops = threading.Event(), threading.Event(), []

    async def job() -> None:
        loops.append(asyncio.get_running_loop())
        await thread_left_behind(go_on, [])

    collecting = Collecting()
    collecting.start_async(job)
    collecting.wait()
    collecting.executor.cancel_async()
    loops[0].call_soon_threadsafe(cancelled.set)
    assert cancelled.wait(PATIENCE)
    closing = threading.Thread(target=lambda: collecting.told.append(collecting.executor.close(0)))
    closing.start()
    closing.join(PATIENCE / 2)
    ended = not closing.is_alive()
    go_on.set()
    closing.join(PATIENCE)

    assert ended
    assert collecting.told[1] == LeftBehind(tasks=[], generators=[], threads=1)


def test_a_loop_that_became_idle_late_is_used_again() -> None:
    """Once nothing of its invocation is left on it, because clients are bound to it."""
    workers, loops, go_on, used = ThreadPool(), Loops(), threading.Event(), []

    async def leaves() -> None:
        used.append(asyncio.get_running_loop())
        await thread_left_behind(go_on, [])

    async def uses() -> None:
        used.append(asyncio.get_running_loop())

    late = Collecting(workers, loops)
    late.start_async(leaves)
    late.wait()
    assert late.executor.close(0) == LeftBehind(tasks=[], generators=[], threads=1)
    go_on.set()
    while len(used) < 2 or used[-1] is not used[0]:
        collecting = Collecting(workers, loops)
        collecting.start_async(uses)
        collecting.wait()
        assert collecting.executor.close(PATIENCE) is None
        assert len(used) < 10_000, "the loop was never used again"


def test_once_many_loops_are_left_alone_the_next_invocation_waits_for_what_it_leaves_behind() -> None:
    """Each costs threads and open files, so their number needs a bound."""
    workers, loops, go_on = ThreadPool(), Loops(), threading.Event()

    def leave() -> Collecting:
        collecting = Collecting(workers, loops)
        collecting.start_async(lambda: thread_left_behind(go_on, []))
        collecting.wait()
        return collecting

    try:
        for _ in range(MOST_LEFT_BEHIND):
            assert leave().executor.close(0) is not None
        last = leave()
        closing = threading.Thread(target=lambda: last.told.append(last.executor.close(0)))
        closing.start()
        closing.join(0.5)
    finally:
        go_on.set()
    closing.join(PATIENCE)

    assert last.told[1:] == [None]


def test_a_task_started_during_cleanup_does_not_run_in_the_next_invocation() -> None:
    """A task that is cancelled at the end starts another one, which is cancelled too."""
    workers, loops, ends, kept = ThreadPool(), Loops(), [], []

    async def another() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ends.append("another")

    async def leftover() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            kept.append(asyncio.create_task(another()))
            await asyncio.sleep(0)

    async def job() -> None:
        kept.append(asyncio.create_task(leftover()))
        await asyncio.sleep(0)

    collecting = Collecting(workers, loops)
    collecting.start_async(job)
    collecting.wait()

    assert collecting.executor.close(PATIENCE) is None
    assert ends == ["another"]


def test_tasks_that_never_stop_starting_others_are_left_with_their_loop() -> None:
    """The loop is abandoned and stops."""
    workers, loops, kept, slain = ThreadPool(), Loops(), [], threading.Event()

    async def hydra() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            if not slain.is_set():
                kept.append(asyncio.create_task(hydra()))

    async def job() -> object:
        kept.append(asyncio.create_task(hydra()))
        await asyncio.sleep(0)
        return asyncio.get_running_loop()

    async def other() -> object:
        return asyncio.get_running_loop()

    collecting = Collecting(workers, loops)
    collecting.start_async(job)
    (given_up,) = collecting.wait()
    left = collecting.executor.close(PATIENCE)
    again = Collecting(workers, loops)
    again.start_async(other)

    assert left is not None
    assert len(left.tasks) == 1
    assert again.wait() != [given_up]
    again.executor.close(PATIENCE)
    assert not given_up.is_running()
    slain.set()
    kept[-1].cancel()
    given_up.run_until_complete(asyncio.wait(kept[-1:]))
    given_up.close()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_task_that_would_end_its_loop_while_it_is_cancelled_does_not(error: BaseException) -> None:
    """The other tasks are still cancelled and awaited, and the thread stays alive."""
    workers, loops, ends, kept = ThreadPool(), Loops(), [], []

    async def exits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise error

    async def other() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ends.append("other")

    async def job() -> None:
        kept.extend([asyncio.create_task(exits()), asyncio.create_task(other())])
        await asyncio.sleep(0)

    collecting = Collecting(workers, loops)
    collecting.start_async(job)
    collecting.wait()

    assert collecting.executor.close(PATIENCE) is None
    assert ends == ["other"]
    kept[0].exception()


@pytest.mark.parametrize("overlapping", [2, 5])
def test_invocations_of_one_consumer_that_overlap_have_loops_of_their_own(overlapping: int) -> None:
    """In one process, on several threads; none stops another's loop."""
    store, loops = MemoryStore(), []
    together, answers = threading.Barrier(overlapping, timeout=PATIENCE), []

    async def handle(body: dict, message: Message) -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.to_thread(together.wait)
        # One has ended, with its invocation, while the next one still runs.
        while len(answers) < int(message.id):  # noqa: ASYNC110  # counted by another thread
            await asyncio.sleep(0.001)

    handler = sqs_consumer(store)(handle)

    def invoke(id: str) -> None:
        answers.append(failed_ids(handler(batch(id), Context(left_ms=8_000))))

    threads = [threading.Thread(target=invoke, args=[str(number)], daemon=True) for number in range(overlapping)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)

    assert answers == [[]] * overlapping
    assert len({id(loop) for loop in loops}) == overlapping
    loops.clear()
    answers.extend([[]] * 30)
    together = threading.Barrier(1)
    for number in range(3):
        invoke(f"{number}0")
    assert len({id(loop) for loop in loops}) == 1, "one after the other they have the same"


def test_many_batches_through_one_warm_process_agree_with_its_table() -> None:
    """Two thousand messages, eight at a time."""
    store, ran = MemoryStore(), []

    def handle(body: dict, message: Message) -> int:
        ran.append(message.id)
        return len(ran)

    handler = sqs_consumer(store, concurrency=8)(handle)
    before = threading.active_count()
    for start in range(0, 2000, 500):
        assert failed_ids(handler(batch(*map(str, range(start, start + 500))), Context())) == []

    assert sorted(ran, key=int) == [str(number) for number in range(2000)]
    assert {item["status"] for item in store.items.values()} == {"COMPLETED"}
    assert threading.active_count() - before < 100


def test_the_threads_of_a_consumer_end_with_it() -> None:
    """A process with many consumers, such as a test suite, does not accumulate threads."""
    workers, threads = ThreadPool(), SimpleQueue[threading.Thread]()
    workers.run(lambda: threads.put(threading.current_thread()))
    thread = threads.get(timeout=PATIENCE)

    del workers
    gc.collect()

    thread.join(PATIENCE)
    assert not thread.is_alive()
