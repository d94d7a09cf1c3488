"""Claim, handle, settle: a batch of work against one store, within one invocation's deadline.

One thread of control, here, starts jobs (looks, claims, handlers, commits, flushes, dead letters) on the executor
that it is given and takes in their results, so that all state below belongs to one thread. It never raises for one
message's sake, and it answers before the deadline, unless a handler still runs: that one is left to Lambda's
time-out, which kills the process, because nothing may outlive its invocation.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from idempotent_receiver.batch.claims import MOST_CLAIMED_AHEAD, MOST_CLAIMED_AHEAD_OF_QUICK, Claiming
from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.batch.items import Item, Order, Stage, Work, mirrored
from idempotent_receiver.batch.pace import Pace
from idempotent_receiver.batch.runs import Handling
from idempotent_receiver.batch.settlements import Answer, Settling
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure, failure_of
from idempotent_receiver.handler.attempt import Handled, Raised, Returned
from idempotent_receiver.handler.outcome import (
    ClaimFailed,
    ClaimLost,
    Completed,
    DeadLettered,
    Duplicate,
    Failed,
    HeldElsewhere,
    NotStarted,
    Outcome,
    SettleFailed,
    Unreadable,
)
from idempotent_receiver.handler.results import Results, fits, kept
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import Operations, Unavailable, Unread, commit, exchange
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import ActionFailed, RecordStore, TransactionalStore
from idempotent_receiver.protocol.transaction import Action
from idempotent_receiver.protocol.transitions import Claimable, Claimed, Settled

Bury = Callable[[int, Failure], bool]

MOST_BURIALS = 16
"""How many dead letters may be on their way at once: each takes a thread and a connection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """How batches are received. `bury` sends a dead letter for the work of an index and says whether it is confirmed.

    `stop_margin_seconds` is the time kept for settling and answering. Results that would make a record larger than
    `largest_record_bytes` go to `results`, or are dropped for a marker. `asynchronous` says that the handlers are
    coroutine functions. `pace` is to be kept from one batch to the next.
    """

    store: RecordStore
    executor: Executor
    concurrency: int = 1
    asynchronous: bool = False
    bury: Bury | None = None
    stop_margin_seconds: float = 1.0
    largest_record_bytes: int = 1024
    results: Results | None = None
    error_texts: bool = False
    pace: Pace = field(default_factory=Pace)

    def process(self, works: Sequence[Work], deadline: Deadline) -> "Processed":
        """Bring each work to its outcome."""
        batch = _Batch(self, works, deadline)
        try:
            batch.run()
        except (KeyboardInterrupt, SystemExit):
            # The process was told to end: record what has finished, give back what has not started.
            batch.abandon()
            raise
        return batch.processed()


@dataclass(frozen=True, slots=True)
class Processed:
    """What became of a batch: an outcome for each work, in their order, and how many claims were made, how many of
    them over a worker that had never settled, and how many given back unused.
    """

    outcomes: list[Outcome]
    claimed: int
    taken_over: int
    released: int


class _Batch:
    """The state of one batch; all of it belongs to the thread that runs it."""

    def __init__(self, receiver: Receiver, works: Sequence[Work], deadline: Deadline) -> None:
        self.receiver = receiver
        self.deadline = deadline
        self.order = Order(works)
        self.claiming = Claiming(self._ask, self._claim_answered)
        self.settling = Settling(self._ask, deadline.clock)
        self.handling = Handling(
            receiver.executor,
            deadline,
            self._handled,
            concurrency=receiver.concurrency,
            asynchronous=receiver.asynchronous,
            stop_margin_seconds=receiver.stop_margin_seconds,
            error_texts=receiver.error_texts,
            pace=receiver.pace,
        )
        self.ended: deque[Item] = deque()
        self.unresolved = len(works)
        self.burials: deque[tuple[Item, Failure, bool]] = deque()
        self.held = self.burying = 0
        self.claimed = self.taken_over = self.released = 0
        self.closed = self.cut = False
        self._line_up()

    def run(self) -> None:
        """Turn until everything has its outcome, or until the time to answer has come."""
        while self._turn() and not (self.handling.running == 0 and self._late(0.25)):
            self.receiver.executor.step(self._timeout_seconds())
        self._answer_for_the_rest()

    def abandon(self) -> None:
        """Settle what has finished, release what has not started, and wait for no handler."""
        self._close()
        while self._turn() and self.unresolved > self.handling.running and not self._late(0.25):
            self.receiver.executor.step(self._timeout_seconds())

    def processed(self) -> Processed:
        """Every item's outcome, and the counts that outcomes do not tell."""
        outcomes = [cast(Outcome, item.outcome) for item in self.order.items]
        return Processed(outcomes, self.claimed, self.taken_over, self.released)

    # Time.

    def _turn(self) -> bool:
        """Start whatever can start; False once nothing is left to wait for."""
        if not self.closed and self.handling.forecast.out_of_time():
            self._close()
        if self.closed:
            for item in self.handling.take_back():
                self._give_back(item)
        if not self.cut and self._late(1.0):
            self.cut = True
            self.receiver.executor.cancel_async()
        self._drain()
        while not self.closed:
            self.claiming.look()
            self._give_back_excess()
            self.claiming.claim(self._not_started(), self._most_ahead(), idle=self._idle())
            self.handling.start()
            if not self.ended:
                break
            self._drain()
        may_grow = self.handling.running > 0 or self.claiming.busy or len(self.handling.ready) > 0
        self.settling.flush(hurry=not may_grow)
        if self.receiver.bury is not None:
            self._send_dead_letters(self.receiver.bury)
        return self.unresolved > 0

    def _late(self, margins: float) -> bool:
        """Whether no more is left than so many stop margins."""
        return self.deadline.left_seconds <= margins * self.receiver.stop_margin_seconds

    def _timeout_seconds(self) -> float | None:
        """Until when there is nothing to do but wait for a job."""
        left, margin = self.deadline.left_seconds, self.receiver.stop_margin_seconds
        times = [self.handling.forecast.left_seconds, left - margin, left - margin / 4]
        if self._not_started() > MOST_CLAIMED_AHEAD:
            times.append(self.handling.stalls_in_seconds() or 0.0)
        ahead = [time for time in times if time > 0]
        due = self.settling.due_in_seconds()
        return min(ahead if due is None else [*ahead, due], default=None)

    def _close(self) -> None:
        """Start nothing more, and give back what is not on its way to a start."""
        self.closed = True
        for item in self.order.items:
            if item.outcome is None and item.stage in (Stage.WAITING, Stage.HELD):
                self._give_back(item)

    def _answer_for_the_rest(self) -> None:
        """The time to answer has come: what is still under way is nobody's success."""
        for item in self.order.items:
            if item.outcome is None and item.failure is not None:
                self._end(item, Failed(item.failure, recorded=False))
            elif item.outcome is None and item.stage is Stage.SETTLING:
                self._end(item, SettleFailed("the store had not answered when the time was over"))
            elif item.outcome is None:
                self._end(item, ClaimFailed("the store had not answered when the time was over"))

    # Turns.

    def _line_up(self) -> None:
        for item in self.order.leaders:
            if isinstance(item.work.claim, Failure):
                item.failure = item.work.claim
                self._hold(item)
            else:
                item.assumed = Unread() if item.work.seen_before else None
                self.claiming.want(item)

    def _hold(self, item: Item) -> None:
        """Keep an item until its turn."""
        item.stage = Stage.HELD
        self.held += 1
        if self.order.has_turn(item):
            self._make_ready(item)

    def _make_ready(self, item: Item) -> None:
        self.held -= 1
        if item.failure is not None:
            self._fail_for_good(item, item.failure)
        else:
            item.stage = Stage.READY
            self.handling.ready.append(item)

    def _end(self, item: Item, outcome: Outcome) -> None:
        if item.outcome is None:
            item.outcome = outcome
            item.held = None
            self.unresolved -= 1
            self.ended.append(item)

    def _drain(self) -> None:
        """Tell those who waited for what has ended. A queue, not recursion, since the chains may be long."""
        while self.ended:
            item = self.ended.popleft()
            self._pass_on(item)
            next_item, blocked = self.order.advance(item)
            for other in blocked:
                if other.stage in (Stage.WAITING, Stage.HELD):
                    self._give_back(other)
            if next_item is not None and next_item.stage is Stage.HELD:
                self._make_ready(next_item)

    def _pass_on(self, item: Item) -> None:
        """A follower with the same payload shares the outcome; one with another payload asks the store itself, and
        those that waited with it then wait for both.
        """
        if not item.followers:
            return
        outcomes = item.outcomes or {}
        outcomes[item.claim.fingerprint] = cast(Outcome, item.outcome)
        while item.followers:
            follower = item.followers.popleft()
            if follower.outcome is not None:
                continue
            same = outcomes.get(follower.claim.fingerprint)
            if same is not None:
                self._end(follower, mirrored(same))
                continue
            follower.followers, item.followers = item.followers, None
            follower.outcomes = outcomes
            if self.closed:
                self._end(follower, NotStarted())
                continue
            # Claimed at once, however much is claimed ahead: what is held may be waiting for this one.
            follower.assumed = Unread()
            self.claiming.claim_now([follower])

    def _not_started(self) -> int:
        """How many claims are held whose handlers have not started."""
        return self.held + len(self.handling.ready)

    def _most_ahead(self) -> int:
        """How many claims may be held or under way at the handlers' pace."""
        quick = not self._stalled() and self.handling.forecast.soon_done(MOST_CLAIMED_AHEAD_OF_QUICK)
        return MOST_CLAIMED_AHEAD_OF_QUICK if quick else MOST_CLAIMED_AHEAD

    def _stalled(self) -> bool:
        return self.handling.stalls_in_seconds() == 0

    def _idle(self) -> bool:
        """Whether nothing is under way whose end could let anything start that is held."""
        idle = not self.handling.under_way and not self.handling.ready
        return idle and not self.settling.busy and self.burying == 0

    def _give_back(self, item: Item) -> None:
        """Let an item go that has not started: release its claim, if it has one."""
        if item.stage is Stage.HELD:
            self.held -= 1
        if item.held is None:
            self._end(item, NotStarted())
        else:
            self._release(item, item.held, self._released)

    def _give_back_excess(self) -> None:
        """Release for now the last claims of a batch that has turned slow, so that its deadline finds no more of them
        than a slow one may hold. They are claimed again when their turn comes nearer.
        """
        excess = self._not_started() - MOST_CLAIMED_AHEAD
        if excess <= 0 or (not self._stalled() and self.handling.forecast.in_time(self._not_started())):
            return
        self.handling.forecast.turn_slow()
        held = [item for item in reversed(self.order.items) if item.stage is Stage.HELD and item.held is not None]
        self.held -= len(held[:excess])
        for item in [*held[:excess], *self.handling.take_back(excess - len(held[:excess]))]:
            self._release(item, cast(Claimed, item.held), self._released_for_now)

    def _release(self, item: Item, held: Claimed, then: Callable[[Item, Answer], None]) -> None:
        self._settle(item, transitions.release(held, self.deadline.now_ms), then)

    # Claims.

    def _claim_answered(self, item: Item, answer: Claimed | Claimable | transitions.Refusal | Unavailable) -> None:
        match answer:
            case Claimable(seen):
                item.stage, item.assumed = Stage.WAITING, seen
                if self.closed or self.order.is_blocked(item):
                    self._give_back(item)
                else:
                    self.claiming.want(item)
            case Claimed():
                item.held = answer
                self.claimed += 1
                self.taken_over += answer.taken_over
                if self.closed or self.order.is_blocked(item):
                    self._give_back(item)
                else:
                    self._hold(item)
            case transitions.AlreadyCompleted(found):
                self._end(item, Duplicate(found))
            case HeldElsewhere() | Unreadable():
                self._end(item, answer)
            case transitions.OtherPayload(expected, found):
                self._fail_for_good(item, _mismatch(expected, found))
            case Unavailable(why):
                self._end(item, ClaimFailed(why))
            case transitions.AlreadyFailed():
                raise AssertionError("a queue asks for no failures as answers")

    def _ask(self, courses: Operations, then: Callable[[Operations], None], patience: int) -> None:
        store, deadline = self.receiver.store, self.deadline

        def told(still: Operations) -> None:
            then([course for course in courses if course.answer is not None])
            if still:
                self._ask(still, then, patience)

        self.receiver.executor.start(lambda: exchange(courses, store, deadline, patience=patience), told)

    # Handling.

    def _handled(self, item: Item, handled: Handled) -> None:
        item.stage = Stage.SETTLING
        match handled:
            case Returned(data, actions):
                self._complete(item, cast(Claimed, item.held), data, actions)
            case Raised(failure):
                self._fail(item, failure)

    def _complete(self, item: Item, held: Claimed, data: str | None, actions: Sequence[Action]) -> None:
        results, largest = self.receiver.results, self.receiver.largest_record_bytes
        if results is None or fits(held, data, largest):
            self._complete_with(item, held, actions, kept(held, data, largest, None))
            return
        # Written before the completion, which then tells where: elsewhere, for it may take its time.
        then = partial(self._complete_with, item, held, actions)
        self.receiver.executor.start(lambda: kept(held, data, largest, results), then)

    def _complete_with(self, item: Item, held: Claimed, actions: Sequence[Action], data: str | None) -> None:
        settlement = transitions.complete(held, data)
        if not actions:
            self._settle(item, settlement, self._completed)
            return
        store, deadline = cast(TransactionalStore, self.receiver.store), self.deadline
        then = partial(self._committed, item, actions)
        self.receiver.executor.start(lambda: commit(settlement, actions, store, deadline), then)

    def _committed(self, item: Item, actions: Sequence[Action], answer: Answer | ActionFailed) -> None:
        self.handling.committed(item)
        match answer:
            case ActionFailed(index):
                self._fail(item, failure_of(actions[index].error, with_text=self.receiver.error_texts))
            case Unavailable(why):
                # If it was committed after all, the version is gone and the failure is refused: nothing is undone.
                self._fail(item, Failure(type="TransactionNotCommitted", text=why))
            case Settled() | ClaimLost():
                self._completed(item, answer)

    def _fail(self, item: Item, failure: Failure) -> None:
        held = cast(Claimed, item.held)
        item.failure = failure
        settlement = transitions.fail(held, failure.to_json(), started=failure.started)
        self._settle(item, settlement, self._failed)

    def _fail_for_good(self, item: Item, failure: Failure) -> None:
        """Nothing of ours is recorded for this one: bury it if we may, else leave it to the queue."""
        item.failure = failure
        self._bury(item, failure, recorded=False)

    # Settling.

    def _settle(self, item: Item, settlement: transitions.Settlement, then: Callable[[Item, Answer], None]) -> None:
        item.stage = Stage.SETTLING
        self.settling.add(settlement, partial(then, item))

    def _completed(self, item: Item, answer: Answer) -> None:
        match answer:
            case Settled(settled):
                self._end(item, Completed(settled))
            case ClaimLost():
                self._lost(item, answer)
            case Unavailable(why):
                self._end(item, SettleFailed(why))

    def _failed(self, item: Item, answer: Answer) -> None:
        failure = cast(Failure, item.failure)
        match answer:
            case Settled():
                self._bury(item, failure, recorded=True)
            case ClaimLost():
                self._lost(item, answer)
            case Unavailable():
                self._end(item, Failed(failure, recorded=False))

    def _released(self, item: Item, answer: Answer) -> None:
        if isinstance(answer, ClaimLost):
            self._lost(item, answer)
        else:
            self.released += isinstance(answer, Settled)
            self._end(item, NotStarted())

    def _released_for_now(self, item: Item, answer: Answer) -> None:
        if isinstance(answer, Unavailable) or self.closed or self.order.is_blocked(item):
            self._released(item, answer)
            return
        self.released += 1
        # Whoever took it meanwhile has taken what was given away: the next look tells how far they are.
        item.held, item.assumed = None, answer.record if isinstance(answer, Settled) else Unread()
        self.claiming.want(item)

    def _lost(self, item: Item, answer: ClaimLost) -> None:
        if answer.completed:
            self._end(item, Duplicate(cast(Record, answer.found), lost=True))
        else:
            self._end(item, answer)

    def _bury(self, item: Item, failure: Failure, *, recorded: bool) -> None:
        if self.receiver.bury is None or not failure.permanent:
            self._end(item, Failed(failure, recorded=recorded))
            return
        item.stage = Stage.SETTLING
        self.burials.append((item, failure, recorded))

    def _send_dead_letters(self, bury: Bury) -> None:
        while self.burials and self.burying < MOST_BURIALS:
            item, failure, recorded = self.burials.popleft()
            if self._late(0.5):
                self._end(item, Failed(failure, recorded=recorded))
                continue
            self.burying += 1
            job = partial(bury, item.index, failure)
            self.receiver.executor.start(job, partial(self._buried, item, Failed(failure, recorded=recorded)))

    def _buried(self, item: Item, failed: Failed, confirmed: bool) -> None:  # what the job returned
        self.burying -= 1
        self._end(item, DeadLettered(failed.failure) if confirmed else failed)


def _mismatch(expected: str, found: str) -> Failure:
    text = f"the key was used for another payload: fingerprint {expected} then, {found} now"
    return Failure(type="FingerprintMismatch", text=text, permanent=True, started=False)
