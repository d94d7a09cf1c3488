"""Claims, runs and settles a batch of work against one store, within one invocation's deadline.

A single thread of control starts jobs (keys, peeks, claims, handlers, calls, commits, flushes, dead letters) on its
executor and collects their results, so nearly all state belongs to one thread. No single message can make `receive`
raise. It returns before the deadline unless a handler or call is still running. Such a one is left to Lambda's timeout,
which kills the process, because nothing may outlive its invocation.

The table in `items.py` defines each message's possible events and what follows. In a loop, an event happens, the table
names an action, the action starts a job, and the job's result is the next event.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from idempotent_receiver.batch.calling import Callings
from idempotent_receiver.batch.exchanges import ClaimLine, Exchanges
from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.batch.items import Do, Event, Item, Stage, Work
from idempotent_receiver.batch.keys import Keys
from idempotent_receiver.batch.progress import Order, Progress
from idempotent_receiver.batch.runs import Runs
from idempotent_receiver.batch.sends import Sends
from idempotent_receiver.batch.settings import SendDeadLetter, Settings
from idempotent_receiver.batch.settlements import Settlements
from idempotent_receiver.batch.spent import Spent
from idempotent_receiver.batch.turns import Turns
from idempotent_receiver.clock import Deadline, Moment
from idempotent_receiver.handler.outcome import DeadLettered, Outcome


@dataclass(frozen=True, slots=True)
class Processed:
    """A batch's result: each work's outcome in order, the number of claims made, how many of them took over from a
    worker that never settled its claim, how many were released unused, and where the time went.
    """

    outcomes: Sequence[Outcome]
    claimed: int
    taken_over: int
    released: int
    spent: Spent


def receive(works: Sequence[Work], settings: Settings, deadline: Deadline) -> Processed:
    """Process all `works`, and return their outcomes and the batch's counts."""
    batch = Batch(works, settings, deadline)
    # Outside Lambda, a batch's calling thread is none on which anything was made.
    if settings.concurrency == 1 and not settings.asynchronous and settings.host is None:
        settings.executor.decide(batch.run_or_abandon, batch.interrupted)
    else:
        batch.run_or_abandon()
    return batch.processed()


LAST_MESSAGE = 3 / 4
LAST_PROGRESS = 1 / 2
LAST_SEND = 1 / 2
ANSWER = 1 / 4
"""Fractions of the stop margin. Once no more time than this is left, no messages of handlers are sent; what is left of
them is recorded, whatever SQS has not answered; no dead letters are sent; the answer is due.
"""

DRAIN_LOOK_SECONDS = 0.5
"""Seconds between a batch's checks of whether its host is draining."""

MOST_SENDING = 16
"""Maximum dead letters sent at once: each takes a thread and a connection."""


class Batch:
    """One batch, from its first claim to its outcomes."""

    def __init__(self, works: Sequence[Work], settings: Settings, deadline: Deadline) -> None:
        self._executor = settings.executor
        self._margin_seconds = settings.stop_margin_seconds
        self._deadline = deadline
        self._host = host = settings.host
        spans = settings.spans
        self._progress = progress = Progress(
            Order(works), None if host is None else host.ended, None if spans is None else spans.ended
        )
        watching = [one.keyed for one in (host, spans) if one is not None]
        self._keys = Keys(settings.executor, progress, watching)
        self._spent = spent = Spent()
        exchanges, turns = Exchanges(settings, deadline, spent), Turns(deadline)
        self._claims = claims = ClaimLine(settings, progress, deadline, exchanges)
        self._settlements = settlements = Settlements(settings, progress, deadline, turns, exchanges)
        self._calls = calls = Callings(settings, progress, deadline, spent, settlements.keep)
        self._runs = runs = Runs(settings, progress, deadline, turns, calls)
        self._sends = sends = Sends(settings, progress)
        send = settings.send_dead_letter
        self._dead_letters = None if send is None else DeadLetters(settings.executor, send, progress)
        progress.actions = {
            Do.ASK: claims.ask,
            Do.LINE_UP: claims.line_up,
            Do.TAKE_OVER: claims.line_up_unsent,
            Do.AWAIT_TURN: progress.await_turn,
            Do.MAKE_READY: runs.ready.append,
            Do.RUN_AGAIN: runs.again.append,
            Do.COMPLETE: settlements.complete,
            Do.FAIL: settlements.fail,
            Do.SEND_OUT: sends.add,
            Do.CALL: calls.add,
            Do.STOP: settlements.stop,
            Do.MARK: settlements.mark,
            Do.RELEASE: settlements.release,
            Do.SEND: progress.not_sent if self._dead_letters is None else self._dead_letters.add,
            Do.END: progress.end,
        }
        self._cancelled = False
        self._moment: Moment
        """When the current step began."""

    def run(self) -> None:
        """Run until every item has ended, or the answer is due and no handler is running."""
        self._keys.begin()
        for item in self._progress.order.leaders:
            if item.stage is Stage.KEYLESS:
                self._progress.await_turn(item)
            else:
                self._claims.line_up(item)
        while self._step() and (self._runs.running > 0 or not self._late(ANSWER)):
            self._wait()

    def run_or_abandon(self) -> None:
        """Run. If the process is about to end, record what has finished and release what has not started."""
        try:
            self.run()
        except (KeyboardInterrupt, SystemExit):
            self.abandon()
            raise

    def interrupted(self, error: BaseException) -> None:
        """Fail the message that was being handled when a signal raised `error`, and start no more handlers. Without
        one, or if the process is about to end, abandon the batch.
        """
        self._calls.stopped = True
        if self._runs.fail_taken(error) and isinstance(error, Exception):
            self._stop()
            return
        self.abandon()
        raise error

    def abandon(self) -> None:
        """Settle finished items and release unstarted ones, without waiting for handlers."""
        self._calls.stopped = True
        self._stop()
        while self._step() and self._progress.unresolved > self._runs.running and not self._late(ANSWER):
            self._wait()

    def processed(self) -> Processed:
        """Every work's outcome, and the counts that outcomes do not show."""
        claims, released = self._claims, self._settlements.released
        return Processed(self._progress.outcomes(), claims.claimed, claims.taken_over, released, self._spent)

    def _step(self) -> bool:
        """Stop items if time is short, notify waiting items, then peek, claim, run, settle and send whatever is
        possible.

        Returns False once nothing is left to wait for.
        """
        progress, claims, runs = self._progress, self._claims, self._runs
        if progress.unresolved == 0:
            return False
        self._moment = moment = self._deadline.moment()
        late = moment.left_to_start_seconds <= runs.needed_seconds
        draining = self._host is not None and self._host.draining()
        if late or draining or progress.stopped or progress.unreachable is not None:
            self._stop()  # on every step: a coroutine that would start too late puts its item back
        if not self._cancelled and self._late(1):
            self._cancelled = True
            self._executor.cancel_async()
        if claims.unsent:
            claims.take_over()
        if progress.ended:
            progress.pass_on()
        if not progress.stopped:
            self._begin(moment)
        self._settle(moment)
        if self._sends.unanswered:
            self._send_out(moment)
            self._settle(moment)
        if self._calls.open:
            self._runs.start(moment)
            self._calls.step(moment, late=self._late(1))
            self._settle(moment)
        if self._dead_letters is not None:
            self._dead_letters.send(late=self._late(LAST_SEND))
        return progress.unresolved > 0

    def _wait(self) -> None:
        """Wait for a job's result, but not while others wait for an item that this step has ended."""
        if not self._progress.ended:
            self._executor.step(self._timeout_seconds())

    def _settle(self, moment: Moment) -> None:
        claims, runs = self._claims, self._runs
        for line in self._settlements.lines:
            if line.waiting:
                may_grow = runs.running > 0 or claims.asking > 0 or self._sends.unanswered or runs.may_start_one(moment)
                line.flush(moment.elapsed_seconds, hurry=not may_grow)

    def _send_out(self, moment: Moment) -> None:
        """Send handlers' messages. After a pause beyond the lease, another worker may be sending them."""
        settlements = self._settlements
        idle = self._runs.running == settlements.committing == 0
        hurry = idle and not any(line.waiting for line in settlements.lines)
        late = moment.left_to_start_seconds <= LAST_MESSAGE * self._margin_seconds
        self._sends.flush(moment.elapsed_seconds, hurry=hurry, late=late, over=self._late(LAST_PROGRESS))

    def _begin(self, moment: Moment) -> None:
        claims, runs = self._claims, self._runs
        self._keys.start()
        waits = self._keys.lingers(moment.elapsed_seconds, waiting=bool(claims.unread or claims.waiting))
        if claims.unread and not waits:
            claims.peek()
        if (claims.waiting or claims.apart) and not waits:
            claims.claim(ahead=self._progress.held + len(runs.ready))
        if runs.ready or runs.again:
            runs.start(moment)
        if runs.ready and self._host is not None:
            runs.release_waiting(self._host, moment)

    def _stop(self) -> None:
        """Start nothing more."""
        if not self._progress.stopped:
            self._progress.stop()
        self._runs.stop()

    def _late(self, margins: float) -> bool:
        """Whether at most `margins` stop margins were left at the start of this step."""
        return self._moment.left_seconds <= margins * self._margin_seconds

    def _timeout_seconds(self) -> float | None:
        """Seconds until the next action that does not depend on a job's result."""
        moment, margin = self._moment, self._margin_seconds
        left = moment.left_seconds
        times = [left - self._runs.needed_seconds, left - margin, left - ANSWER * margin]
        if self._sends.unanswered:
            times += [left - LAST_MESSAGE * margin, left - LAST_PROGRESS * margin]
        if self._calls.open:
            times.append(left - self._calls.needed_seconds)
        lines = (*self._settlements.lines, self._sends, self._calls, *(() if self._progress.stopped else (self._keys,)))
        due = [line.due_seconds - moment.elapsed_seconds for line in lines if line.due_seconds is not None]
        if self._host is not None and (self._calls.open or not self._progress.stopped):
            due.append(DRAIN_LOOK_SECONDS)
        return min([*due, *(time for time in times if time > 0)], default=None)


class DeadLetters:
    """Dead letters that wait to be sent, if the batch has a destination for them. Only a few are sent at once, and none
    too late to be confirmed.
    """

    def __init__(self, executor: Executor, send: SendDeadLetter, progress: Progress) -> None:
        self._executor = executor
        self._send = send
        self._progress = progress
        self._waiting: deque[Item] = deque()
        self._sending = 0

    def send(self, *, late: bool) -> None:
        """Send waiting dead letters, unless it is too late."""
        while self._waiting and self._sending < MOST_SENDING:
            item = self._waiting.popleft()
            if late:
                self._progress.not_sent(item)
                continue
            self._sending += 1
            self._executor.start(partial(self._send, item.index, item.failure), partial(self._sent, item))

    def add(self, item: Item) -> None:
        """Queue an item's dead letter if no retry can help; otherwise mark the item as failed."""
        if item.failure.for_good:
            self._waiting.append(item)
        else:
            self._progress.not_sent(item)

    def _sent(self, item: Item, confirmed: bool) -> None:  # positional: the executor passes the job's result
        self._sending -= 1
        if confirmed:
            self._progress.dead_lettered = True
            self._progress.happens(item, Event.SENT, DeadLettered(item.failure))
        else:
            self._progress.not_sent(item)
