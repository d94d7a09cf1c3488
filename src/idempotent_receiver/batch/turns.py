"""The turns that a batch's transactions take at the items that they write, and how many runs wait for theirs.

Two transactions on one item at the same time would conflict, so they go one after the other. What has run must be
committed before the deadline, so whatever waits for its turn counts against what may be started.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.store import WRITES_A_COMMIT
from idempotent_receiver.protocol.transaction import Action, ActionItem, Items

MOST_UNCOMMITTED = 4 * WRITES_A_COMMIT // 2
"""How many runs may have ended without being committed before another one starts: four requests, if each has one write
of its own.
"""

FIRST_SECONDS = 0.1
"""How long a turn is taken to last before one has ended."""


@dataclass(frozen=True, slots=True)
class _Turn:
    index: int
    items: tuple[ActionItem, ...]
    begin: Callable[[], None]


class Turns:
    """Who has a turn at its items, and who waits: a transaction enters when all of them are free. A run is known by its
    index.

    `enter` and `leave` are for the batch's own thread, the others for worker threads, too.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._items = Items()
        self._waiting: dict[ActionItem, deque[_Turn]] = {}
        """Who waits for each item that is not free."""
        self._begun: dict[int, tuple[_Turn, float]] = {}
        """The turns that have begun, and when."""
        self._uncommitted: set[int] = set()
        self._longest_seconds = FIRST_SECONDS
        """The longest turn lately: it counts a quarter less with each one that ends."""

    def ran(self, index: int) -> None:
        """A run has ended and wants a transaction."""
        self._uncommitted.add(index)

    @property
    def wait_seconds(self) -> float:
        """How long those that wait may take, if they are all on one item; for ever where too many are uncommitted."""
        uncommitted = len(self._uncommitted)
        return inf if uncommitted >= MOST_UNCOMMITTED else (uncommitted - len(self._begun)) * self._longest_seconds

    def enter(self, index: int, actions: Sequence[Action], begin: Callable[[], None]) -> None:
        """Let a run's transaction `begin`, now or when its turn has come."""
        self._enter(_Turn(index, tuple(dict.fromkeys(self._items.of(actions))), begin))

    def leave(self, index: int) -> None:
        """The transaction of a run has ended."""
        turn, began_seconds = self._begun.pop(index)
        self._uncommitted.discard(index)
        self._longest_seconds = max(self._deadline.elapsed_seconds - began_seconds, self._longest_seconds * 3 / 4)
        for item in turn.items:
            waiting = self._waiting.pop(item, None)
            while waiting:
                self._enter(waiting.popleft())
                if (joined := self._waiting.get(item)) is not None:
                    joined.extend(waiting)
                    break

    def _enter(self, turn: _Turn) -> None:
        for item in turn.items:
            if item in self._waiting:
                self._waiting[item].append(turn)
                return
        self._waiting |= {item: deque() for item in turn.items if item is not None}
        self._begun[turn.index] = turn, self._deadline.elapsed_seconds
        turn.begin()
