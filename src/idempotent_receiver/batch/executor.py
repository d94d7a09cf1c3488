"""The only entry point for concurrency: runs jobs elsewhere and returns their results to the waiting caller.

The receiver is a single thread of control that starts jobs and collects results, so it needs no locks. A test can
supply its own executor to control every interleaving.

A plain handler without concurrency gets the calling thread, because signals, the current event loop, connections and
thread-locals may belong to it; the receiver then runs on another thread.
"""

import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import Context, copy_context
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from idempotent_receiver.batch.event_loop import BatchLoop, LeftBehind

T = TypeVar("T")


class Executor(Protocol):
    """Runs jobs concurrently with its caller for one invocation. A job must not raise."""

    def start(self, job: Callable[[], T], on_done: Callable[[T], None]) -> None:
        """Run `job` elsewhere; a later `step` calls `on_done` with its result."""

    def start_async(self, job: Callable[[], Coroutine[Any, Any, T]], on_done: Callable[[T], None]) -> None:
        """Like `start`, for a coroutine function, which runs on an event loop."""

    def decide(self, decide: Callable[[], None], on_interrupt: Callable[[BaseException], None]) -> None:
        """Call `decide`, whose handlers may need the calling thread. It then runs on another one, and a later `step`
        calls `on_interrupt` with whatever a signal raises on the calling thread outside its jobs.
        """

    def start_handlers(self, job: Callable[[], T], on_done: Callable[[T], None]) -> None:
        """Like `start`, for a job that runs handlers: on the thread that called `decide`, if that was called."""

    def tell(self, on_done: Callable[[T], None], result: T) -> None:
        """Called within a job: have a later `step` call `on_done` with `result`, without waiting for the job to end."""

    def step(self, timeout_seconds: float | None) -> None:
        """Wait until a job finishes or reports something, or the timeout expires; then call the callbacks."""

    def cancel_async(self) -> None:
        """Cancel the running coroutines. Each still reports a result, however it handles the cancellation."""

    def close(self, within_seconds: float | None) -> "LeftBehind | None":
        """Stop all jobs that can be stopped within `within_seconds` (None: no limit), and ignore the others' results.
        Returns the work that coroutines left running.
        """


NewExecutor = Callable[[], Executor]

Jobs = SimpleQueue[Callable[[], None] | None]
"""A thread's jobs; None ends the thread."""


class ThreadPool:
    """Daemon threads that are kept between invocations, because starting a thread costs more than a job.

    Daemon threads let the process exit while a call hangs. They end with this object.
    """

    def __init__(self) -> None:
        self._idle: list[Jobs] = []
        self._pid = os.getpid()
        weakref.finalize(self, _end, self._idle)

    def run(self, job: Callable[[], None]) -> None:
        """Run the job on an idle thread, or on a new one."""
        if self._pid != (pid := os.getpid()):
            self._pid = pid
            self._idle.clear()  # a forked process does not have its parent's threads
        try:
            jobs = self._idle.pop()
        except IndexError:
            jobs = SimpleQueue()
            arguments = (jobs, weakref.ref(self), self._idle)
            threading.Thread(target=_work, args=arguments, daemon=True, name="idempotent-receiver").start()
        jobs.put(job)


def _work(jobs: Jobs, pool: weakref.ref[ThreadPool], idle: list[Jobs]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job
        idle.append(jobs)
        if pool() is None:
            _end(idle)


def _end(idle: list[Jobs]) -> None:
    while idle:
        idle.pop().put(None)


class ThreadExecutor:
    """An `Executor` on threads, and on the process's event loop for coroutines, which `begin` gives.

    Threads are kept between invocations. The caller limits the number of concurrent jobs.
    """

    def __init__(self, pool: ThreadPool, begin: "Callable[[], BatchLoop] | None") -> None:
        self._pool = pool
        self._begin = begin
        self._loop: BatchLoop | None = None
        self._finished: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._calls: Jobs | None = None

    def start(self, job: Callable[[], T], on_done: Callable[[T], None]) -> None:
        """Run `job` on a worker thread, in a copy of the caller's context."""
        context = copy_context()
        self._pool.run(lambda: self._finished.put(_run(context, job, on_done)))

    def start_handlers(self, job: Callable[[], T], on_done: Callable[[T], None]) -> None:
        """Run `job` on the thread that called `decide`."""
        if self._calls is None:
            self.start(job, on_done)
        else:
            self._calls.put(lambda: self.tell(on_done, job()))

    def decide(self, decide: Callable[[], None], on_interrupt: Callable[[BaseException], None]) -> None:
        """Call `decide` on a worker thread, and run its handlers here until it has ended."""
        self._calls = calls = Jobs()
        waiting = [partial(_run, copy_context(), decide, lambda result: None)]
        ends: list[Callable[[], None]] = []
        interrupts: list[BaseException] = []
        heard: list[BaseException] = []

        def beside() -> None:
            with suppress(IndexError):  # started again after an interrupt
                ends.append(waiting.pop()())
                calls.put(None)

        def interrupted(error: BaseException) -> None:
            heard.append(error)
            on_interrupt(error)

        while not ends:
            try:
                if waiting:
                    self._pool.run(beside)
                while (call := calls.get()) is not None:
                    if not interrupts:
                        call()
            except BaseException as error:  # noqa: BLE001  # a signal's, at any moment: `beside` must end first
                interrupts.append(error)
                self._finished.put(partial(interrupted, error))
        ends[0]()
        if len(heard) < len(interrupts):
            raise interrupts[-1]

    def start_async(self, job: Callable[[], Coroutine[Any, Any, T]], on_done: Callable[[T], None]) -> None:
        """Run the coroutine on the event loop."""
        if self._loop is None:
            assert self._begin is not None  # coroutines need a loop
            self._loop = self._begin()
        loop = self._loop

        async def follow() -> None:
            try:
                result = await job()
                await loop.threads_of_the_cancelled()
                self.tell(on_done, result)
            except BaseException as error:  # noqa: BLE001  # reported to the caller, who raises it
                self._finished.put(partial(_crash, error))

        loop.spawn(follow)

    def tell(self, on_done: Callable[[T], None], result: T) -> None:
        """Queue the result for `step`."""
        self._finished.put(partial(on_done, result))

    def step(self, timeout_seconds: float | None) -> None:
        """Wait for the first job, then call the callbacks of all finished jobs."""
        with suppress(Empty):
            ended = self._finished.get(timeout=None if timeout_seconds is None else max(0.0, timeout_seconds))
            while True:
                ended()
                ended = self._finished.get_nowait()

    def cancel_async(self) -> None:
        """Cancel this invocation's tasks on the event loop."""
        if self._loop is not None:
            self._loop.cancel()

    def close(self, within_seconds: float | None) -> "LeftBehind | None":
        """Cancel and await tasks that a handler left on the loop. Hung threads are abandoned."""
        loop, self._loop = self._loop, None
        return None if loop is None else loop.stop(within_seconds)


def threads(*, asynchronous: bool) -> NewExecutor:
    """The factory for one consumer's executors, which share its threads."""
    pool = ThreadPool()
    if not asynchronous:
        return partial(ThreadExecutor, pool, None)
    # Imported here because most consumers start without asyncio.
    from idempotent_receiver.batch.event_loop import begin  # noqa: PLC0415

    return partial(ThreadExecutor, pool, begin)


def _run(context: Context, job: Callable[[], T], on_done: Callable[[T], None]) -> Callable[[], None]:
    try:
        return partial(on_done, context.run(job))
    except BaseException as error:  # noqa: BLE001  # reported to the caller, who raises it
        return partial(_crash, error)


def _crash(error: BaseException) -> None:
    """Report that a job raised, which no job may do."""
    raise error
