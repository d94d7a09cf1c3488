"""Running handlers: as many at once as asked for, each started only while there is time for it.

A plain handler runs on a lane, a thread that takes one item after the other, so that short handlers cost no hand-over
each. A coroutine is a task on the event loop.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import cast

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.batch.items import Item, Stage
from idempotent_receiver.batch.pace import Forecast, Pace
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler.attempt import AsyncHandle, Attempt, Handled, Returned, run, run_async
from idempotent_receiver.protocol.transitions import Claimed

Then = Callable[[Item, Handled], None]

MOST_TRANSACTIONS = 16
"""How many may be under way before another run starts: each takes a thread and a connection."""


class Handling:
    """The items whose turn has come. `then` is told, on the caller's thread, how each of them was handled.

    `ready` is the one thing that lanes share with their caller: whoever takes an item out of it has it.
    """

    def __init__(
        self,
        executor: Executor,
        deadline: Deadline,
        then: Then,
        *,
        concurrency: int,
        asynchronous: bool,
        stop_margin_seconds: float,
        error_texts: bool,
        pace: Pace,
    ) -> None:
        self._executor = executor
        self._deadline = deadline
        self._then = then
        self._concurrency = concurrency
        self._asynchronous = asynchronous
        self._error_texts = error_texts
        self.ready: deque[Item] = deque()
        self.running = 0
        """Lanes, or coroutines, that have not ended."""
        self._closed = False
        self._uncommitted: dict[int, float] = {}
        """When those runs started whose transactions are under way, by their items' places."""
        self.forecast = Forecast(pace, deadline, concurrency=concurrency, stop_margin_seconds=stop_margin_seconds)

    def start(self) -> None:
        """Start what may start now."""
        if not self._may_start():
            return
        if not self.under_way:
            self.forecast.begun()
        for _ in range(min(len(self.ready), self._concurrency - self.running)):
            if self._asynchronous:
                self._start_coroutine(self.ready.popleft())
            else:
                # One that finds everything taken ends at once.
                self.running += 1
                self._executor.start(self._lane, self._lane_ended)

    @property
    def under_way(self) -> bool:
        """Whether anything has started that has not ended, transactions included."""
        return self.running > 0 or len(self._uncommitted) > 0

    def stalls_in_seconds(self) -> float | None:
        """How long until what is under way has taken suspiciously long, 0 where it has; None where nothing is."""
        return self.forecast.stalls_in_seconds() if self.under_way else None

    def committed(self, item: Item) -> None:
        """The transaction of an item's run has ended, one way or another."""
        self.forecast.done(self._uncommitted.pop(item.index))

    def take_back(self, most: int | None = None) -> list[Item]:
        """The last items that have not started, at most so many; all of them, and none starts any more, by default."""
        self._closed = self._closed or most is None
        taken: list[Item] = []
        # Lanes take items too, so whether one is there is known only once it has been taken.
        with suppress(IndexError):
            while most is None or len(taken) < most:
                taken.append(self.ready.pop())
        return taken

    def _may_start(self) -> bool:
        return not self._closed and len(self._uncommitted) < MOST_TRANSACTIONS and not self.forecast.out_of_time()

    def _lane(self) -> None:
        """Take and run items until there is none, or no time. Runs elsewhere; results go home one by one."""
        while self._may_start():
            try:
                item = self.ready.popleft()
            except IndexError:
                return
            started_seconds = self._deadline.elapsed_seconds
            attempt = self._attempt(item)
            handled = copy_context().run(run, item.work.handle, attempt, with_text=self._error_texts)
            self._note_run(item, handled, started_seconds)
            self._executor.tell(partial(self._then, item), handled)

    def _lane_ended(self, result: None) -> None:
        self.running -= 1

    def _start_coroutine(self, item: Item) -> None:
        self.running += 1
        attempt, handle = self._attempt(item), cast(AsyncHandle, item.work.handle)
        started_seconds = self._deadline.elapsed_seconds

        async def started() -> Handled | None:
            # It may have waited behind coroutines that do not await, or in a machine that was suspended.
            if self._closed or self.forecast.out_of_time():
                return None
            return await run_async(handle, attempt, with_text=self._error_texts)

        def ended(handled: Handled | None) -> None:
            self.running -= 1
            if handled is None:
                item.stage = Stage.READY
                self.ready.appendleft(item)
                return
            self._note_run(item, handled, started_seconds)
            self._then(item, handled)

        self._executor.start_async(started, ended)

    def _attempt(self, item: Item) -> Attempt:
        item.stage = Stage.RUNNING
        held = cast(Claimed, item.held).record
        return Attempt(held.id, item.work.key, held.attempts or 1, self._deadline, held.owner or "unknown")

    def _note_run(self, item: Item, handled: Handled, started_seconds: float) -> None:
        """Before anything else may start: what took so long once may take so long again."""
        self.forecast.run_ended(started_seconds)
        if isinstance(handled, Returned) and handled.actions:
            self._uncommitted[item.index] = started_seconds
        else:
            self.forecast.done(started_seconds)
