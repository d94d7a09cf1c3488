"""The turns that a batch's transactions take at the items that they write, and how many runs wait for theirs.

Two transactions on one item at the same time would conflict, so they go one after the other. What has run must be
committed before the deadline, so whatever waits for its turn counts against what may be started.
"""

from collections import deque
from collections.abc import Callable, Sequence
from math import inf

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.store import WRITES_A_COMMIT
from idempotent_receiver.protocol.transaction import ActionItem

MOST_UNCOMMITTED = 4 * WRITES_A_COMMIT // 2
"""How many runs may have ended without being committed before another one starts: four requests, if each has one write
of its own.
"""

FIRST_SECONDS = 0.1
"""How long a turn is taken to last before one has ended."""


class Turns:
    """Who has a turn at its items, and who waits: a transaction enters when all of them are free.

    `enter` and `leave` are for the batch's own thread, the others for worker threads, too.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._waiting: dict[ActionItem, deque[tuple[Callable[[], None], Sequence[ActionItem]]]] = {}
        """Who waits for each item that is not free."""
        self._began: dict[ActionItem, float] = {}
        """When the turns began, by their first items."""
        self._uncommitted: set[int] = set()
        self._under_way = 0
        self._longest_seconds = FIRST_SECONDS
        """The longest turn lately: it counts a quarter less with each one that ends."""

    def ran(self, index: int) -> None:
        """A run with this index has ended and wants a transaction."""
        self._uncommitted.add(index)

    @property
    def wait_seconds(self) -> float:
        """How long those that wait may take, if they are all on one item; for ever where too many are uncommitted."""
        uncommitted = len(self._uncommitted)
        return inf if uncommitted >= MOST_UNCOMMITTED else (uncommitted - self._under_way) * self._longest_seconds

    def enter(self, begin: Callable[[], None], items: Sequence[ActionItem]) -> None:
        """Let a transaction on these items `begin`, now or when its turn has come."""
        for item in items:
            if item in self._waiting:
                self._waiting[item].append((begin, items))
                return
        self._waiting |= {item: deque() for item in items if item is not None}
        self._under_way += 1
        self._began[items[0]] = self._deadline.elapsed_seconds
        begin()

    def leave(self, index: int, items: Sequence[ActionItem]) -> None:
        """The transaction of the run with this index, on these items, has ended."""
        self._uncommitted.discard(index)
        self._under_way -= 1
        now = self._deadline.elapsed_seconds
        self._longest_seconds = max(now - self._began.pop(items[0], now), self._longest_seconds * 3 / 4)
        for item in items:
            waiting = self._waiting.pop(item, None)
            while waiting:
                self.enter(*waiting.popleft())
                if (joined := self._waiting.get(item)) is not None:
                    joined.extend(waiting)
                    break
