"""A worker in explored runs: the run decides its faults and receives its answers."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, wraps
from inspect import CORO_CLOSED, getcoroutinestate
from typing import Any

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.clock import Clock
from idempotent_receiver.handler.annotations import hints_of
from idempotent_receiver.handler.attempt import current_attempt
from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.testing import schedule as options
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.memory import Table, TableItem
from idempotent_receiver.testing.stuck import Stuck, goes_on
from idempotent_receiver.testing.worker import Worker
from idempotent_receiver.testing.world import World
from idempotent_receiver.transaction.outbox import OutboxCall


class ExploredWorker(Worker):
    """A worker and its current run. `consumer` creates the worker's consumer from the worker, a clock and an
    executor.
    """

    run: ExploredRun

    def __init__(
        self, name: str, consumer: Callable[["ExploredWorker", Clock, Callable[[], Executor]], Consumer]
    ) -> None:
        def made(clock: Clock, executor: Callable[[], Executor]) -> Consumer:
            return consumer(self, clock, executor)

        super().__init__(World(), made, name)

    def join(self, run: ExploredRun) -> None:
        """Become a new process in this run."""
        self.run = run
        self.begin(run.world)
        run.workers[self.name] = self
        run.network.under_way.add(self.name)

    def answered(self, records: Sequence[TableItem], answer: list[str] | Exception) -> None:
        """Report the answer to the run."""
        self.run.answered(self, records, answer)

    def timed_out(self) -> None:
        """Report the timeout to the run."""
        self.run.timed_out(self)
        self.kill()


def watched_handler(function: Callable[..., Any], worker: ExploredWorker) -> Callable[..., Any]:
    """The same handler, reporting to the worker's run when it starts and ends."""

    def plain(*args: Any) -> Any:
        _started(worker)
        try:
            result = function(*args)
        except BaseException as error:
            _raised(worker, error)
            raise
        _returned(worker)
        return result

    async def coroutine(*args: Any) -> Any:
        _started(worker)
        try:
            result = await function(*args)
        except BaseException as error:
            _raised(worker, error)
            raise
        _returned(worker)
        return result

    same = wraps(function)(coroutine if is_coroutine(function) else plain)
    same.__annotations__ = hints_of(function, repr(function))
    return same


def watched_call(worker: ExploredWorker, call: OutboxCall, key: str, make: Callable[[], object]) -> object:
    """Make a record's call, as the run's schedule decides. It is kept by its key in a table that is compared like any
    other.
    """
    goes_on()
    run, what = worker.run, f"calls {call.name}, as its transaction said"
    run.require_live()
    run.touched = True
    chosen = run.network.begin(worker, "tx.call", what)
    result = make()
    if inspect.isawaitable(result):
        return _awaited(result, partial(_called, worker, call, key, chosen))
    _called(worker, call, key, chosen)
    return result


async def _awaited(result: Awaitable[object], then: Callable[[], None]) -> None:
    await result
    then()


def _called(worker: ExploredWorker, call: OutboxCall, key: str, chosen: str | None) -> None:
    run = worker.run
    made = run.memory.tables.setdefault("calls made", Table("key"))
    made.items[key,] = {"key": key, "function": call.name, **call.arguments}
    run.network.end(worker, f"calls {call.name}, as its transaction said", chosen)


def is_coroutine(function: Callable[..., Any]) -> bool:
    """Whether a handler is an `async def`."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _started(worker: ExploredWorker) -> None:
    goes_on()
    run = worker.run
    run.require_live()
    run.handled += 1
    key, attempt = _running()
    running = run.network.running
    others = [name for (name, same), count in running.items() if count and same == key and name != worker.name]
    running[worker.name, key] += 1
    run.first_calls[worker.name, key] = len(run.calls)
    again = f", attempt {attempt}" if attempt > 1 else ""
    beside = f", while {' and '.join(others)} also runs it, because nothing claims it" if others else ""
    run.story.append(f"{worker.name} runs the handler for {key}{again}{beside}")


def _raised(worker: ExploredWorker, error: BaseException) -> None:
    run = worker.run
    run.network.running[worker.name, _running()[0]] -= 1
    if isinstance(error, KeyboardInterrupt):
        run.interrupt = error
    if not run.world.ended:
        what = "makes no progress" if isinstance(error, Stuck) else f"raises {error!r:.100}"
        run.story.append(f"{worker.name}'s handler {what}")


def _returned(worker: ExploredWorker) -> None:
    """Note that the handler returns, or raise if the schedule says so."""
    run = worker.run
    key, _ = _running()
    run.network.running[worker.name, key] -= 1
    for call, name, promise in run.promises:
        if (name, call.message) == (worker.name, key) and getcoroutinestate(promise) != CORO_CLOSED:
            run.unawaited.append(call)
    how = " again"
    if key not in run.failing:
        offered = options.RAISES if run.redriven else options.HANDLER_ENDS
        chosen = run.decisions.choose("handler", f"{worker.name} returns", offered)
        if chosen is None:
            return
        how = " each time" if chosen == "fails" else ""
        run.failing |= {key} if chosen == "fails" else set()
    run.story.append(f"{worker.name}'s handler does its work, then raises{how}")
    raise RuntimeError("explore: the handler fails after its work")


def _running() -> tuple[str, int]:
    """The calling handler's key and attempt number."""
    attempt = current_attempt.get()
    assert attempt is not None, "a handler runs only for a message"
    return attempt.key, attempt.attempt
