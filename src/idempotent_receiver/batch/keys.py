"""Makes the keys of a batch's messages where that is the user's own code: each a job, and a few at once.

A key that takes long, or is never made, holds up no message but its own and, on a FIFO queue, those behind it in its
group.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import cast

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.batch.items import Event, Item, MakeClaim, Stage
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.errors import Failure
from idempotent_receiver.protocol.transitions import Claim

OnKeys = Callable[[Sequence[tuple[int, str]]], None]

MOST_KEYING = 16
"""Maximum keys made at once: each takes a thread."""

KEYS_LINGER_SECONDS = 0.002
"""How long a message with a key waits for others to share its request."""


class Keys:
    """The items whose keys are still to be made. `on_keys` are called with the index and the record id of each item."""

    def __init__(self, executor: Executor, progress: Progress, on_keys: Iterable[OnKeys]) -> None:
        self._executor = executor
        self._progress = progress
        self._on_keys = tuple(on_keys)
        self._waiting: deque[Item] = deque()
        self._making = 0
        self._made: dict[int, tuple[str, Claim | Failure]] = {}
        """The keys that wait for an earlier one in their FIFO group, by index."""
        self.due_seconds: float | None = None
        """When the messages keyed so far stop waiting for others; None if none waits."""

    def begin(self) -> None:
        """Queue the items without a key, and report the others."""
        items = self._progress.order.items
        self._waiting.extend(item for item in items if item.stage is Stage.UNKEYED)
        self._known([item for item in items if isinstance(item.work.claim, Claim)])

    def start(self) -> None:
        """Start as many jobs as may run at once."""
        while self._waiting and self._making < MOST_KEYING:
            item = self._waiting.popleft()
            if item.stage is Stage.UNKEYED:
                self._making += 1
                self._executor.start(cast(MakeClaim, item.work.claim), partial(self._done, item))

    def lingers(self, elapsed_seconds: float, *, waiting: bool) -> bool:
        """Whether messages with keys, if any are `waiting`, should wait a little for keys that are being made."""
        if not waiting or self._making == 0:
            self.due_seconds = None
            return False
        if self.due_seconds is None:
            self.due_seconds = elapsed_seconds + KEYS_LINGER_SECONDS
        if elapsed_seconds >= self.due_seconds:
            self.due_seconds = None
        return self.due_seconds is not None

    def _done(self, item: Item, made: tuple[str, Claim | Failure]) -> None:
        self._making -= 1
        self._made[item.index] = made
        for each in self._progress.order.line(item):
            if each.stage is Stage.UNKEYED:
                if each.index not in self._made:
                    return
                self._apply(each, *self._made.pop(each.index))

    def _apply(self, item: Item, key: str, claim: Claim | Failure) -> None:
        item.work = item.work._replace(key=key, claim=claim)
        if isinstance(claim, Failure):
            item.failure = claim
            self._progress.happens(item, Event.UNUSABLE)
            return
        item.claim = claim
        self._known([item])
        self._progress.happens(item, Event.KEYED if self._progress.order.leads(item) else Event.FOLLOWS)

    def _known(self, items: Sequence[Item]) -> None:
        for tell in self._on_keys:
            tell([(item.index, item.claim.id) for item in items])
