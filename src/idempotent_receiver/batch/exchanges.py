"""What a batch asks of its store: peeks and claims, in chunks ahead of the handlers, and settlements behind them.

The store is asked on other threads. Each of its answers is an event of the table in `items.py`, by way of
`handler/outcome.py` where it ends the item.
"""

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, cast

from idempotent_receiver.batch.items import TABLE, Do, Event, Item, Stage
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.results import kept
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import (
    CLAIM_RETRIES,
    SETTLE_RETRIES,
    Operation,
    Operations,
    SettleAnswer,
    Unavailable,
    Unread,
    commit,
    exchange,
)
from idempotent_receiver.protocol.store import READS_A_CALL, WRITES_A_CALL, ActionFailed, TransactionalStore
from idempotent_receiver.protocol.transitions import Claimable, Claimed, OtherPayload, Peek, Settled, Settlement

CLAIMS_A_CALL = WRITES_A_CALL
"""How many claims are a chunk: what goes into one request."""

MOST_CLAIMED_AHEAD = 8 * CLAIMS_A_CALL
"""How many claims may be held or under way without having started: a deadline releases so many, in eight requests."""

MOST_PEEKED = 8 * READS_A_CALL
"""How many items may be read at once: each request takes a thread and a connection."""

LONGEST_WAIT_SECONDS = 0.002
"""How long a settlement may wait for company: less than a round trip, and short against a crash."""


class Exchanges:
    """Asks the store on other threads."""

    def __init__(self, settings: Settings, deadline: Deadline) -> None:
        self._executor = settings.executor
        self._exchange = partial(exchange, store=settings.store, deadline=deadline)

    def start(self, operations: Operations, on_done: Callable[[Operations], None], *, max_retries: int) -> None:
        """Ask for these. What met an error goes on after the others' answers are used."""

        def done(pending: Operations) -> None:
            on_done([operation for operation in operations if operation.answer is not None])
            if pending:
                self.start(pending, on_done, max_retries=max_retries)

        self._executor.start(partial(self._exchange, operations, max_retries=max_retries), done)


class Claims:
    """What of a batch has not been claimed yet, and how many claims were made, how many of them over a worker that had
    never settled.
    """

    def __init__(self, settings: Settings, progress: Progress, deadline: Deadline) -> None:
        self._exchanges = Exchanges(settings, deadline)
        self._progress = progress
        self.unread: list[tuple[int, Item]] = []
        self.unclaimed: list[tuple[int, Item]] = []
        self._peeking = 0
        self.asking = 0
        """For how many items answers are on their way."""
        self.claimed = self.taken_over = 0
        progress.actions |= {Do.LINE_UP: self.line_up, Do.ASK: self._ask}

    def line_up(self, item: Item) -> None:
        """Line an item up, in the batch's order, to be read or claimed as soon as it may be."""
        line = self.unread if isinstance(item.assumed, Unread) else self.unclaimed
        heappush(line, (item.index, item))

    def peek(self) -> None:
        """Read what has been received before: whatever is done already costs one read and no write."""
        while self.unread and self._peeking < MOST_PEEKED and (chunk := _take(self.unread, READS_A_CALL)):
            self._peeking += len(chunk)
            self.asking += len(chunk)
            operations = [Operation(Peek(item.claim), Unread(), item) for item in chunk]
            self._exchanges.start(operations, self._peeked, max_retries=CLAIM_RETRIES)

    def claim(self, ahead: int) -> None:
        """Claim what is next, in the batch's order, unless too much is claimed `ahead` or asked for.

        Nothing is claimed while peeks are out: on a standard queue what has been received most goes first. In this
        order nothing can lock: what is claimed ahead waits only for earlier items, which were asked for first.
        """
        while self.unclaimed and not self.unread and self._peeking == 0:
            if MOST_CLAIMED_AHEAD - ahead - self.asking < min(CLAIMS_A_CALL, len(self.unclaimed)):
                return
            if chunk := _take(self.unclaimed, CLAIMS_A_CALL):
                self._claim(chunk)

    def _claim(self, chunk: Sequence[Item]) -> None:
        self.asking += len(chunk)
        operations = [Operation(item.claim, item.assumed, item) for item in chunk]
        self._exchanges.start(operations, self._answered, max_retries=CLAIM_RETRIES)

    def _ask(self, item: Item) -> None:
        # At once, however much is claimed ahead: what is held may be waiting for this one.
        item.assumed = Unread()
        self._claim([item])

    def _peeked(self, operations: Operations) -> None:
        self._peeking -= len(operations)
        self._answered(operations)

    def _answered(self, operations: Operations) -> None:
        self.asking -= len(operations)
        for operation in operations:
            self._answer(operation.context, operation.answer)
        if (self.unread or self.unclaimed) and _out_of_reach(operations):
            # Asking for the others would only make them wait.
            for item in [*_take(self.unread, len(self.unread)), *_take(self.unclaimed, len(self.unclaimed))]:
                self._answer(item, operations[0].answer)

    def _answer(self, item: Item, answer: Any) -> None:
        """The store answered with `Claimed`, with `Claimable` to a peek, with a `Refusal` or not at all."""
        happens, may_start = self._progress.happens, self._progress.may_start
        match answer:
            case Claimed():
                item.claimed = answer
                self.claimed += 1
                self.taken_over += answer.taken_over
                happens(item, Event.CLAIMED if may_start(item) else Event.CLAIMED_LATE)
            case Claimable(seen) if may_start(item):
                item.assumed = seen
                happens(item, Event.FREE)
            case Claimable():
                happens(item, Event.ANSWERED, outcome.NotStarted())
            case OtherPayload():
                item.failure = outcome.mismatch(answer)
                happens(item, Event.FAILED_FOR_GOOD)
            case _:
                happens(item, Event.ANSWERED, outcome.as_outcome(outcome.of_claim(answer)))


def _out_of_reach(operations: Operations) -> bool:
    """Whether the store answered nothing of a request. One alone that was refused at once may be a fault of its own."""
    answers = [operation.answer for operation in operations]
    return all(isinstance(answer, Unavailable) and (len(answers) > 1 or answer.retry) for answer in answers)


def _take(line: list[tuple[int, Item]], most: int) -> list[Item]:
    """The next items in line that have not ended meanwhile."""
    taken: list[Item] = []
    while line and len(taken) < most:
        _, item = heappop(line)
        if item.stage is Stage.WAITING:
            # The one event that asks for no action, so it need not happen by way of `Progress`.
            item.stage, _ = TABLE[item.stage, Event.ASKS]
            taken.append(item)
    return taken


class Settlements:
    """How claims end, as group commit: settlements that end close together share a request. They wait for a flush, at
    25, 2 ms after the oldest, or in a hurry. A transaction goes alone, and `on_committed` is told when it has ended.
    """

    def __init__(
        self, settings: Settings, progress: Progress, deadline: Deadline, on_committed: Callable[[Item], None]
    ) -> None:
        self._exchanges = Exchanges(settings, deadline)
        self._settings = settings
        self._happens = progress.happens
        self._deadline = deadline
        self._on_committed = on_committed
        self.waiting: list[Operation[Any]] = []
        self.due_seconds: float | None = None
        """When the next flush must leave, in seconds since the invocation's start; None while nothing waits."""
        self.released = 0
        progress.actions |= {
            Do.STORE: self._store,
            Do.COMPLETE: self._complete,
            Do.FAIL: self._fail,
            Do.RELEASE: self._release,
        }

    def flush(self, elapsed_seconds: float, *, hurry: bool) -> None:
        """Send the requests whose time has come; everything in a `hurry`: nothing that could join is under way."""
        anew = elapsed_seconds + LONGEST_WAIT_SECONDS
        due = anew if self.due_seconds is None else self.due_seconds
        overdue = elapsed_seconds >= due
        while self.waiting and (hurry or overdue or len(self.waiting) >= WRITES_A_CALL):
            taken, self.waiting = self.waiting[:WRITES_A_CALL], self.waiting[WRITES_A_CALL:]
            self._exchanges.start(taken, _answered, max_retries=SETTLE_RETRIES)
            due = anew
        self.due_seconds = due if self.waiting else None

    def _add(self, item: Item, settlement: Settlement, on_answer: Callable[[Item, SettleAnswer], None]) -> None:
        self.waiting.append(Operation(settlement, settlement.held, partial(on_answer, item)))

    def _store(self, item: Item) -> None:
        # Before the completion, which then tells where it is: elsewhere, for it may take its time.
        results = self._settings.results
        job, on_done = (
            partial(kept, item.claimed, item.data, self._settings.largest_record_bytes, results),
            self._stored,
        )
        if results is None:
            on_done(item, job())
        else:
            self._settings.executor.start(job, partial(on_done, item))

    def _stored(self, item: Item, data: str | None) -> None:
        item.data = data
        self._happens(item, Event.STORED)

    def _complete(self, item: Item) -> None:
        settlement = transitions.complete(item.claimed, item.data)
        if not item.actions:
            self._add(item, settlement, self._completed)
            return
        store = cast(TransactionalStore, self._settings.store)
        job = partial(commit, settlement, item.actions, store, self._deadline)
        self._settings.executor.start(job, partial(self._committed, item))

    def _committed(self, item: Item, answer: SettleAnswer | ActionFailed) -> None:
        self._on_committed(item)
        refused = outcome.uncommitted(answer, item.actions, with_text=self._settings.error_texts)
        if refused is None:
            self._completed(item, cast(SettleAnswer, answer))
        else:
            item.failure, _ = refused
            self._happens(item, Event.NOT_COMMITTED)

    def _completed(self, item: Item, answer: SettleAnswer) -> None:
        ending = outcome.of_completion(answer, item.claim, self._deadline)
        self._happens(item, Event.SETTLED, outcome.as_outcome(ending))

    def _fail(self, item: Item) -> None:
        failure = item.failure
        self._add(item, transitions.fail(item.claimed, failure.to_json(), started=failure.started), self._failed)

    def _failed(self, item: Item, answer: SettleAnswer) -> None:
        item.recorded = isinstance(answer, Settled)
        if item.recorded and item.failure.permanent:
            self._happens(item, Event.FAILED_FOR_GOOD)
        else:
            ending = outcome.of_failure(answer, item.failure, item.claim, self._deadline)
            self._happens(item, Event.SETTLED, outcome.as_outcome(ending))

    def _release(self, item: Item) -> None:
        self._add(item, transitions.release(item.claimed, self._deadline.now_ms), self._released)

    def _released(self, item: Item, answer: SettleAnswer) -> None:
        self.released += isinstance(answer, Settled)
        ending = outcome.of_release(answer, item.claim, self._deadline)
        self._happens(item, Event.SETTLED, outcome.as_outcome(ending))


def _answered(operations: Operations) -> None:
    for operation in operations:
        operation.context(operation.answer)
