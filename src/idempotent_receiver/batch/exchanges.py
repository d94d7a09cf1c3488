"""What a batch asks of its store before the handlers: peeks and claims, in chunks ahead of them.

The store is asked on other threads. Each of its answers is an event of the table in `items.py`, by way of
`handler/outcome.py` where it ends the item.
"""

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any

from idempotent_receiver.batch.items import TABLE, Do, Event, Item, Stage
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler import outcome
from idempotent_receiver.protocol.exchange import (
    CLAIM_RETRIES,
    Operation,
    Operations,
    Unavailable,
    Unread,
    exchange,
)
from idempotent_receiver.protocol.store import READS_A_CALL, WRITES_A_CALL
from idempotent_receiver.protocol.transitions import Claimable, Claimed, OtherPayload, Peek

CLAIMS_A_CALL = WRITES_A_CALL
"""How many claims are a chunk: what goes into one request."""

MOST_CLAIMED_AHEAD = 8 * CLAIMS_A_CALL
"""How many claims may be held or under way without having started: a deadline releases so many, in eight requests."""

MOST_PEEKED = 8 * READS_A_CALL
"""How many items may be read at once: each request takes a thread and a connection."""


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
        self._claiming = settings.claiming
        self._host = settings.host
        self._deadline = deadline
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
            self._peek(chunk)

    def _peek(self, chunk: Sequence[Item]) -> None:
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
            if not self._claiming:
                self._begin_unclaimed()
            elif MOST_CLAIMED_AHEAD - ahead - self.asking < min(CLAIMS_A_CALL, len(self.unclaimed)):
                return
            elif chunk := _take(self.unclaimed, CLAIMS_A_CALL):
                self._claim(chunk)

    def _begin_unclaimed(self) -> None:
        chunk = _take(self.unclaimed, len(self.unclaimed))
        now_ms, versions = self._deadline.now_ms, self._deadline.clock.versions(len(chunk))
        for item, version in zip(chunk, versions, strict=True):
            item.claimed = item.claim.unwritten(item.assumed, now_ms, version)  # type: ignore[arg-type]  # it was read
            self._progress.happens(item, Event.CLAIMED)

    def _claim(self, chunk: Sequence[Item]) -> None:
        self.asking += len(chunk)
        if self._host is not None:
            self._host.claiming([item.claim.id for item in chunk])
        operations = [Operation(item.claim, item.assumed, item) for item in chunk]
        self._exchanges.start(operations, self._answered, max_retries=CLAIM_RETRIES)

    def _ask(self, item: Item) -> None:
        # At once, however much is claimed ahead: what is held may be waiting for this one.
        item.assumed = Unread()
        self._claim([item]) if self._claiming else self._peek([item])

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
        happens, may_start, host = self._progress.happens, self._progress.may_start, self._host
        if host is not None and not isinstance(answer, Claimed):
            host.not_claimed(item.claim.id)
        match answer:
            case Claimed():
                item.claimed = answer if host is None else host.claimed(answer)
                self.claimed += 1
                self.taken_over += answer.taken_over
                happens(item, Event.CLAIMED if may_start(item) else Event.CLAIMED_LATE)
            case Claimable(seen) if may_start(item):
                item.assumed = seen
                happens(item, Event.FREE)
            case Claimable():
                happens(item, Event.ANSWERED, self._progress.unstarted())
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
