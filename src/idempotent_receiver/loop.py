"""The event loop of coroutine handlers: it turns on a worker's thread while an invocation runs, and rests in between.

It is kept from one invocation to the next, because the clients that a handler keeps are bound to it. Nothing that was
started on it outlives its invocation: neither tasks nor the threads of `asyncio.to_thread`.
"""

import asyncio
import threading
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from typing import Any


class Loop:
    """An event loop that is begun, turned, and stopped once for each invocation."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads = _Threads()
        self._cancelled = self._stopping = False
        self._stopped = threading.Event()

    def begin(self) -> None:
        """Make ready for `turn`, on the caller's thread."""
        self._stopped.clear()
        self._cancelled = self._stopping = False
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            weakref.finalize(self, self._loop.close)
        self._threads = _Threads()
        self._loop.set_default_executor(self._threads)

    def turn(self) -> None:
        """Run until `stop`; for a worker thread."""
        loop = self._begun()
        asyncio.set_event_loop(loop)
        try:
            while not self._stopping:
                # A task that a handler has left behind may raise what ends a loop; the others still need it.
                with suppress(KeyboardInterrupt, SystemExit):
                    loop.run_forever()
            loop.run_until_complete(_cancel_all())
            loop.run_until_complete(loop.shutdown_asyncgens())
            self._threads.shutdown(wait=True, cancel_futures=True)
        finally:
            asyncio.set_event_loop(None)
            self._stopped.set()

    def spawn(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine, in a copy of the caller's context."""
        context, loop = copy_context(), self._begun()

        def start() -> None:
            task = loop.create_task(job(), context=context)
            # The loop itself holds tasks weakly: one that waits could be collected as garbage.
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        loop.call_soon_threadsafe(start)

    def cancel(self) -> None:
        """Cancel every task."""
        loop = self._begun()

        def cancel_tasks() -> None:
            self._cancelled = True
            for task in asyncio.all_tasks(loop):
                # Later, so that one which was only just spawned takes its first step and can tell its end.
                loop.call_soon(task.cancel)

        loop.call_soon_threadsafe(cancel_tasks)

    async def threads_of_the_cancelled(self) -> None:
        """After a cancellation, wait for the threads that cancelled coroutines have left at work."""
        while self._cancelled and self._threads.running:
            await asyncio.wait([asyncio.wrap_future(future) for future in tuple(self._threads.running)])

    def stop(self) -> None:
        """End `turn`, and wait until what was left has been cancelled."""
        loop = self._begun()

        def end() -> None:
            self._stopping = True
            loop.stop()

        loop.call_soon_threadsafe(end)
        self._stopped.wait()

    def _begun(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "begin comes first"
        return self._loop


class _Threads(ThreadPoolExecutor):
    """The threads of one invocation's `asyncio.to_thread`; knows which jobs still run."""

    def __init__(self) -> None:
        super().__init__(thread_name_prefix="idempotent-receiver")
        self.running: set[Future[Any]] = set()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        self.running.add(future)
        future.add_done_callback(self.running.discard)
        return future


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
