"""Runs handlers: up to the configured concurrency, each only if there is time for it.

A plain handler runs in a worker loop: a thread that takes one item after another, which saves short handlers a thread
switch each. Without concurrency, that is the thread that called the consumer. A coroutine is a task on the event loop.
"""

from collections import deque
from contextlib import suppress
from contextvars import copy_context
from functools import partial

from idempotent_receiver.batch.exchanges import refuse
from idempotent_receiver.batch.items import Event, Item, Stage
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.batch.settings import AHEAD_SECONDS, Host, Settings
from idempotent_receiver.batch.spent import Spent
from idempotent_receiver.batch.turns import Turns
from idempotent_receiver.clock import Deadline, Moment
from idempotent_receiver.errors import failure_of
from idempotent_receiver.handler.attempt import AsyncHandle, Attempt, Handle, Handled, Raised, Returned, run, run_async
from idempotent_receiver.handler.lending import Inside, LendingStore, LentRun, NotRun, Ran
from idempotent_receiver.handler.results import fits, kept
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Settlement, Unclaimed
from idempotent_receiver.transaction.outbox import NO_CLIENT
from idempotent_receiver.transaction.transaction import NO_ACTIONS


class Runs:
    """The items whose turn has come.

    Worker loops share some state with their caller: `ready` and `again` (the thread that takes an item owns it), the
    transactions' turns, the longest run so far, and the start of the last run. Two loops may overwrite each other's
    values; the shorter run then counts until the next one ends, or the start is off by microseconds.
    """

    def __init__(self, settings: Settings, progress: Progress, deadline: Deadline, turns: Turns, spent: Spent) -> None:
        self._spent = spent
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
        """Start as many items as may start now."""
        if not self._in_time(moment):
            return
        host = self._settings.host
        startable = len(self.again) + (len(self.ready) if self.may_start(moment) else 0)
        for _ in range(min(startable, self._settings.concurrency - self.running)):
            if host is not None and not host.take_slot():
                return
            self.running += 1
            self._started_seconds = moment.elapsed_seconds
            if self._settings.asynchronous:
                self._start_coroutine((self.again or self.ready).popleft(), moment)
            else:
                # A loop that finds nothing left ends at once.
                self._executor.start_handlers(self._work, self._loop_ended)

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
        """Fail the item that the only worker loop had taken when a signal ended it. Returns whether there is one."""
        taken = [
            item
            for item in self._progress.order.items
            if item.stage is Stage.READY and item not in self.ready and item not in self.again
        ]
        self.running = 0
        for item in taken:
            self._handled(item, Raised(failure_of(error, with_text=self._settings.error_texts), error))
        return len(taken) > 0

    def stop(self) -> None:
        """Start nothing more, and release what has not started."""
        self._stopped = True
        for line in (self.again, self.ready):
            # Worker loops take items too, so checking first whether one is left would be a race.
            with suppress(IndexError):
                while True:
                    self._progress.happens(line.pop(), Event.STOPPED)

    def may_start_one(self, moment: Moment) -> bool:
        """Whether any waiting item may start."""
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

    def _next(self, moment: Moment) -> Item | None:
        """The next item for a worker loop; None if no item is left, or no time for one."""
        try:
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
        """Take and run items until no item or no time is left. Runs on a worker thread and reports each result."""
        moment = self._deadline.moment()
        while (item := self._next(moment)) is not None:
            self._started_seconds = moment.elapsed_seconds
            if self._lender is not None:
                moment = self._lend(item, self._lender, moment)
                continue
            handled = copy_context().run(
                run, item.work.handle, self._attempt(item), with_text=self._settings.error_texts
            )
            started, moment = moment, self._deadline.moment()
            self._note(item, handled, started, moment)
            self._executor.tell(partial(self._handled, item), handled)

    def _lend(self, item: Item, lender: LendingStore, started: Moment) -> Moment:
        """Have the store run an item in its own transaction, which also writes the record. Returns when it ended."""
        settings = self._settings

        def run_inside(basis: Unclaimed, inside: Inside) -> Handled:
            item.basis = basis
            handle: Handle = item.work.handle  # a store lends nothing to coroutine functions
            attempt = self._attempt(item)
            return run(lambda attempt: inside(attempt, handle), attempt, with_text=settings.error_texts)

        def complete(basis: Unclaimed, returned: Returned) -> Settlement:
            data = kept(basis, returned.data, settings.largest_record_bytes, settings.results)
            return transitions.complete(basis, data, returned.outbox, self._deadline.now_ms)

        lent = LentRun(
            item.claim,
            self._deadline,
            run_inside,
            complete,
            lambda basis, raised: transitions.fail(basis, raised.failure.to_json(), started=raised.failure.started),
            lambda error: Raised(failure_of(error, with_text=settings.error_texts), error),
            lambda: self._in_time(self._deadline.moment()),
        )
        ended: Ran | NotRun
        try:
            ended = copy_context().run(lender.run, lent)
        except Exception as error:  # noqa: BLE001  # anything a store raises is a defect
            failure = failure_of(error)
            ended = NotRun(Unknown(f"the store raised {failure.type} at {failure.at}", retry=False))
        moment = self._deadline.moment()
        if isinstance(ended, Ran):
            self._note(item, ended.handled, started, moment)
        elif _is_away(ended):
            self._stopped = True  # at once: the next item would only meet the same
        self._executor.tell(partial(self._ended, item), ended)
        return moment

    def _ended(self, item: Item, ended: Ran | NotRun) -> None:
        if isinstance(ended, Ran):
            item.settled = ended.answer
            self._handled(item, ended.handled)
            return
        if _is_away(ended):
            self._progress.unreachable = self._progress.unreachable or "the database could not be asked"
        refuse(self._progress, item, ended.answer)

    def _loop_ended(self, result: None) -> None:
        self.running -= 1

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
        item.data, item.actions, item.outbox = handled.data, handled.actions, handled.outbox
        large = item.settled is None and item.data is not None
        large = large and not fits(item.basis, item.data, self._settings.largest_record_bytes)
        self._progress.happens(item, Event.RETURNED_LARGE if large else Event.RETURNED)

    def _attempt(self, item: Item) -> Attempt:
        record, owner = item.basis.record, item.basis.record.owner or "unknown"
        item.since = self._turns.writes
        reads: list[float] = []
        item.reads = reads
        settings, attempt = self._settings, record.attempts or 1
        no_sends = NO_CLIENT if settings.send_messages is None else None
        no_actions = None if self._lender is None else NO_ACTIONS
        return Attempt(
            record.id, item.work.key, attempt, self._deadline, owner, settings.store, no_sends, reads, no_actions
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


def _is_away(ended: NotRun) -> bool:
    """Whether the store could not be asked, so that no other item can run either."""
    return isinstance(ended.answer, Unknown) and ended.answer.retry
