"""Dead letters on their way: a few at once, and none that could not be confirmed in time."""

from collections import deque
from collections.abc import Callable
from functools import partial

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.batch.items import Do, Event, Item
from idempotent_receiver.batch.progress import Progress
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import DeadLettered

SendDeadLetter = Callable[[int, Failure], bool]
"""Sends a dead letter for the work of an index, and says whether it is confirmed."""

MOST_SENDING = 16
"""How many dead letters may be on their way at once: each takes a thread and a connection."""


class DeadLetters:
    """The dead letters that wait to be sent, in a batch that has somewhere to send them."""

    def __init__(self, executor: Executor, send: SendDeadLetter, progress: Progress) -> None:
        self._executor = executor
        self._send = send
        self._progress = progress
        self._waiting: deque[Item] = deque()
        self._sending = 0
        progress.actions[Do.SEND] = self._add

    def send(self, *, late: bool) -> None:
        """Send what waits, unless it is too late for that."""
        while self._waiting and self._sending < MOST_SENDING:
            item = self._waiting.popleft()
            if late:
                self._progress.not_sent(item)
                continue
            self._sending += 1
            self._executor.start(partial(self._send, item.index, item.failure), partial(self._sent, item))

    def _add(self, item: Item) -> None:
        if item.failure.permanent:
            self._waiting.append(item)
        else:
            self._progress.not_sent(item)

    def _sent(self, item: Item, confirmed: bool) -> None:  # positional: the executor passes what the job returned
        self._sending -= 1
        if confirmed:
            self._progress.happens(item, Event.SENT, DeadLettered(item.failure))
        else:
            self._progress.not_sent(item)
