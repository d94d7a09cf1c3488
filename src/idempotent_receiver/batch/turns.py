"""Turns for transactions that write the same items, and the number of runs waiting for theirs.

Two concurrent transactions on one item would conflict, so they go one after the other. A finished run must be committed
before the deadline, so waiting transactions limit what may start.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.store import WRITES_A_COMMIT
from idempotent_receiver.protocol.transaction import Action, ActionItem, Items

MOST_UNCOMMITTED = 4 * WRITES_A_COMMIT // 2
"""How many finished runs may be uncommitted before another starts: four requests, if each run has one write of
its own.
"""

FIRST_SECONDS = 0.1
"""The assumed length of a turn until one has ended."""


@dataclass(frozen=True, slots=True)
class _Turn:
    index: int
    items: tuple[ActionItem, ...]
    begin: Callable[[], None]


class Turns:
    """The turns at items, current and waiting. A transaction enters when all its items are free. A run is identified by
    its index.

    Call `enter` and `leave` on the batch's own thread; worker threads may call the others.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._items = Items()
        self._waiting: dict[ActionItem, deque[_Turn]] = {}
        """The runs that wait for each busy item."""
        self._begun: dict[int, tuple[_Turn, float]] = {}
        """The turns in progress, and when they began."""
        self._uncommitted: set[int] = set()
        self._longest_seconds = FIRST_SECONDS
        """The longest recent turn: its weight drops by a quarter with each turn that ends."""

    def ran(self, index: int) -> None:
        """A run has ended and needs a transaction."""
        self._uncommitted.add(index)

    @property
    def wait_seconds(self) -> float:
        """How long the waiting transactions may take if all are on one item; infinite if too many are uncommitted."""
        uncommitted = len(self._uncommitted)
        return inf if uncommitted >= MOST_UNCOMMITTED else (uncommitted - len(self._begun)) * self._longest_seconds

    def enter(self, index: int, actions: Sequence[Action], begin: Callable[[], None]) -> None:
        """Call `begin` for a run's transaction, now or when its turn comes."""
        self._enter(_Turn(index, tuple(dict.fromkeys(self._items.of(actions))), begin))

    def leave(self, index: int) -> None:
        """A run's transaction has ended."""
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
