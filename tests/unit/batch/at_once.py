"""Executors for tests, without threads and on threads, and what runs on them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

from idempotent_receiver.batch.event_loop import begin
from idempotent_receiver.batch.executor import ThreadExecutor, ThreadPool
from tests.simulation.world import sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 10.0
"""Seconds after which a test that waits for another thread gives up; none waits for time to pass."""


class AtOnce:
    """An executor that runs each job at once, and reports it at the next step."""

    def __init__(self) -> None:
        self.finished: list[tuple[Callable[[Any], None], Any]] = []

    def start(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.finished.append((then, job()))

    def decide(self, decide: Callable[[], None], on_interrupt: Any) -> None:
        decide()

    def start_handlers(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.start(job, then)

    def start_async(self, job: Any, then: Any) -> None:
        raise NotImplementedError

    def tell(self, then: Callable[[Any], None], result: Any) -> None:
        self.finished.append((then, result))

    def step(self, timeout_seconds: float | None) -> None:
        finished, self.finished = self.finished, []
        assert finished, "the receiver waits, and nothing is under way"
        for then, result in finished:
            then(result)

    def cancel_async(self) -> None: ...

    def close(self, within_seconds: float | None) -> None: ...


class Collecting:
    """An invocation on threads that collects its jobs' results, with what it shares with others of its consumer."""

    def __init__(self, *shared: Any) -> None:
        self.shared = shared or (ThreadPool(), begin)
        self.executor = ThreadExecutor(*self.shared)
        self.told: list[Any] = []

    def start(self, job: Callable[[], Any]) -> None:
        self.executor.start(job, self.told.append)

    def start_async(self, *jobs: Callable[[], Any]) -> None:
        for job in jobs:
            self.executor.start_async(job, self.told.append)

    def wait(self, count: int = 1) -> list[Any]:
        """Step until that many results have arrived."""
        while len(self.told) < count:
            before = len(self.told)
            self.executor.step(PATIENCE)
            assert len(self.told) > before, f"{count - before} jobs never told their end"
        return self.told

    def run(self, *jobs: Callable[[], Any]) -> list[Any]:
        """The results of these coroutines."""
        self.start_async(*jobs)
        return self.wait(len(self.told) + len(jobs))

    def close(self, within_seconds: float | None = PATIENCE) -> Any:
        return self.executor.close(within_seconds)


class Blocking:
    """A job for a thread, which says that it runs, and then waits until it may go on."""

    def __init__(self) -> None:
        self.running, self.go_on = threading.Event(), threading.Event()
        self.ends: list[str] = []

    def __call__(self) -> None:
        self.running.set()
        assert self.go_on.wait(PATIENCE)
        self.ends.append("thread")

    async def left(self) -> asyncio.AbstractEventLoop:
        asyncio.get_running_loop().run_in_executor(None, self)
        return asyncio.get_running_loop()


def batch(*ids: str) -> dict[str, Any]:
    return {"Records": [sqs_record(id) for id in ids]}
