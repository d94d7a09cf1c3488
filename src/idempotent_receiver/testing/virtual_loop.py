"""An event loop in virtual time: asyncio's own, but that it waits by letting the world's other jobs go on.

It has no sockets: a handler's clients are fakes here. What `asyncio.to_thread` or `run_in_executor` is given runs at
once, on the loop's own thread.
"""

import asyncio
import socket
import sys
from asyncio import tasks
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

from greenlet import getcurrent, greenlet


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs in a greenlet of its own. `now`, `sleep` and `wake` are the world's."""

    def __init__(
        self, now: Callable[[], float], sleep: Callable[[float], None], wake: Callable[[greenlet], None]
    ) -> None:
        super().__init__()
        self.time = now  # type: ignore[method-assign]  # a loop's clock, as its documentation says
        self._sleep, self._wake = sleep, wake
        self._sleeper: greenlet | None = None
        self._selector = self
        self._tasks: set[asyncio.Task[None]] = set()
        self.set_debug(False)  # it would complain of slow callbacks, by a clock that is not theirs
        self.set_default_executor(_Inline(max_workers=1))
        self.set_exception_handler(lambda loop, context: None)  # what a crash has left needs no complaint

    def spawn(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine, in a copy of the caller's context."""

        def start() -> None:
            task = self.create_task(job())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.call_soon_threadsafe(start)

    def cancel(self) -> None:
        """Cancel every task."""

        def cancel_tasks() -> None:
            for task in _in_order(asyncio.all_tasks(self)):
                # Later, so that one which was only just spawned takes its first step and can tell its end.
                self.call_soon(task.cancel)

        self.call_soon_threadsafe(cancel_tasks)

    def cancel_and_stop(self, on_done: Callable[[], None]) -> None:
        """Cancel and await every task, then stop and say so."""

        async def stop() -> None:
            left = _in_order(asyncio.all_tasks() - {asyncio.current_task()})
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self.stop()
            on_done()

        self.spawn(stop)

    def end(self) -> None:
        """After its greenlet has died, or was left: let nothing of it run again."""
        if not self.is_running():
            self.close()
        for task in asyncio.all_tasks(self):
            with suppress(BaseException):  # whatever a handler does on its way out
                task.get_coro().close()

    def select(self, timeout: float | None) -> list[Any]:
        """Wait for that long, or until something is to be done: the loop is its own selector."""
        if timeout is None or timeout > 0:
            self._sleeper = getcurrent()
            self._sleep(1e9 if timeout is None else timeout)
            self._sleeper = None
        return []

    def run_in_executor(self, executor: object, *job: Any) -> Any:  # type: ignore[override]  # its types are no matter
        """At once, whatever executor: nobody would wait for a thread, in which no virtual time passes."""
        return super().run_in_executor(None, *job)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Nowhere; `outside` tells where it would lead."""
        with sock:
            sock.setblocking(True)
            sock.connect(address)
        self._nothing_outside()

    def _nothing_outside(self, *arguments: Any, **named: Any) -> NoReturn:
        raise RuntimeError("asyncio has no sockets and starts no programs in explore: put a fake in the client's place")

    _make_datagram_transport = _make_subprocess_transport = _nothing_outside

    def _process_events(self, events: list[Any]) -> None:
        """There are none."""

    def __del__(self) -> None:
        """A world that was left as it stood has nothing to close: its loops hold no files."""

    def _write_to_self(self) -> None:
        if self._sleeper is not None:
            self._wake(self._sleeper)


def _in_order(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Tasks as they were made: asyncio numbers them, and a set of them has another order in each process."""
    return sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))


class _Inline(ThreadPoolExecutor):
    """Runs at once what is submitted."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # for whoever awaits the future
            future.set_exception(error)
        return future


def in_a_real_loop() -> bool:
    """Whether a loop runs here that is none of a world's: `asyncio.run` in a handler, for example."""
    loop = asyncio._get_running_loop()  # noqa: SLF001  # asyncio's, for implementations of event loops
    return loop is not None and not isinstance(loop, VirtualLoop)


def outside_any_loop(switch: Callable[[], Any]) -> Any:
    """Let another greenlet go on, with no loop and no task: asyncio keeps them for the whole thread."""
    loop = asyncio._get_running_loop()  # noqa: SLF001  # asyncio's, for implementations of event loops
    if loop is None:
        return switch()
    task = asyncio.current_task(loop)
    if task is not None:
        tasks._leave_task(loop, task)  # noqa: SLF001
    asyncio._set_running_loop(None)  # noqa: SLF001
    hooks = sys.get_asyncgen_hooks()
    sys.set_asyncgen_hooks(None, None)
    try:
        return switch()
    finally:
        sys.set_asyncgen_hooks(*hooks)
        asyncio._set_running_loop(loop)  # noqa: SLF001
        if task is not None:
            tasks._enter_task(loop, task)  # noqa: SLF001
