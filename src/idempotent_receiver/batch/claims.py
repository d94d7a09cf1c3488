"""Asking the store for a batch's keys: what may be known is read first, then claims go out in chunks, ahead of the
handlers.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from idempotent_receiver.batch.items import TABLE, Event, Item, Stage
from idempotent_receiver.protocol.exchange import (
    CLAIM_RETRIES,
    Operation,
    Operations,
    StartExchange,
    Unavailable,
    Unread,
)
from idempotent_receiver.protocol.store import READS_A_CALL, WRITES_A_CALL
from idempotent_receiver.protocol.transitions import Peek

MOST_CLAIMED_AHEAD = 8 * WRITES_A_CALL
"""How many claims may be held or under way without having started: a deadline releases so many, in eight requests."""

MOST_PEEKED = 8 * READS_A_CALL
"""How many items may be read at once: each request takes a thread and a connection."""

OnAnswer = Callable[[Item, Any], None]
"""What is called with an item and `Claimed`, `Claimable` from a peek, a `Refusal`, or `Unavailable`."""


class Claims:
    """What of a batch has not been claimed yet. `on_answer` is called for every item with what the store said."""

    def __init__(self, start_exchange: StartExchange, on_answer: OnAnswer) -> None:
        self._start_exchange = start_exchange
        self._on_answer = on_answer
        self.unread: list[tuple[int, Item]] = []
        self.unclaimed: list[tuple[int, Item]] = []
        self._peeking = self._claiming = 0

    @property
    def asking(self) -> int:
        """For how many items answers are on their way."""
        return self._peeking + self._claiming

    def line_up(self, item: Item) -> None:
        """Line an item up, in the batch's order, to be read or claimed as soon as it may be."""
        line = self.unread if isinstance(item.assumed, Unread) else self.unclaimed
        heappush(line, (item.index, item))

    def peek(self) -> None:
        """Read what has been received before: whatever is done already costs one read and no write."""
        while self.unread and self._peeking < MOST_PEEKED and (chunk := _take(self.unread, READS_A_CALL)):
            self._peeking += len(chunk)
            operations = [Operation(Peek(item.claim), Unread(), item) for item in chunk]
            self._start_exchange(operations, self._peeked, CLAIM_RETRIES)

    def claim(self, ahead: int) -> None:
        """Claim what is next, in the batch's order, unless too much is claimed `ahead` or asked for.

        Nothing is claimed while peeks are out: on a standard queue what has been received most goes first. In this
        order nothing can lock: what is claimed ahead waits only for earlier items, which were asked for first.
        """
        while self.unclaimed and not self.unread and self._peeking == 0:
            if MOST_CLAIMED_AHEAD - ahead - self._claiming < min(WRITES_A_CALL, len(self.unclaimed)):
                return
            if chunk := _take(self.unclaimed, WRITES_A_CALL):
                self.claim_now(chunk)

    def claim_now(self, chunk: Sequence[Item]) -> None:
        """Claim these, which have been taken out of line, in one request, however much is claimed ahead."""
        self._claiming += len(chunk)
        self._start_exchange(
            [Operation(item.claim, item.assumed, item) for item in chunk], self._claimed, CLAIM_RETRIES
        )

    def _peeked(self, operations: Operations) -> None:
        self._peeking -= len(operations)
        self._answer(operations)

    def _claimed(self, operations: Operations) -> None:
        self._claiming -= len(operations)
        self._answer(operations)

    def _answer(self, operations: Operations) -> None:
        for operation in operations:
            self._on_answer(operation.context, operation.answer)
        if (self.unread or self.unclaimed) and _out_of_reach(operations):
            # Asking for the others would only make them wait.
            for item in [*_take(self.unread, len(self.unread)), *_take(self.unclaimed, len(self.unclaimed))]:
                self._on_answer(item, operations[0].answer)


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
