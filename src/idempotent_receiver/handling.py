"""Running handlers: as many at once as asked for, each started only while there is time for it.

A plain handler runs on a lane, a thread that takes one item after the other, so that short handlers cost no hand-over
each. A coroutine is a task on the event loop.
"""

from collections import deque
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import cast

from idempotent_receiver.attempt import AsyncHandle, Attempt, Handled, run, run_async
from idempotent_receiver.clock import Deadline
from idempotent_receiver.executor import Executor
from idempotent_receiver.record import Claimed
from idempotent_receiver.store import WRITES_A_CALL
from idempotent_receiver.work import Item, Stage

Then = Callable[[Item, Handled], None]

FEW_ROUND_TRIPS_SECONDS = 0.05
"""What is done within so short a time would wait for claims most of it."""

STALL_SECONDS = 0.25
"""After so long without the end of any run, nobody knows when there will be one."""


@dataclass(slots=True)
class Pace:
    """How long a consumer's handler takes on the average, as its last batch of some size has shown; None before that.
    It is kept from one invocation to the next, and nothing but how far claims run ahead depends on it.
    """

    seconds: float | None = None


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
        self._stop_margin_seconds = stop_margin_seconds
        self._error_texts = error_texts
        self.ready: deque[Item] = deque()
        self.running = 0
        """Lanes, or coroutines, that have not ended."""
        self.paused = False
        """Whether enough is waiting for the store already."""
        self.longest_run_seconds = 0.0
        self._runs = 0
        self._run_seconds = 0.0
        self._progress_seconds = 0.0
        self._pace = pace

    def start(self) -> None:
        """Start what may start now."""
        if not self._may_start():
            return
        if self.running == 0:
            self._progress_seconds = self._deadline.elapsed_seconds
        for _ in range(min(len(self.ready), self._concurrency - self.running)):
            if self._asynchronous:
                self._start_coroutine(self.ready.popleft())
            else:
                # One that finds everything taken ends at once.
                self.running += 1
                self._executor.start(self._lane, self._lane_ended)

    def out_of_time(self) -> bool:
        """Whether what is left is no more than the stop margin and the longest run seen: another one may not fit."""
        return self._deadline.left_seconds <= self._stop_margin_seconds + self.longest_run_seconds

    def soon_done_with(self, items: int) -> bool:
        """Whether so many more would be done in a few round trips at the pace so far, and in time even if each took as
        long as the slowest so far.
        """
        each = items / self._concurrency
        if self._pace.seconds is None or self._mean_seconds() * each > FEW_ROUND_TRIPS_SECONDS:
            return False
        return self.stalls_in_seconds() > 0 and self.longest_run_seconds * each * 2 < self._deadline.left_seconds

    def in_time_with(self, items: int) -> bool:
        """Whether so many more will be done before no more may start, as far as anybody knows."""
        ahead = self._mean_seconds() * items / self._concurrency
        return self.stalls_in_seconds() > 0 and ahead * 2 < self._deadline.left_seconds - self._stop_margin_seconds

    def stalls_in_seconds(self) -> float:
        """How long until the runs under way have taken suspiciously long; 0 where they have."""
        if self.running == 0:
            return STALL_SECONDS
        return max(0.0, self._progress_seconds + STALL_SECONDS - self._deadline.elapsed_seconds)

    def take_back_last(self, items: int) -> list[Item]:
        """At most so many of the last that have not started, which may come again."""
        taken: list[Item] = []
        while self.ready and len(taken) < items:
            taken.append(self.ready.pop())
        return taken

    def take_back(self) -> list[Item]:
        """The items that have not started, which now never will."""
        self.paused = True
        taken = []
        while self.ready:
            taken.append(self.ready.popleft())
        return taken

    def _may_start(self) -> bool:
        return not self.paused and not self.out_of_time()

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
            self._note_run(started_seconds)
            self._executor.tell(partial(self._then, item), handled)

    def _lane_ended(self, result: None) -> None:
        self.running -= 1

    def _start_coroutine(self, item: Item) -> None:
        self.running += 1
        attempt, handle = self._attempt(item), cast(AsyncHandle, item.work.handle)
        started_seconds = self._deadline.elapsed_seconds

        def ended(handled: Handled) -> None:
            self.running -= 1
            self._note_run(started_seconds)
            self._then(item, handled)

        self._executor.start_async(lambda: run_async(handle, attempt, with_text=self._error_texts), ended)

    def _attempt(self, item: Item) -> Attempt:
        item.stage = Stage.RUNNING
        held = cast(Claimed, item.held).record
        return Attempt(held.id, item.work.key, held.attempts or 1, self._deadline, held.owner or "unknown")

    def _note_run(self, started_seconds: float) -> None:
        """Before anything else may start: what took so long once may take so long again."""
        seconds = self._deadline.elapsed_seconds - started_seconds
        self.longest_run_seconds = max(self.longest_run_seconds, seconds)
        # Two lanes at once may lose one of their runs here, which the mean can do without.
        self._runs += 1
        self._run_seconds += seconds
        self._progress_seconds = started_seconds + seconds
        if self._runs >= WRITES_A_CALL:
            self._pace.seconds = self._run_seconds / self._runs

    def _mean_seconds(self) -> float:
        """How long a run takes: of too few, no less than it took in batches before."""
        known = self._pace.seconds or 0.0
        return max(known, self._run_seconds / self._runs) if self._runs else known
