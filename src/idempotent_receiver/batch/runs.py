"""Runs handlers and records' calls: up to the configured concurrency, each only if there is time for it.

Calls go before handlers that have not started, or time would always run out for them. A plain handler or call runs in a
worker loop: a thread that takes one after another, which saves short ones a thread switch each. Without concurrency,
that is the thread that called the consumer. A coroutine is a task on the event loop.
"""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import chain, islice, repeat

from idempotent_receiver.batch.calling import Calling, Callings
from idempotent_receiver.batch.exchanges import refuse
from idempotent_receiver.batch.items import Event, Item, Stage
from idempotent_receiver.batch.lent import LARGEST_RECORD_BYTES, away, lent
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.batch.settings import AHEAD_SECONDS, Host, Settings
from idempotent_receiver.batch.turns import Turns
from idempotent_receiver.clock import Deadline, Moment
from idempotent_receiver.errors import failure_of
from idempotent_receiver.handler.attempt import (
    AsyncHandle,
    Attempt,
    Handled,
    Raised,
    Returned,
    inline,
    run,
    run_async,
)
from idempotent_receiver.handler.lending import LendingStore, NotRun, Ran
from idempotent_receiver.transaction.outbox import NO_CLIENT
from idempotent_receiver.transaction.transaction import NO_ACTIONS


class Runs:
    """The items whose turn has come, and the calls of those whose messages are answered.

    Worker loops share some state with their caller: `ready`, `again` and the calls that wait (the thread that takes one
    owns it), the transactions' turns, the longest run so far, and the start of the last run. Two loops may overwrite
    each other's values; the shorter run then counts until the next one ends, or the start is off by microseconds.
    """

    def __init__(
        self, settings: Settings, progress: Progress, deadline: Deadline, turns: Turns, calls: Callings
    ) -> None:
        self._spent, self._calls = calls.spent, calls
        self._settings = settings
        self._lender = settings.lender
        self._executor = settings.executor
        self._progress = progress
        self._deadline = deadline
        self.ready: deque[Item] = deque()
        self.again: deque[Item] = deque()
        """Items that run again because data they had read has changed. They go first: other items wait for them."""
        self.running = 0
        """Worker loops or coroutines that have not ended."""
        self._stopped = False
        self._started_seconds = 0.0
        """When the last run started, in seconds since the invocation's start."""
        self._turns = turns
        self.needed_seconds = settings.stop_margin_seconds
        """Nothing starts with less time left than this: the stop margin plus the longest run so far."""

    def start(self, moment: Moment) -> None:
        """Start as many calls and items as may start now."""
        host = self._settings.host
        for begin in islice(self._startable(moment), max(0, self._settings.concurrency - self.running)):
            if host is not None and not host.take_slot():
                return
            self.running += 1
            self._started_seconds = moment.elapsed_seconds
            begin(moment)

    def _startable(self, moment: Moment) -> Iterator[Callable[[Moment], None]]:
        """How to start each call and item that may start now."""
        starts: list[tuple[Callable[[Moment], None], int]] = []
        if self._calls.in_time(moment):
            starts = [(self._start_call, len(self._calls.asynchronous)), (self._start_loop, len(self._calls.plain))]
        if self._in_time(moment):
            count = len(self.again) + (len(self.ready) if self.may_start(moment) else 0)
            starts.append((self._start_handler if self._settings.asynchronous else self._start_loop, count))
        return chain.from_iterable(repeat(*start) for start in starts)

    def _start_loop(self, moment: Moment) -> None:
        # A loop that finds nothing left ends at once.
        self._executor.start_handlers(self._work, self._loop_ended)

    def _start_handler(self, moment: Moment) -> None:
        self._start_coroutine((self.again or self.ready).popleft(), moment)

    def release_waiting(self, host: Host, moment: Moment) -> None:
        """Release items that cannot start now, if the host says that they should not wait for running handlers."""
        if moment.elapsed_seconds - self._started_seconds <= AHEAD_SECONDS:
            return
        for item in self.ready.copy():
            if host.releases(item.index):
                try:
                    self.ready.remove(item)
                except ValueError:  # a worker loop has just taken it
                    continue
                self._progress.happens(item, Event.STOPPED)

    def fail_taken(self, error: BaseException) -> bool:
        """Fail the item or call that the only worker loop had taken when a signal ended it. Returns whether there is
        one.
        """
        raised = Raised(failure_of(error, with_text=self._settings.error_texts), error)
        taken = [
            item
            for item in self._progress.order.items
            if item.stage is Stage.READY and item not in self.ready and item not in self.again
        ]
        self.running = 0
        for item in taken:
            self._handled(item, raised)
        calling = [calling for calling in self._calls.open.values() if calling.running is not None]
        for each in calling:
            self._calls.ran(each, raised, self._deadline.moment())
            self._calls.ended(each)
        return len(taken) + len(calling) > 0

    def stop(self) -> None:
        """Start nothing more, and release what has not started."""
        self._stopped = True
        for line in (self.again, self.ready):
            # Worker loops take items too, so checking first whether one is left would be a race.
            with suppress(IndexError):
                while True:
                    self._progress.happens(line.pop(), Event.STOPPED)

    def may_start_one(self, moment: Moment) -> bool:
        """Whether any waiting item or call may start."""
        if self._calls.may_start(moment):
            return True
        return (len(self.again) > 0 and self._in_time(moment)) or (len(self.ready) > 0 and self.may_start(moment))

    def may_start(self, moment: Moment) -> bool:
        """Whether one more first run may start: there is time for it and the waiting commits, and not too many commits
        are waiting.
        """
        return self._in_time(moment, self._turns.wait_seconds)

    def _in_time(self, moment: Moment, wait_seconds: float = 0) -> bool:
        host = self._settings.host
        draining = host is not None and host.draining()
        return moment.left_to_start_seconds > self.needed_seconds + wait_seconds and not draining and not self._stopped

    def _next(self, moment: Moment) -> Item | Calling | None:
        """The next item or call for a worker loop; None if none is left, or no time for one. A loop ends for a call
        that is a coroutine.
        """
        calls = self._calls
        try:
            if (calls.plain or calls.asynchronous) and calls.in_time(moment):
                return calls.plain.popleft() if calls.plain else None
            if self._settings.asynchronous:
                return None
            if self.again and self._in_time(moment):
                return self.again.popleft()
            return self.ready.popleft() if self.may_start(moment) else None
        except IndexError:  # another worker loop has just taken it
            return None

    def _work(self) -> None:
        """Run a worker loop, then free its slot immediately: another batch may be waiting for one."""
        try:
            self._worker_loop()
        finally:
            self._free_slot()

    def _free_slot(self) -> None:
        if self._settings.host is not None:
            self._settings.host.free_slot()

    def _worker_loop(self) -> None:
        """Take and run items and calls until none, or no time, is left. On a worker thread; reports each result."""
        moment = self._deadline.moment()
        while (taken := self._next(moment)) is not None:
            self._started_seconds = moment.elapsed_seconds
            if isinstance(taken, Calling):
                handled = self._run(taken.item, self._calls.begin(taken, moment))
                moment = self._deadline.moment()
                self._calls.ran(taken, handled, moment)
                self._executor.tell(self._calls.ended, taken)
                continue
            if self._lender is not None:
                moment = self._lend(taken, self._lender, moment)
                continue
            handled = self._run(taken, self._attempt(taken))
            started, moment = moment, self._deadline.moment()
            self._note(taken, handled, started, moment)
            self._executor.tell(partial(self._handled, taken), handled)

    def _run(self, item: Item, attempt: Attempt) -> Handled:
        return copy_context().run(run, item.work.handle, attempt, with_text=self._settings.error_texts)

    def _lend(self, item: Item, lender: LendingStore, started: Moment) -> Moment:
        """Have the store run an item. Returns when it ended."""
        new_attempt = partial(self._attempt, item)
        ended = lent(item, lender, self._settings, self._deadline, new_attempt=new_attempt, in_time=self._in_time)
        moment = self._deadline.moment()
        if isinstance(ended, Ran):
            self._note(item, ended.handled, started, moment)
        elif away(ended):
            self._stopped = True  # at once: the next item would only meet the same
        self._executor.tell(partial(self._ended, item), ended)
        return moment

    def _ended(self, item: Item, ended: Ran | NotRun) -> None:
        if isinstance(ended, Ran):
            item.settled = ended.answer
            self._handled(item, ended.handled)
            return
        if away(ended):
            self._progress.unreachable = self._progress.unreachable or "the database could not be asked"
        refuse(self._progress, item, ended.answer)

    def _loop_ended(self, result: None) -> None:
        self.running -= 1

    def _start_call(self, moment: Moment) -> None:
        """Start the next call that is a coroutine."""
        calling = self._calls.asynchronous.popleft()
        attempt, handle = self._calls.begin(calling, moment), calling.item.work.handle

        async def started() -> Handled | None:
            try:
                if not self._calls.in_time(self._deadline.moment()):
                    return None
                return await run_async(handle, attempt, with_text=self._settings.error_texts)  # type: ignore[arg-type]  # a call's
            finally:
                self._free_slot()

        def ended(handled: Handled | None) -> None:
            self.running -= 1
            if handled is None:
                self._calls.put_back(calling)
                return
            self._calls.ran(calling, handled, self._deadline.moment())
            self._calls.ended(calling)

        self._executor.start_async(started, ended)

    def _start_coroutine(self, item: Item, moment: Moment) -> None:
        attempt = self._attempt(item)
        handle: AsyncHandle = item.work.handle  # type: ignore[assignment]  # of a coroutine function

        async def started() -> Handled | None:
            try:
                # The start may have been delayed by coroutines that do not await, or by a suspended machine.
                if self._stopped or self._deadline.moment().left_to_start_seconds <= self.needed_seconds:
                    return None
                return await run_async(handle, attempt, with_text=self._settings.error_texts)
            finally:
                self._free_slot()

        def ended(handled: Handled | None) -> None:
            self.running -= 1
            if handled is None:
                (self.again if item.again else self.ready).appendleft(item)
                return
            self._note(item, handled, moment, self._deadline.moment())
            self._handled(item, handled)

        self._executor.start_async(started, ended)

    def _handled(self, item: Item, handled: Handled) -> None:
        item.runs += 1
        self._spent.ran(item.run_seconds, item.reads)
        if not isinstance(handled, Returned):
            item.failure = handled.failure
            item.actions = handled.actions if handled.failure.permanent else ()
            self._progress.happens(item, Event.RAISED)
            return
        item.data = inline(item.basis, handled.data, LARGEST_RECORD_BYTES)
        item.actions, item.outbox = handled.actions, handled.outbox
        self._progress.happens(item, Event.RETURNED)

    def _attempt(self, item: Item) -> Attempt:
        record = item.basis.record
        item.since = self._turns.writes
        reads: list[float] = []
        item.reads = reads
        settings, attempt = self._settings, record.attempts or 1
        no_actions = None if self._lender is None else NO_ACTIONS
        no_sends, to_call = NO_CLIENT if settings.send_messages is None else None, settings.callees.to_call
        return Attempt(
            record.id,
            item.work.key,
            attempt,
            self._deadline,
            item.claim.owner,
            settings.store,
            no_sends,
            to_call,
            reads,
            no_actions,
        )

    def _note(self, item: Item, handled: Handled, started: Moment, ended: Moment) -> None:
        """Note the run's duration before anything else may start: the next run may take as long."""
        item.run_seconds = ended.elapsed_seconds - started.elapsed_seconds
        needed_seconds = self._settings.stop_margin_seconds + item.run_seconds
        self.needed_seconds = max(self.needed_seconds, needed_seconds)
        if isinstance(handled, Raised):
            # A module may raise one error object for many messages: its traceback would keep all their frames alive.
            handled.error.__traceback__ = None
        if handled.actions and (isinstance(handled, Returned) or handled.failure.permanent):
            self._turns.ran(item.index)
