"""Dead letters on their way: a few at once, and none that could not be confirmed in time."""

from collections import deque
from collections.abc import Callable
from functools import partial

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.batch.items import Item
from idempotent_receiver.errors import Failure

SendDeadLetter = Callable[[int, Failure], bool]
"""Sends a dead letter for the work of an index, and says whether it is confirmed."""

MOST_SENDING = 16
"""How many dead letters may be on their way at once: each takes a thread and a connection."""


class DeadLetters:
    """The dead letters that wait to be sent: a few at once, and none that could not be confirmed in time."""

    def __init__(self, executor: Executor, send: SendDeadLetter, on_sent: Callable[[Item, bool], None]) -> None:
        self._executor = executor
        self._send = send
        self._on_sent = on_sent
        self._waiting: deque[tuple[Item, Failure]] = deque()
        self._sending = 0

    def add(self, item: Item, failure: Failure) -> None:
        """Let an item's dead letter wait."""
        self._waiting.append((item, failure))

    def send(self, *, late: bool) -> None:
        """Send what waits, unless it is too late for that."""
        while self._waiting and self._sending < MOST_SENDING:
            item, failure = self._waiting.popleft()
            if late:
                self._on_sent(item, False)
                continue
            self._sending += 1
            self._executor.start(partial(self._send, item.index, failure), partial(self._sent, item))

    def _sent(self, item: Item, confirmed: bool) -> None:  # positional: the executor passes what the job returned
        self._sending -= 1
        self._on_sent(item, confirmed)
