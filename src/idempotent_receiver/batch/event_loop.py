"""The event loop of coroutine handlers: one for the process, on a thread of its own, shared by all batches of all
consumers, because the clients that a module keeps are bound to their loop.

What a handler begins on it (tasks, async generators, jobs for `asyncio.to_thread`) belongs to its batch, which has
threads of its own. A batch ends what is its own, and nothing else.
"""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any
from weakref import WeakSet

MOST_ROUNDS = 100
"""Maximum rounds of cancelling the remaining tasks: a cancelled task may start another."""

MOST_LEFT_BEHIND = 16
"""Maximum number of ended batches with work still running. Each costs threads, which a process has few of."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What coroutines left behind: the function names of the tasks that ended when they were cancelled, of the tasks
    and generators still running when the wait ended, and the number of threads still running then.
    """

    cancelled: list[str]
    tasks: list[str]
    generators: list[str]
    threads: int


NOTHING_LEFT = LeftBehind([], [], [], 0)


class Begun:
    """What one run of a handler has begun on the loop. If it `goes_on`, the batch does not end it."""

    def __init__(self, batch: "BatchLoop") -> None:
        self.batch = batch
        self.handler: asyncio.Task[None] | None = None
        self.tasks: set[asyncio.Task[Any]] = set()
        self.generators: WeakSet[AsyncGenerator[Any, Any]] = WeakSet()
        self.goes_on = False


_begun: ContextVar[Begun | None] = ContextVar("_begun", default=None)
"""The run to which everything belongs that begins in this context. Tasks and callbacks copy their context, so what
they begin belongs to the same run.
"""


def begun_by_handler() -> Begun | None:
    """What the calling coroutine handler has begun. None outside a handler, and on a test's own event loop."""
    return _begun.get()


class SharedLoop:
    """A process's event loop, on a daemon thread that runs it for as long as the process lives."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._factory: Any = None
        self.threads = _BatchThreads()
        self.ending: set[BatchLoop] = set()
        """Batches that have ended, but not all their work."""
        self._generators: dict[int, Begun] = {}
        threading.Thread(target=self._run, daemon=True, name="idempotent-receiver-loop").start()

    def count_tasks(self) -> None:
        """Count the tasks that begin from now on for their runs, whatever task factory was set."""
        if (factory := self.loop.get_task_factory()) is not self._factory or factory is None:
            self._factory = partial(_counted_task, factory)
            self.loop.set_task_factory(self._factory)

    def forget_generators(self, batch: "BatchLoop") -> None:
        """Forget a batch that has ended all its work."""
        for id, begun in self._generators.copy().items():
            if begun.batch is batch:
                del self._generators[id]

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while True:
            self.loop.call_soon(self._watch_generators)
            # A task that exits, or a handler that stops the loop, must not end the others.
            with suppress(KeyboardInterrupt, SystemExit):
                self.loop.run_forever()

    def _watch_generators(self) -> None:
        firstiter, finalizer = sys.get_asyncgen_hooks()
        assert firstiter is not None  # a running loop has set both
        assert finalizer is not None

        def begins(generator: AsyncGenerator[Any, Any]) -> None:
            begun = _begun.get()
            if begun is not None:
                begun.generators.add(generator)
                self._generators[id(generator)] = begun
            firstiter(generator)

        def collected(generator: AsyncGenerator[Any, Any]) -> None:
            # The garbage collector runs in any context, and the task that closes the generator begins in this one.
            context = copy_context()
            context.run(_begun.set, self._generators.pop(id(generator), None))
            context.run(finalizer, generator)

        sys.set_asyncgen_hooks(begins, collected)


def _counted_task(factory: Any, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = (
        asyncio.Task(coroutine, loop=loop, **options) if factory is None else factory(loop, coroutine, **options)
    )
    begun = _begun.get()
    if begun is not None:
        # Also keeps it from being garbage-collected while it waits.
        begun.tasks.add(task)
        task.add_done_callback(begun.tasks.discard)
    return task


class _BatchThreads(ThreadPoolExecutor):
    """The loop's default executor: passes each job to the threads of its batch. It has threads for other jobs too."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        begun = _begun.get()
        if begun is None or begun.batch.at_rest:
            return super().submit(fn, *args, **kwargs)
        return begun.batch.submit(begun, fn, *args, **kwargs)


_shared: list[SharedLoop] = []
"""This process's loop, once it has one."""

_of_parents: list[SharedLoop] = []
"""The loops of the processes from which this one was forked. Closing one would close it in its own process too."""

_lock = threading.Lock()


def begin() -> "BatchLoop":
    """The process's loop, for one batch."""
    with _lock:
        if not _shared:
            _shared.append(SharedLoop())
    return BatchLoop(_shared[0])


def _forked() -> None:
    global _lock  # noqa: PLW0603  # another thread of the parent may have held it
    _lock = threading.Lock()
    _of_parents.extend(_shared)
    _shared.clear()


os.register_at_fork(after_in_child=_forked)


class BatchLoop:
    """The process's event loop as one batch uses it, until it is stopped once. `at_rest` means that nothing of the
    batch is left on it, or will be.
    """

    def __init__(self, shared: SharedLoop) -> None:
        self._shared = shared
        self._loop = shared.loop
        self._loop.set_default_executor(shared.threads)  # a handler may have set another, which no batch would end
        self._begun: list[Begun] = []
        self._threads = ThreadPoolExecutor(thread_name_prefix="idempotent-receiver")
        self._jobs: dict[Future[Any], Begun] = {}
        self._cancelled = False
        self._closing: asyncio.Task[None] | None = None
        self._left: list[asyncio.Task[Any]] = []
        self._closing_generators: list[str] = []
        self._ended = threading.Event()
        self.at_rest = False

    def spawn(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine in a copy of the caller's context."""
        begun, context = self._begins()

        def start() -> None:
            self._shared.count_tasks()
            begun.handler = self._loop.create_task(job())

        self._loop.call_soon_threadsafe(start, context=context)

    def submit(self, begun: Begun, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a job on one of the batch's threads."""
        job = self._threads.submit(fn, *args, **kwargs)
        self._jobs[job] = begun
        job.add_done_callback(self._jobs.pop)
        return job

    def cancel(self) -> None:
        """Cancel the batch's tasks."""

        def cancel_tasks() -> None:
            # Tasks that a handler left behind when it returned are no reason to wait for threads.
            self._cancelled = any(begun.handler is not None and not begun.handler.done() for begun in self._begun)
            for task in self._tasks():
                # Deferred, so that a task just spawned takes its first step and can report its end.
                self._loop.call_soon(task.cancel)

        self._loop.call_soon_threadsafe(cancel_tasks)

    async def threads_of_the_cancelled(self) -> None:
        """After a cancellation, wait for the threads that cancelled coroutines left running."""
        if self._cancelled:
            await self._threads_end()

    def stop(self, within_seconds: float | None) -> LeftBehind | None:
        """Cancel the batch's remaining tasks, and wait up to `within_seconds` for them and its threads. Returns what
        was left behind.

        There is no time limit once a coroutine has been cancelled: its message is redelivered, and the coroutine must
        not resume alongside the next attempt. Nor is there a limit once too many batches have left work behind: the
        invocation's timeout then ends the process with all of it.
        """
        self._shared.ending.add(self)
        crowded = len(self._shared.ending) > MOST_LEFT_BEHIND
        _, context = self._begins()

        def end() -> None:
            self._closing = asyncio.Task(self._end_all(crowded=crowded), loop=self._loop)

        self._loop.call_soon_threadsafe(end, context=context)
        self._ended.wait(None if self._cancelled or crowded or within_seconds is None else max(0.0, within_seconds))
        cancelled = sorted(_name_of_task(task) for task in self._left if task.done())
        tasks = sorted(_name_of_task(task) for task in self._tasks() if not _closes(task))
        threads = 0 if self._ended.is_set() else len(self._jobs)
        left = LeftBehind(cancelled, tasks, self._closing_generators, threads)
        return left if left != NOTHING_LEFT else None

    def _begins(self) -> tuple[Begun, Context]:
        begun, context = Begun(self), copy_context()
        self._begun.append(begun)
        context.run(_begun.set, begun)
        return begun, context

    def _tasks(self) -> list[asyncio.Task[Any]]:
        """The batch's tasks that have not ended, but for those that go on."""
        own = [task for begun in self._begun if not begun.goes_on for task in begun.tasks.copy()]
        return [task for task in own if not task.done()]

    async def _end_all(self, *, crowded: bool) -> None:
        """Cancel and await every task, close the generators, and wait for the threads."""
        left = self._left = self._tasks()
        for _ in range(MOST_ROUNDS):
            if not left:
                break
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            left = self._tasks()
        generators = [one for begun in self._begun if not begun.goes_on for one in begun.generators]
        self._closing_generators = sorted(map(_named, generators))
        await asyncio.gather(*(one.aclose() for one in generators), return_exceptions=True)
        self._closing_generators = []
        for job in self._own_jobs():
            job.cancel()
        await self._threads_end()
        going_on = tuple(self._jobs)
        if not crowded:
            self._ended.set()
        if going_on:
            await _end_of(going_on)
        if not self._tasks():
            self._shared.ending.discard(self)
            self._shared.forget_generators(self)
            self.at_rest = not any(begun.goes_on and begun.tasks for begun in self._begun)
            if self.at_rest:
                self._threads.shutdown(wait=False)
        self._ended.set()

    def _own_jobs(self) -> list[Future[Any]]:
        return [job for job, begun in tuple(self._jobs.items()) if not begun.goes_on]

    async def _threads_end(self) -> None:
        while jobs := self._own_jobs():
            await _end_of(jobs)


async def _end_of(jobs: Iterable[Future[Any]]) -> None:
    await asyncio.wait([asyncio.wrap_future(job) for job in jobs])


def _named(begun: object) -> str:
    return str(getattr(begun, "__qualname__", type(begun).__name__))


def _name_of_task(task: asyncio.Task[Any]) -> str:
    return _named(task.get_coro())


def _closes(task: asyncio.Task[Any]) -> bool:
    """Whether this task closes an async generator."""
    return _name_of_task(task) in ("_wrap_awaitable", "async_generator_athrow")
