"""Asking the store for a batch's claims: what may be known is read first, then claims go out in chunks, ahead of the
handlers but never far.
"""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any

from idempotent_receiver.batch.items import Item, Stage
from idempotent_receiver.protocol.exchange import CLAIM_PATIENCE, Ask, Operation, Operations, Unavailable, Unread
from idempotent_receiver.protocol.store import READS_A_CALL, WRITES_A_CALL
from idempotent_receiver.protocol.transitions import Peek

MOST_CLAIMED_AHEAD = 2 * WRITES_A_CALL
"""How many claims may be held or under way without having started: what a slow batch gives back at its deadline."""

MOST_CLAIMED_AHEAD_OF_QUICK = 4 * WRITES_A_CALL
"""The same where handlers are quick, and would wait for claims; if they turn slow, the rest is given back early."""

MOST_LOOKED_AT = 8 * READS_A_CALL
"""How many items may be looked at at once: each request takes a thread and a connection."""

Answered = Callable[[Item, Any], None]
"""What is told of an item: `Claimed`, `Claimable` from a look, a `Refusal`, or `Unavailable`."""


class Claiming:
    """What of a batch has not been claimed yet. `answered` is told of every item what the store said."""

    def __init__(self, ask: Ask, answered: Answered) -> None:
        self._ask = ask
        self._answered = answered
        self._unlooked: list[tuple[int, Item]] = []
        self._unclaimed: list[tuple[int, Item]] = []
        self._looking = self._asking = 0

    @property
    def busy(self) -> bool:
        """Whether answers are on their way."""
        return self._looking > 0 or self._asking > 0

    def want(self, item: Item) -> None:
        """Line an item up, in the batch's order, to be looked at or claimed as soon as it may be."""
        item.stage = Stage.WAITING
        line = self._unlooked if isinstance(item.assumed, Unread) else self._unclaimed
        heappush(line, (item.index, item))

    def look(self) -> None:
        """Read what has been received before: whatever is done already costs one read and no write."""
        while self._looking < MOST_LOOKED_AT and (chunk := _take(self._unlooked, READS_A_CALL)):
            self._looking += len(chunk)
            self._ask([Operation(Peek(item.claim), Unread(), item) for item in chunk], self._looked, CLAIM_PATIENCE)

    def claim(self, held: int, most: int, *, idle: bool) -> None:
        """Claim what is next, while no more than `most` are `held` or asked for. What has been received most goes
        first, so nothing is claimed while looks are out. Handlers that are `idle` may be waiting for just what is next,
        whatever is held.
        """
        while self._unclaimed and not self._unlooked and self._looking == 0:
            room = most - held - self._asking >= min(WRITES_A_CALL, len(self._unclaimed))
            if not room and not (idle and self._asking == 0):
                break
            chunk = _take(self._unclaimed, WRITES_A_CALL)
            if chunk:
                self.claim_now(chunk)

    def claim_now(self, chunk: Sequence[Item]) -> None:
        """Claim these in one request, however much is claimed ahead."""
        self._asking += len(chunk)
        for item in chunk:
            item.stage = Stage.CLAIMING
        self._ask([Operation(item.claim, item.assumed, item) for item in chunk], self._claimed, CLAIM_PATIENCE)

    def _looked(self, courses: Operations) -> None:
        self._looking -= len(courses)
        self._tell(courses)

    def _claimed(self, courses: Operations) -> None:
        self._asking -= len(courses)
        self._tell(courses)

    def _tell(self, courses: Operations) -> None:
        for course in courses:
            self._answered(course.about, course.answer)
        answers = [course.answer for course in courses]
        if _out_of_reach(answers):
            # Asking for the others would only make them wait.
            unasked = [*_take(self._unlooked, len(self._unlooked)), *_take(self._unclaimed, len(self._unclaimed))]
            for item in unasked:
                self._answered(item, answers[0])


def _out_of_reach(answers: Sequence[Any]) -> bool:
    """Whether the store answered nothing of a request. One alone that was refused at once may be its own trouble."""
    if not all(isinstance(answer, Unavailable) for answer in answers):
        return False
    return len(answers) > 1 or bool(answers[0].retry)


def _take(line: list[tuple[int, Item]], most: int) -> list[Item]:
    """The next items in line that have not ended meanwhile."""
    taken: list[Item] = []
    while line and len(taken) < most:
        _, item = heappop(line)
        if item.outcome is None and item.stage is Stage.WAITING:
            item.stage = Stage.CLAIMING
            taken.append(item)
    return taken
