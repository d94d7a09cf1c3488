"""Running handlers: as many at once as asked for, each started only while there is time for it.

A plain handler runs on a lane, a thread that takes one item after the other, so that short handlers cost no hand-over
each. A coroutine is a task on the event loop.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import cast

from idempotent_receiver.attempt import AsyncHandle, Attempt, Handled, Returned, run, run_async
from idempotent_receiver.clock import Deadline
from idempotent_receiver.executor import Executor
from idempotent_receiver.record import Claimed
from idempotent_receiver.work import Item, Stage

Then = Callable[[Item, Handled], None]

FEW_ROUND_TRIPS_SECONDS = 0.05
"""What is done within so short a time would wait for claims most of it."""

FEW_RUNS = 25
"""How many runs tell a pace, which is the mean of about so many."""

STALL_SECONDS = 0.25
"""After so long without the end of any run or transaction, nobody knows when there will be one."""

MOST_TRANSACTIONS = 16
"""How many may be under way before another run starts: each takes a thread and a connection."""


@dataclass(slots=True)
class Pace:
    """How long a consumer's handler has taken lately, transactions included; None while too few have run to tell. It is
    kept from one invocation to the next, and nothing but how far claims run ahead depends on it.
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
        self._closed = False
        self._uncommitted: dict[int, float] = {}
        """When those runs started whose transactions are under way, by their items' places."""
        self.longest_run_seconds = 0.0
        self._runs = 0
        self._mean_seconds = 0.0
        self._progress_seconds = 0.0
        self._pace = pace
        self._turned_slow = False

    def start(self) -> None:
        """Start what may start now."""
        if not self._may_start():
            return
        if self.running == 0 and not self._uncommitted:
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

    @property
    def idle(self) -> bool:
        """Whether nothing is under way here, nor could start."""
        return self.running == 0 and not self.ready and not self._uncommitted

    def soon_done_with(self, items: int) -> bool:
        """Whether so many more would be done in a few round trips at the pace so far, and in time even if each took as
        long as the slowest so far.
        """
        if self._pace.seconds is None or self._turned_slow:
            return False
        each = items / self._concurrency
        soon = self._expected_seconds() * each <= FEW_ROUND_TRIPS_SECONDS
        return soon and self.in_time_with(items, STALL_SECONDS + self.longest_run_seconds * each)

    def in_time_with(self, items: int, beside_seconds: float = 0.0) -> bool:
        """Whether so many more will be done before no more may start, as far as anybody knows, and leave that much."""
        ahead = self._expected_seconds() * items / self._concurrency
        left = self._deadline.left_seconds - self._stop_margin_seconds - self.longest_run_seconds
        return self.stalls_in_seconds() > 0 and max(ahead, beside_seconds) * 2 < left

    def stalls_in_seconds(self) -> float:
        """How long until what is under way has taken suspiciously long; 0 where it has."""
        if self.running == 0 and not self._uncommitted:
            return STALL_SECONDS
        return max(0.0, self._progress_seconds + STALL_SECONDS - self._deadline.elapsed_seconds)

    def turn_slow(self) -> None:
        """Count the handlers as slow for the rest of the batch, however quick they are again."""
        self._turned_slow = True

    def committed(self, item: Item) -> None:
        """The transaction of an item's run has ended, one way or another."""
        self._note_pace(self._uncommitted.pop(item.index))

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
        return not self._closed and len(self._uncommitted) < MOST_TRANSACTIONS and not self.out_of_time()

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

        def ended(handled: Handled) -> None:
            self.running -= 1
            self._note_run(item, handled, started_seconds)
            self._then(item, handled)

        self._executor.start_async(lambda: run_async(handle, attempt, with_text=self._error_texts), ended)

    def _attempt(self, item: Item) -> Attempt:
        item.stage = Stage.RUNNING
        held = cast(Claimed, item.held).record
        return Attempt(held.id, item.work.key, held.attempts or 1, self._deadline, held.owner or "unknown")

    def _note_run(self, item: Item, handled: Handled, started_seconds: float) -> None:
        """Before anything else may start: what took so long once may take so long again."""
        self.longest_run_seconds = max(self.longest_run_seconds, self._deadline.elapsed_seconds - started_seconds)
        if isinstance(handled, Returned) and handled.actions:
            self._uncommitted[item.index] = started_seconds
        else:
            self._note_pace(started_seconds)

    def _note_pace(self, started_seconds: float) -> None:
        now_seconds = self._deadline.elapsed_seconds
        self._progress_seconds = now_seconds
        # Two lanes at once may lose one of their runs here, which the mean can do without.
        self._runs += 1
        self._mean_seconds += (now_seconds - started_seconds - self._mean_seconds) / min(self._runs, FEW_RUNS)
        if self._runs >= FEW_RUNS:
            self._pace.seconds = self._mean_seconds

    def _expected_seconds(self) -> float:
        """How long a run will take: as lately, or as in batches before until enough have run in this one."""
        if self._runs >= FEW_RUNS:
            return self._mean_seconds
        return max(self._mean_seconds, self._pace.seconds or 0.0)
