"""Turns for transactions on the same items, and a limit on the runs that wait for a turn.

Two concurrent transactions on one item would conflict, so they are sent one after the other; only transactions in one
request may share a check of an item. A finished run must be committed before the deadline, so waiting transactions
limit how many runs may start.

A turn also detects that a commit in this batch has changed data that its run had read. The handler then runs again
within its turn, while no other commit in this batch can change the data.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.store import WRITES_A_COMMIT
from idempotent_receiver.transaction.action import Action, ActionItem, Items
from idempotent_receiver.transaction.reads import Read

MOST_UNCOMMITTED = 4 * WRITES_A_COMMIT // 2
"""With this many finished, uncommitted runs, no other run starts: four requests if each handler writes once."""

FIRST_SECONDS = 0.1
"""The assumed length of a turn until one has ended."""

Begin = Callable[[int | None], None]
"""Called when a turn begins, with the index of an action whose read is already stale, if any."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """`actions` pairs each of the transaction's actions with its item. `items` maps each item to its condition if it is
    only checked, otherwise to None.
    """

    index: int
    actions: Sequence[tuple[Action, ActionItem]]
    items: Mapping[ActionItem, str | None]
    since: int
    begin: Begin


@dataclass(slots=True)
class _Busy:
    """An item in use, and the turns that wait for it. Turns that check the item with the same `condition` share it
    until their request is sent or full.
    """

    condition: str | None
    users: int = 0
    closed: bool = False
    waiting: deque[_Turn] = field(default_factory=deque)

    def admits(self, condition: str | None) -> bool:
        """Whether one more turn, with this condition, may use the item now."""
        shared = condition is not None and condition == self.condition
        return shared and not self.closed and not self.waiting and self.users < WRITES_A_COMMIT - 1


class Turns:
    """The current and waiting turns on items. A transaction's turn begins when all its items are free. A run is
    identified by its index.

    Call `enter`, `leave` and `close` on the batch's own thread; worker threads may use the rest.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._items = Items()
        self._busy: dict[ActionItem, _Busy] = {}
        self._begun: dict[int, tuple[Mapping[ActionItem, str | None], _Turn, float]] = {}
        """The turns in progress: the items that each one uses, its transaction, and its start time."""
        self._uncommitted: set[int] = set()
        self._longest_seconds = FIRST_SECONDS
        """The longest recent turn: its weight drops by a quarter with each turn that ends."""
        self.writes = 0
        """The number of commits with writes that have taken effect."""
        self._written: dict[ActionItem, list[tuple[int, frozenset[str] | None]]] = {}
        """For each item, the commits that wrote it: the value of `writes` after the commit, and the attributes that may
        have changed (None: all).
        """

    def ran(self, index: int) -> None:
        """A run has ended and needs a transaction."""
        self._uncommitted.add(index)

    @property
    def wait_seconds(self) -> float:
        """Seconds that waiting transactions take if all are on one item; infinite if too many runs are uncommitted."""
        uncommitted = len(self._uncommitted)
        return inf if uncommitted >= MOST_UNCOMMITTED else (uncommitted - len(self._begun)) * self._longest_seconds

    def enter(self, index: int, actions: Sequence[Action], begin: Begin, since: int) -> None:
        """Call `begin` for a run's transaction, now or when its turn comes. The run began after `since` writes."""
        items = self._items.of(actions)
        conditions = [repr(one.arguments) if one.kind == "ConditionCheck" else None for one in actions]
        placed = list(zip(actions, items, strict=True))
        turn = _Turn(index, placed, dict(zip(items, conditions, strict=True)), since, begin)
        if index not in self._begun:
            self._enter(turn)
        elif self._keeps(turn):
            # The handler has run again within its turn.
            used, _, began_seconds = self._begun[index]
            self._begun[index] = used, turn, began_seconds
            begin(self._stale(turn))
        else:
            self.leave(index, applied=False)
            self._uncommitted.add(index)
            self._enter(turn)

    def _keeps(self, turn: _Turn) -> bool:
        """Whether a turn in progress may continue with this transaction: it must have no items beyond the turn's, and
        the same conditions on shared ones. Otherwise, transactions could change data that others have read.
        """
        used, _, _ = self._begun[turn.index]
        if not turn.items.keys() <= used.keys():
            return False
        for item, condition in turn.items.items():
            if (busy := self._busy.get(item)) is not None and condition != busy.condition:
                if busy.users > 1:
                    return False
                busy.condition = condition
        return True

    def close(self) -> None:
        """Keep later turns from sharing the checks of the current request, which is about to be sent."""
        for busy in self._busy.values():
            busy.closed = True

    def leave(self, index: int, *, applied: bool) -> None:
        """A run's transaction has ended. It has taken effect if `applied`."""
        used, turn, began_seconds = self._begun.pop(index)
        self._uncommitted.discard(index)
        self._longest_seconds = max(self._deadline.elapsed_seconds - began_seconds, self._longest_seconds * 3 / 4)
        written = [(action, item) for action, item in turn.actions if action.kind != "ConditionCheck"]
        if applied and written:
            self.writes += 1
            for action, item in written:
                if item is not None:
                    self._written.setdefault(item, []).append((self.writes, action.changes))
        for item in used:
            if (busy := self._busy.get(item)) is not None:
                busy.users -= 1
                if busy.users == 0:
                    del self._busy[item]
                    self._pass_on(item, busy.waiting)

    def _pass_on(self, item: ActionItem, waiting: deque[_Turn]) -> None:
        while waiting:
            self._enter(waiting.popleft())
            busy = self._busy.get(item)
            if busy is not None and waiting and not busy.admits(waiting[0].items[item]):
                busy.waiting.extend(waiting)
                return

    def _enter(self, turn: _Turn) -> None:
        for item, condition in turn.items.items():
            busy = self._busy.get(item)
            if busy is not None and not busy.admits(condition):
                busy.waiting.append(turn)
                return
        for item, condition in turn.items.items():
            if item is not None:
                if item not in self._busy:
                    self._busy[item] = _Busy(condition)
                self._busy[item].users += 1
        self._begun[turn.index] = turn.items, turn, self._deadline.elapsed_seconds
        turn.begin(self._stale(turn))

    def _stale(self, turn: _Turn) -> int | None:
        """The index of the first action whose item was read and may have been changed by this batch since the run
        began.
        """
        for number, (action, item) in enumerate(turn.actions):
            if action.read is not None and self._is_stale(action.read, item, turn.since):
                return number
        return None

    def _is_stale(self, read: Read, item: ActionItem, since: int) -> bool:
        for count, changed in reversed(self._written.get(item, ())):
            if count <= since:
                return False
            if read.item is None or changed is None or not changed.isdisjoint(read.names):
                return True
        return False
