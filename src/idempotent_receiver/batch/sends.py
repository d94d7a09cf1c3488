"""Sends the messages in a batch's records, ten per request, once the handlers' effects are committed.

Messages in one FIFO group are sent one at a time, each after the previous one is confirmed, because SQS may refuse one
message in a request and accept the next.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from idempotent_receiver.batch.items import Event, Item, Stage
from idempotent_receiver.batch.progress import NOT_SENT, Progress
from idempotent_receiver.batch.settings import SendAnswer, Settings
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import SettleFailed
from idempotent_receiver.protocol.outbox import Outgoing, from_text
from idempotent_receiver.protocol.record import idempotency_key

SENDS_A_CALL = 10
"""Messages per request: SQS's limit. Ten records' messages stay far below SQS's other limit, 1 MiB per request."""

SEND_LINGER_SECONDS = 0.01
"""Maximum seconds that a message waits for others while handlers still run. This is longer than for a settlement,
because any worker that finds a committed message sends it.
"""

MOST_REQUESTS = 16
"""Maximum requests in progress: each takes a thread and a connection."""

MOST_TRIES = 3
"""Maximum number of times that one batch sends a message that SQS could not accept."""


@dataclass(slots=True, eq=False)
class _Entry:
    item: Item
    key: str
    message: Outgoing
    tries: int = 0

    @property
    def group(self) -> str | None:
        return self.message.arguments["MessageGroupId"] if self.message.fifo else None


class _Queue:
    """A queue's waiting messages by FIFO group (None: unordered), and the groups with a message in progress."""

    def __init__(self) -> None:
        self.lines: dict[str | None, deque[_Entry]] = {}
        self.waiting = 0
        self.busy: set[str | None] = set()
        self.refusal: str | None = None
        """Why the queue accepts no messages at all."""

    def add(self, entry: _Entry, *, first: bool = False) -> None:
        """Add a message behind all others in its group, or before them if it goes `first`."""
        line = self.lines.setdefault(entry.group, deque())
        (line.appendleft if first else line.append)(entry)
        self.waiting += 1

    def take(self) -> list[_Entry]:
        """The next request's messages, in order. Groups with a message in progress are skipped."""
        taken: list[_Entry] = []
        for group in [group for group in self.lines if group not in self.busy]:
            line = self.lines[group]
            while line and len(taken) < SENDS_A_CALL and group not in self.busy:
                entry = line.popleft()
                self.waiting -= 1
                if entry.item.stage is Stage.UNSENT:  # else an earlier message of its record was not sent
                    taken.append(entry)
                    self.busy |= set() if group is None else {group}
            if not line:
                del self.lines[group]
            if len(taken) == SENDS_A_CALL:
                break
        return taken

    def clear(self) -> Iterator[_Entry]:
        """Remove all waiting messages without sending them."""
        lines, self.lines, self.waiting = self.lines, {}, 0
        return chain.from_iterable(lines.values())


class Sends:
    """The messages to send by queue, and the number of unanswered messages for each item."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._send = settings.send_messages
        self._executor = settings.executor
        self._progress = progress
        self._queues: dict[str, _Queue] = {}
        self.unanswered: dict[Item, int] = {}
        """The number of each item's messages that are waiting or in progress."""
        self._refused: set[Item] = set()
        self._calls = 0
        self.due_seconds: float | None = None
        """When the next request must be sent, in seconds since the invocation's start; None if nothing waits."""

    def add(self, item: Item) -> None:
        """Send the messages in an item's record."""
        assert item.sending is not None  # it has messages
        messages, key = from_text(item.sending.record.outbox), idempotency_key(item.claim.id)
        self.unanswered[item] = len(messages)
        for number, message in enumerate(messages, 1):
            queue = self._queues.setdefault(message.queue_url, _Queue())
            queue.add(_Entry(item, f"{key}-{number}", message))

    def flush(self, elapsed_seconds: float, *, hurry: bool, late: bool) -> None:
        """Send full requests and overdue messages, or all if `hurry`. If `late`, send none: redeliveries send them."""
        anew = elapsed_seconds + SEND_LINGER_SECONDS
        due = anew if self.due_seconds is None else self.due_seconds
        overdue = hurry or elapsed_seconds >= due
        for url, queue in self._queues.items():
            if late or queue.refusal is not None:
                for entry in queue.clear():
                    self._not_sent(entry, queue.refusal or NOT_SENT)
            while queue.waiting and self._calls < MOST_REQUESTS and (overdue or queue.waiting >= SENDS_A_CALL):
                entries = queue.take()
                if not entries:
                    break
                self._start(url, queue, entries)
        self.due_seconds = (
            None if not any(queue.waiting for queue in self._queues.values()) else anew if overdue else due
        )

    def _start(self, url: str, queue: _Queue, entries: Sequence[_Entry]) -> None:
        self._calls += 1
        messages = [(entry.key, entry.message.arguments) for entry in entries]
        assert self._send is not None  # checked when they were added
        self._executor.start(partial(self._send, url, messages), partial(self._answered, queue, entries))

    def _answered(self, queue: _Queue, entries: Sequence[_Entry], answers: Sequence[SendAnswer]) -> None:
        self._calls -= 1
        again: list[_Entry] = []
        for entry, answer in zip(entries, answers, strict=True):
            queue.busy.discard(entry.group)
            entry.tries += 1
            if answer.again and entry.tries < MOST_TRIES:
                again.append(entry)
            elif answer.confirmed or answer.own:
                self._confirmed(entry.item, answer)
            else:
                queue.refusal = answer.why if answer.of_queue else queue.refusal
                self._not_sent(entry, answer.why)
        for entry in reversed(again):
            queue.add(entry, first=True)

    def _confirmed(self, item: Item, answer: SendAnswer) -> None:
        """Count a final answer for a message: it is confirmed, or refused for a fault that no retry can fix."""
        if item not in self.unanswered:
            return
        if answer.own:
            text = f"its effect took place, but one of its messages was refused: {answer.why}"
            item.failure = Failure(type="MessageRefused", text=text, permanent=True)
            self._refused.add(item)
        self.unanswered[item] -= 1
        if self.unanswered[item] == 0:
            del self.unanswered[item]
            self._progress.happens(item, Event.FAILED_FOR_GOOD if item in self._refused else Event.CONFIRMED)

    def _not_sent(self, entry: _Entry, why: str) -> None:
        if self.unanswered.pop(entry.item, None) is not None:
            text = f"its effect took place, but one of its messages was not confirmed: {why}"
            self._progress.happens(entry.item, Event.SETTLED, SettleFailed(text))
