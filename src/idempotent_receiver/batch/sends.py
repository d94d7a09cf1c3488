"""Sends the messages in a batch's records, ten per request, once the handlers' effects are committed.

Messages in one FIFO group are sent one at a time, each after the previous one is confirmed, because SQS may refuse one
message in a request and accept the next. After one that is not confirmed, the others of its record in its group wait
for a redelivery; a record's messages to other groups and queues do not.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

from idempotent_receiver.batch.apart import IDLE
from idempotent_receiver.batch.items import Event, Item, Stage
from idempotent_receiver.batch.progress import NOT_SENT, Progress
from idempotent_receiver.batch.settings import SendAnswer, Settings
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import NotSent
from idempotent_receiver.protocol.record import idempotency_key
from idempotent_receiver.transaction.outbox import Outgoing, calls_in, confirmed, from_text, sends_in

SENDS_A_CALL = 10
"""Messages per request: SQS's limit. Ten records' messages stay far below SQS's other limit, 1 MiB per request."""

SEND_LINGER_SECONDS = 0.01
"""Maximum seconds that a message waits for others while handlers still run. This is longer than for a settlement,
because any worker that finds a committed message sends it.
"""

MOST_REQUESTS = 16
"""Maximum requests in progress: each takes a thread and a connection."""

RESTING = (*IDLE, Stage.UNKEYED, Stage.HELD)
"""The stages of items that have nothing under way, or wait for those that have."""

UNANSWERED = NotSent("SQS had not answered when time ran out")


@dataclass(slots=True, eq=False)
class _Outbox:
    """One item's messages. `unanswered` are waiting or in progress; `confirmed` has the numbers of those confirmed.
    `not_sent` is the first reason why one is not, and `refused` says that SQS called one invalid. `calls` says that the
    record has calls to make afterwards.
    """

    item: Item
    unanswered: int
    calls: bool
    confirmed: set[int] = field(default_factory=set)
    not_sent: NotSent | None = None
    refused: bool = False

    def leave(self, not_sent: NotSent) -> None:
        """Count a message that this batch does not send. A reason beside the lack of time comes first."""
        if self.not_sent is None or self.not_sent.out_of_time:
            self.not_sent = not_sent
        self.unanswered -= 1


@dataclass(slots=True, eq=False)
class _Entry:
    outbox: _Outbox
    number: int
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
        self.calls = 0
        """Requests in progress."""
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
                taken.append(line.popleft())
                self.busy |= set() if group is None else {group}
            if not line:
                del self.lines[group]
            if len(taken) == SENDS_A_CALL:
                break
        self.waiting -= len(taken)
        return taken

    def clear(self) -> Iterator[_Entry]:
        """Remove all waiting messages without sending them."""
        lines, self.lines, self.waiting = self.lines, {}, 0
        return chain.from_iterable(lines.values())

    def behind(self, entry: _Entry) -> list[_Entry]:
        """Remove the waiting messages that must not overtake this one: those of its record in its FIFO group."""
        if entry.group is None or (line := self.lines.pop(entry.group, None)) is None:
            return []
        removed = [one for one in line if one.outbox is entry.outbox]
        if kept := deque(one for one in line if one.outbox is not entry.outbox):
            self.lines[entry.group] = kept
        self.waiting -= len(removed)
        return removed


class Sends:
    """The messages to send, by queue."""

    def __init__(self, settings: Settings, progress: Progress) -> None:
        self._send = settings.send_messages
        self._executor = settings.executor
        self._progress = progress
        self._queues: dict[str, _Queue] = {}
        self._passed = False
        """Whether SQS has accepted a message of this batch. If it accepts none, no message pays for a refusal."""
        self.unanswered: dict[Item, _Outbox] = {}
        """The items with messages that are waiting or in progress."""
        self._calls = 0
        self.due_seconds: float | None = None
        """When the next request must be sent, in seconds since the invocation's start; None if nothing waits."""

    def add(self, item: Item) -> None:
        """Send the messages that are left in an item's record."""
        assert item.sending is not None  # it has messages
        entries, key = from_text(item.sending.record.outbox), idempotency_key(item.claim.id)
        left, calls = sends_in(entries), item.not_sent is None and len(calls_in(entries)) > 0
        self.unanswered[item] = outbox = _Outbox(item, len(left), calls, not_sent=item.not_sent)
        if not left or item.not_sent is not None:
            self._end(outbox)
            return
        for number, message in left.items():
            queue = self._queues.setdefault(message.queue_url, _Queue())
            queue.add(_Entry(outbox, number, f"{key}-{number}", message))

    def flush(self, elapsed_seconds: float, *, hurry: bool, late: bool, over: bool = False) -> None:
        """Send full requests and overdue messages, or all if `hurry`. If `late`, send none: redeliveries send them. If
        `over`, wait for no answers either.
        """
        anew = elapsed_seconds + SEND_LINGER_SECONDS
        due = anew if self.due_seconds is None else self.due_seconds
        overdue = hurry or elapsed_seconds >= due
        # A queue that does not answer must leave requests to the others.
        most = max(1, MOST_REQUESTS // max(1, len(self._queues)))
        for url, queue in self._queues.items():
            if late or queue.refusal is not None:
                for entry in queue.clear():
                    self._leave([entry], _why_not(queue, entry))
            while (
                queue.waiting
                and (overdue or queue.waiting >= SENDS_A_CALL)
                and self._calls < MOST_REQUESTS
                and queue.calls < most
            ):
                entries = queue.take()
                if not entries:
                    break
                self._start(url, queue, entries)
        if over:
            for outbox in list(self.unanswered.values()):
                outbox.leave(UNANSWERED)
                self._end(outbox)
        elif self._calls == 0:
            self._end_refused()
        self.due_seconds = (
            None if not any(queue.waiting for queue in self._queues.values()) else anew if overdue else due
        )

    def _start(self, url: str, queue: _Queue, entries: Sequence[_Entry]) -> None:
        self._calls += 1
        queue.calls += 1
        messages = [(entry.key, entry.message.arguments) for entry in entries]
        assert self._send is not None  # checked when they were added
        self._executor.start(partial(self._send, url, messages), partial(self._answered, queue, entries))

    def _answered(self, queue: _Queue, entries: Sequence[_Entry], answers: Sequence[SendAnswer]) -> None:
        self._calls -= 1
        queue.calls -= 1
        again: list[_Entry] = []
        for entry, answer in zip(entries, answers, strict=True):
            queue.busy.discard(entry.group)
            entry.tries += 1
            if entry.outbox.item not in self.unanswered:
                continue  # its answer is too late
            if answer.confirmed or answer.own:
                self._confirmed(entry, answer)
            elif entry.tries < answer.tries:
                again.append(entry)
            else:
                queue.refusal = answer.why if answer.of_queue else queue.refusal
                self._leave([entry, *queue.behind(entry)], NotSent(answer.why, charged=answer.refused))
        for entry in reversed(again):
            queue.add(entry, first=True)

    def _confirmed(self, entry: _Entry, answer: SendAnswer) -> None:
        """Count a final answer for a message: it is confirmed, or refused for a fault that no retry can fix."""
        outbox = entry.outbox
        if answer.own:
            text = f"its effect took place, but one of its messages was refused: {answer.why}"
            outbox.item.failure = Failure(type="MessageRefused", text=text, permanent=True)
            outbox.refused = True
        else:
            outbox.confirmed.add(entry.number)
            self._passed = True
        outbox.unanswered -= 1
        self._end_if_answered(outbox)

    def _leave(self, entries: Iterable[_Entry], not_sent: NotSent) -> None:
        for entry in entries:
            if entry.outbox.item in self.unanswered:
                entry.outbox.leave(not_sent)
                self._end_if_answered(entry.outbox)

    def _end_if_answered(self, outbox: _Outbox) -> None:
        if outbox.unanswered == 0 and not (outbox.not_sent is not None and outbox.not_sent.charged):
            self._end(outbox)

    def _end_refused(self) -> None:
        """End the items whose messages were refused, once nothing else is under way: then it is known whether SQS has
        accepted others.
        """
        refused = [outbox for outbox in self.unanswered.values() if outbox.unanswered == 0]
        if refused:
            held = {outbox.item for outbox in refused}
            if all(item.stage in RESTING or item in held for item in self._progress.order.items):
                for outbox in refused:
                    self._end(outbox)

    def _end(self, outbox: _Outbox) -> None:
        """Send no more of an item's messages."""
        item = outbox.item
        del self.unanswered[item]
        assert item.sending is not None  # it has messages
        item.outbox, item.not_sent = confirmed(item.sending.record.outbox, outbox.confirmed), outbox.not_sent
        if item.not_sent is not None and not self._passed:
            item.not_sent = replace(item.not_sent, charged=False)
        item.refused = outbox.refused
        done = outbox.not_sent is None and not outbox.refused
        ended = Event.CONFIRMED if done else Event.UNCONFIRMED
        self._progress.happens(item, Event.ALL_ANSWERED if outbox.calls else ended)


def _why_not(queue: _Queue, entry: _Entry) -> NotSent:
    """Why a waiting message is not sent. One that was tried has met more than the lack of time."""
    if queue.refusal is not None:
        return NotSent(queue.refusal, charged=True)
    return NotSent(NOT_SENT, out_of_time=entry.tries == 0)
