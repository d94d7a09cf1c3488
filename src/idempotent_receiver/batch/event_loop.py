"""Event loops for coroutine handlers: one per invocation, run on a worker thread.

An idle loop is kept for the next invocation, because a handler's clients are bound to it. No task or
`asyncio.to_thread` thread started on it may outlive the invocation. A loop whose work cannot be stopped in time is
abandoned: no other invocation gets it until it is idle.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any

MOST_ROUNDS = 100
"""Maximum rounds of cancelling the remaining tasks: a cancelled task may start another."""

MOST_LEFT_BEHIND = 16
"""Maximum number of abandoned loops. Each costs threads and file descriptors, which a process has few of."""


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """Work still running when the wait ended: the function names of tasks and generators, and the number of threads."""

    tasks: list[str]
    generators: list[str]
    threads: int


class Loops:
    """A consumer's event loops, closed with the consumer. The oldest idle loop is used first, so that successive
    invocations share a loop even after one of them had to use a different loop.
    """

    def __init__(self) -> None:
        self._made = 0
        self._resting: dict[int, asyncio.AbstractEventLoop] = {}
        self._lock = threading.Lock()
        weakref.finalize(self, _close, self._resting)

    def begin(self) -> "Loop":
        """A loop for one invocation: an idle one, or a new one."""
        with self._lock:
            if self._resting:
                age = min(self._resting)
                loop = self._resting.pop(age)
            else:
                age, loop = self._made, asyncio.new_event_loop()
                self._made += 1
            crowded = self._made - len(self._resting) > MOST_LEFT_BEHIND
        return Loop(loop, partial(_come_to_rest, weakref.ref(self), age, loop), crowded=crowded)

    def take_back(self, age: int, loop: asyncio.AbstractEventLoop) -> None:
        """Keep a loop that has become idle."""
        with self._lock:
            self._resting[age] = loop


def _come_to_rest(owner: weakref.ref[Loops], age: int, loop: asyncio.AbstractEventLoop) -> None:
    loops = owner()
    if loops is None:
        loop.close()
    else:
        loops.take_back(age, loop)


def _close(resting: dict[int, asyncio.AbstractEventLoop]) -> None:
    while resting:
        resting.popitem()[1].close()


class Loop:
    """An event loop during one invocation: it runs on a worker thread and is stopped once.

    `come_to_rest` is called when the invocation has no work left on it. `crowded` means that too many loops are
    abandoned.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, come_to_rest: Callable[[], None], *, crowded: bool) -> None:
        self._loop = loop
        self._come_to_rest = come_to_rest
        self._crowded = crowded
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = _Threads()
        self._loop.set_default_executor(self._threads)
        self._cancelled = self._stopping = False
        self._closing: asyncio.Task[None] | None = None
        self._generators: list[str] = []
        self._ended = threading.Event()
        self._at_rest = False

    def turn(self) -> None:
        """Run until `stop` is called and no work is left. Runs on a worker thread."""
        loop = self._loop
        asyncio.set_event_loop(loop)
        try:
            while not self._stopping:
                # A leftover task may raise an exception that stops the loop, but the other tasks still need the loop.
                with suppress(KeyboardInterrupt, SystemExit):
                    loop.run_forever()
            self._closing = loop.create_task(self._end_all())
            while not self._closing.done():
                with suppress(KeyboardInterrupt, SystemExit):
                    loop.run_until_complete(self._closing)
            self._threads.shutdown(wait=True, cancel_futures=True)
            self._at_rest = not asyncio.all_tasks(loop)
        finally:
            asyncio.set_event_loop(None)
            if self._at_rest:
                # Before `stop` returns, so that the next invocation gets this loop.
                self._come_to_rest()
            self._ended.set()

    def spawn(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine in a copy of the caller's context."""
        context, loop = copy_context(), self._loop

        def start() -> None:
            task = loop.create_task(job(), context=context)
            # The loop holds tasks weakly, so a waiting task could be garbage-collected.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        loop.call_soon_threadsafe(start)

    def cancel(self) -> None:
        """Cancel every task."""
        loop = self._loop

        def cancel_tasks() -> None:
            # Tasks that a handler left behind when it returned are no reason to wait for threads.
            self._cancelled = any(not task.done() for task in self._tasks)
            for task in asyncio.all_tasks(loop):
                # Deferred, so that a task just spawned takes its first step and can report its end.
                loop.call_soon(task.cancel)

        loop.call_soon_threadsafe(cancel_tasks)

    async def threads_of_the_cancelled(self) -> None:
        """After a cancellation, wait for the threads that cancelled coroutines left running."""
        while self._cancelled and self._threads.running:
            await asyncio.wait([asyncio.wrap_future(future) for future in tuple(self._threads.running)])

    def stop(self, within_seconds: float | None) -> LeftBehind | None:
        """End `turn`: cancel the remaining tasks, and wait up to `within_seconds`. Returns the work still running.

        There is no time limit once a coroutine has been cancelled: its message is redelivered, and the coroutine must
        not resume alongside the next attempt. Nor is there a limit once too many loops have been abandoned: the
        invocation's timeout then ends the process with all its loops.
        """

        def end() -> None:
            self._stopping = True
            self._loop.stop()

        self._loop.call_soon_threadsafe(end)
        bound = None if self._cancelled or self._crowded else within_seconds
        self._ended.wait(None if bound is None else max(0.0, bound))
        return None if self._at_rest else self._left()

    def _left(self) -> LeftBehind | None:
        tasks = [task for task in asyncio.all_tasks(self._loop) if task is not self._closing and not _closes(task)]
        left = LeftBehind(sorted(map(_named, tasks)), self._generators, len(self._threads.running))
        return left if left.tasks or left.generators or left.threads else None

    async def _end_all(self) -> None:
        """Cancel and await every task, and close the generators."""
        for _ in range(MOST_ROUNDS):
            left = asyncio.all_tasks() - {asyncio.current_task()}
            if not left:
                break
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        # Only the loop tracks its generators.
        self._generators = sorted(one.__qualname__ for one in getattr(self._loop, "_asyncgens", ()))
        await self._loop.shutdown_asyncgens()
        self._generators = []


def _named(task: asyncio.Task[Any]) -> str:
    coroutine = task.get_coro()
    return str(getattr(coroutine, "__qualname__", type(coroutine).__name__))


def _closes(task: asyncio.Task[Any]) -> bool:
    """Whether this task closes an async generator."""
    return _named(task) in ("_wrap_awaitable", "async_generator_athrow")


class _Threads(ThreadPoolExecutor):
    """The threads of one invocation's `asyncio.to_thread`; tracks the jobs still running."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="idempotent-receiver")
        self.running: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        self.running.add(future)
        future.add_done_callback(self.running.discard)
        return future
