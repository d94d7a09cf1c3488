"""Makes the calls in a batch's records, once its messages are answered for this delivery.

A call runs as a handler does: `Runs` starts it, in a slot. The calls of one record are made one at a time, in order,
but none depends on another. Whoever runs a record's call has its `Calling` to itself; the batch's own thread ends it,
and records its progress while a call runs long.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from idempotent_receiver.batch.items import Event, Item
from idempotent_receiver.batch.progress import NOT_CALLED, Progress
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.batch.spent import Spent
from idempotent_receiver.clock import Deadline, Moment
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.attempt import Attempt, Handled, OwnCall, Raised
from idempotent_receiver.handler.outcome import NotSent
from idempotent_receiver.protocol.record import idempotency_key
from idempotent_receiver.transaction.outbox import OutboxCall, calls_in, confirmed, from_text

CHECKPOINT_SECONDS = 1.0
"""How long a call may run before what was done before it is recorded."""

Keep = Callable[[Item, str], None]
"""Records an item's progress: its outbox with what is left."""


@dataclass(slots=True, eq=False)
class Calling:
    """One item's calls. `left` wait; those that returned are in `made`, the others in `failed`, each with its number.
    `changed_seconds` is when a call last began or ended, and `recorded` how many are recorded as made.
    """

    item: Item
    left: deque[tuple[int, OutboxCall]]
    count: int
    unrecorded: bool
    running: tuple[int, OutboxCall] | None = None
    made: list[int] = field(default_factory=list)
    failed: list[tuple[int, str, Failure]] = field(default_factory=list)
    changed_seconds: float = 0.0
    seconds: float = 0.0
    recorded: int = 0

    @property
    def outbox(self) -> str:
        """The outbox with what is left."""
        return confirmed(self.item.outbox, self.made)

    @property
    def has_progress(self) -> bool:
        """Whether something is done that the record does not say."""
        return self.unrecorded or len(self.made) > self.recorded


class Callings:
    """The calls to make. `plain` and `asynchronous` are the items whose next call is of that kind, and may start."""

    def __init__(self, settings: Settings, progress: Progress, deadline: Deadline, spent: Spent, keep: Keep) -> None:
        self._settings, self._progress, self._deadline = settings, progress, deadline
        self.spent, self._keep = spent, keep
        self.plain: deque[Calling] = deque()
        self.asynchronous: deque[Calling] = deque()
        self.open: dict[Item, Calling] = {}
        """The items with calls that wait or run."""
        self.stopped = False
        self.needed_seconds = settings.stop_margin_seconds
        """No call starts with less time left: the stop margin plus the longest call so far. Handlers do not count."""

    def add(self, item: Item) -> None:
        """Make the calls that are left in an item's record."""
        assert item.sending is not None  # it has calls
        left = deque(calls_in(from_text(item.outbox)).items())
        unrecorded = item.outbox != item.sending.record.outbox
        self.open[item] = calling = Calling(item, left, len(left), unrecorded)
        self._line_up(calling)

    def may_start(self, moment: Moment) -> bool:
        """Whether a call that waits may start."""
        return (len(self.plain) > 0 or len(self.asynchronous) > 0) and self.in_time(moment)

    def in_time(self, moment: Moment) -> bool:
        """Whether there is time for one more call."""
        host = self._settings.host
        return (
            moment.left_to_start_seconds > self.needed_seconds
            and not (self.stopped or (host is not None and host.draining()))
            and self._progress.unreachable is None
        )

    def begin(self, calling: Calling, moment: Moment) -> Attempt:
        """Take an item's next call, and return what `handle` runs it with."""
        item = calling.item
        assert item.sending is not None  # it has calls
        record = item.sending.record
        calling.running = number, call = calling.left.popleft()
        calling.changed_seconds = moment.elapsed_seconds
        make = partial(self._settings.callees.make, call, f"{idempotency_key(record.id)}-{number}")
        attempt = Attempt(record.id, item.work.key, record.attempts or 1, self._deadline, record.owner or "unknown")
        attempt.call = OwnCall(call.name, make)
        return attempt

    def put_back(self, calling: Calling) -> None:
        """Its next call was not begun after all."""
        assert calling.running is not None  # it was taken
        calling.left.appendleft(calling.running)
        calling.running = None
        self._line_up(calling, first=True)

    def ran(self, calling: Calling, handled: Handled, moment: Moment) -> None:
        """Note how a call ended, and let the item's next one start. Called by whoever ran it."""
        assert calling.running is not None  # it has just run
        number, call = calling.running
        seconds = moment.elapsed_seconds - calling.changed_seconds
        if isinstance(handled, Raised):
            handled.error.__traceback__ = None  # it would keep the call's frames alive
            calling.failed.append((number, call.name, handled.failure))
        else:
            calling.made.append(number)
        calling.seconds += seconds
        calling.changed_seconds = moment.elapsed_seconds
        calling.running = None
        self.needed_seconds = max(self.needed_seconds, self._settings.stop_margin_seconds + seconds)
        self._line_up(calling, first=True)

    def ended(self, calling: Calling) -> None:
        """End an item whose calls have all ended."""
        if calling.item in self.open and len(calling.made) + len(calling.failed) == calling.count:
            self._end(calling)

    def step(self, moment: Moment, *, late: bool) -> None:
        """End the items whose next call will not start. Record the progress of those whose call runs long or, if
        `late`, into the stop margin.
        """
        if not self.in_time(moment):
            for line in (self.plain, self.asynchronous):
                while line:
                    self._end(line.popleft())
        for calling in self.open.values():
            if calling.running is not None and calling.has_progress and (late or self._is_long(calling, moment)):
                calling.unrecorded, calling.recorded = False, len(calling.made)
                self._keep(calling.item, calling.outbox)

    @property
    def due_seconds(self) -> float | None:
        """When progress may have to be recorded, in seconds since the invocation's start."""
        changed = [calling.changed_seconds for calling in self.open.values() if calling.has_progress]
        if not changed:
            return None
        return max(min(changed) + CHECKPOINT_SECONDS, self._deadline.elapsed_seconds + 0.1)

    def _is_long(self, calling: Calling, moment: Moment) -> bool:
        return moment.elapsed_seconds - calling.changed_seconds >= CHECKPOINT_SECONDS

    def _line_up(self, calling: Calling, *, first: bool = False) -> None:
        """Let an item's next call start, if there is one. An item that has begun goes `first`."""
        if not calling.left:
            return
        _, call = calling.left[0]
        line = self.asynchronous if self._settings.callees.asynchronous(call.name) else self.plain
        (line.appendleft if first else line.append)(calling)

    def _end(self, calling: Calling) -> None:
        """Make no more of an item's calls."""
        item = calling.item
        del self.open[item]
        self.spent.call += calling.seconds
        item.outbox = calling.outbox
        permanent = [each for each in calling.failed if each[2].permanent]
        retried = [each for each in calling.failed if not each[2].permanent]
        if retried:
            not_called, before = _not_called(retried), item.not_sent
            if before is None or before.out_of_time:
                item.not_sent = not_called
            else:  # why a message is not sent comes first: its queue may be down
                item.not_sent = replace(before, charged=before.charged or not_called.charged)
        elif calling.left:
            item.not_sent = item.not_sent or NotSent(NOT_CALLED, out_of_time=True)
        if permanent:
            number, name, failure = permanent[0]
            text = f"its effect took place, but call {number} ({name}) failed for good: {failure.reason}"
            item.failure, item.refused = replace(failure, text=text), True
        done = item.not_sent is None and not item.refused
        self._progress.happens(item, Event.CONFIRMED if done else Event.UNCONFIRMED)


def _not_called(failed: list[tuple[int, str, Failure]]) -> NotSent:
    """The failure of an item whose calls are left because they raised. A delay counts only if all ask for one, and a
    cancellation if no other raised. The message pays unless none of them is its own fault.
    """
    told = ", ".join(f"call {number} ({name}): {failure.reason}" for number, name, failure in failed)
    *_, failure = sorted(
        (failure for _, _, failure in failed),
        key=lambda one: (one.delay_seconds is None, not one.cancelled, one.delay_seconds or 0),
    )
    charged = any(each.charged for _, _, each in failed)
    failure = replace(failure, text=f"its effect took place, but calls are left: {told}", charged=charged)
    return NotSent(f"calls are left: {told}", failure=failure, charged=charged)
