"""An event loop in virtual time: asyncio's own, except that the world's other jobs run while it waits.

It has no sockets: a handler's clients are fakes here. Jobs from `asyncio.to_thread` or `run_in_executor` run
immediately, on the loop's own thread.
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
    """Runs in its own greenlet. `now`, `sleep` and `wake` are the world's."""

    def __init__(
        self, now: Callable[[], float], sleep: Callable[[float], None], wake: Callable[[greenlet], None]
    ) -> None:
        super().__init__()
        self.time = now  # type: ignore[method-assign]  # asyncio's documentation allows a different clock
        self._sleep, self._wake = sleep, wake
        self._sleeper: greenlet | None = None
        self._selector = self
        self._tasks: set[asyncio.Task[None]] = set()
        self.set_debug(False)  # debug mode measures slow callbacks in real time
        self.set_default_executor(_Inline(max_workers=1))
        self.set_exception_handler(lambda loop, context: None)  # no errors about tasks left over from a crash

    def spawn(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a coroutine in a copy of the caller's context."""

        def start() -> None:
            task = self.create_task(job())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        self.call_soon_threadsafe(start)

    def cancel(self) -> None:
        """Cancel every task."""

        def cancel_tasks() -> None:
            for task in _in_order(asyncio.all_tasks(self)):
                # Deferred, so that a task just spawned takes its first step and can report its end.
                self.call_soon(task.cancel)

        self.call_soon_threadsafe(cancel_tasks)

    def cancel_and_stop(self, on_done: Callable[[], None]) -> None:
        """Cancel and await every task, then stop and call `on_done`."""

        async def stop() -> None:
            left = _in_order(asyncio.all_tasks() - {asyncio.current_task()})
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            self.stop()
            on_done()

        self.spawn(stop)

    def end(self) -> None:
        """Ensure that no task runs again after the loop's greenlet has died or been abandoned."""
        if not self.is_running():
            self.close()
        for task in asyncio.all_tasks(self):
            with suppress(BaseException):  # whatever a handler raises while it unwinds
                task.get_coro().close()

    def select(self, timeout: float | None) -> list[Any]:
        """Wait up to `timeout` seconds for work. The loop is its own selector."""
        if timeout is None or timeout > 0:
            self._sleeper = getcurrent()
            self._sleep(1e9 if timeout is None else timeout)
            self._sleeper = None
        return []

    def run_in_executor(self, executor: object, *job: Any) -> Any:  # type: ignore[override]  # its types do not matter
        """Run immediately, ignoring the executor: a thread would take no virtual time."""
        return super().run_in_executor(None, *job)

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Refuse to connect; `outside` reports the address."""
        with sock:
            sock.setblocking(True)
            sock.connect(address)
        self._nothing_outside()

    def _nothing_outside(self, *arguments: Any, **named: Any) -> NoReturn:
        raise RuntimeError("asyncio opens no sockets and starts no programs in explore: replace the client with a fake")

    _make_datagram_transport = _make_subprocess_transport = _nothing_outside

    def _process_events(self, events: list[Any]) -> None:
        """Do nothing: there are no events."""

    def __del__(self) -> None:
        """Do nothing: the loops of an abandoned world hold no files."""

    def _write_to_self(self) -> None:
        if self._sleeper is not None:
            self._wake(self._sleeper)


def _in_order(tasks: Iterable[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    """Tasks in order of creation, which asyncio's task names show; a set's order varies between processes."""
    return sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))


class _Inline(ThreadPoolExecutor):
    """Runs submitted jobs immediately."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001  # raised where the future is awaited
            future.set_exception(error)
        return future


def in_a_real_loop() -> bool:
    """Whether a real event loop is running, such as one that a handler started with `asyncio.run`."""
    loop = asyncio._get_running_loop()  # noqa: SLF001  # asyncio provides it for event loop implementations
    return loop is not None and not isinstance(loop, VirtualLoop)


def outside_any_loop(switch: Callable[[], Any]) -> Any:
    """Switch to another greenlet after clearing the current loop and task, which asyncio keeps per thread."""
    loop = asyncio._get_running_loop()  # noqa: SLF001  # asyncio provides it for event loop implementations
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
