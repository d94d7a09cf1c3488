"""The items that have crashed before. Each is claimed and run alone, so that its next crash is its own.

They wait until nothing else in the batch is under way, and then go one after the other: so what has never crashed is
settled before one of them may kill the process. What is behind one in its group waits unclaimed until it has ended.
"""

from collections.abc import Sequence

from idempotent_receiver.batch.items import Item, Stage
from idempotent_receiver.batch.progress import Order

IDLE = (Stage.WAITING, Stage.KEYLESS, Stage.ENDED)
"""The stages of items for which nothing is under way. A key that is being made may run the user's own code."""


class Apart:
    """The items to be claimed alone, in batch order, and those behind them in their groups."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._items: list[Item] = []
        self._behind: list[Item] = []
        self._sole: Item | None = None
        """The item that was claimed alone last."""

    def __bool__(self) -> bool:
        return self._sole is not None or len(self._items) > 0

    @property
    def busy(self) -> bool:
        """Whether an item is claimed alone, so that nothing else may be claimed."""
        return self._sole is not None and self._sole.stage not in IDLE

    def add(self, item: Item) -> None:
        """Set an item apart."""
        self._items.append(item)
        self._items.sort(key=lambda each: each.index)

    def holds_up(self, item: Item) -> bool:
        """Whether an item must wait, because one ahead of it in its group is set apart. If so, keep it."""
        group = item.work.group
        waits = group is not None and any(each.work.group == group and each.index < item.index for each in self._items)
        if waits:
            self._behind.append(item)
        return waits

    def next(self) -> Item | None:
        """The next item to claim alone, if nothing else is under way and nothing in its group is ahead of it. What is
        claimed already waits behind one of these in its group, and runs only after it.
        """
        if any(item.stage not in (*IDLE, Stage.HELD) for item in self._order.items):
            return None
        for item in self._items:
            if item.stage is Stage.WAITING and (item.work.group is None or self._order.has_turn(item)):
                self._items.remove(item)
                self._sole = item
                return item
        return None

    def freed(self) -> Sequence[Item]:
        """The items that waited behind one that is no longer set apart."""
        if self.busy:
            return []
        self._sole = None
        behind, self._behind = self._behind, []
        return [item for item in behind if not self.holds_up(item)]

    def clear(self) -> Sequence[Item]:
        """Remove all items."""
        items, self._items, self._behind = [*self._items, *self._behind], [], []
        return items
