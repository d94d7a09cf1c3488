"""The progress of a batch's items, and which of them wait for which.

Each event is looked up in the table of `items.py`, and the items that waited for it continue. Items of a group wait for
the one before; items of one key wait for the first. All waiting is for earlier items, so there are no cycles.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from idempotent_receiver.batch.items import TABLE, Do, Event, Item, Stage, Work
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import (
    SUCCEEDED,
    ClaimFailed,
    Completed,
    DeadLettered,
    Duplicate,
    Failed,
    NotStarted,
    Outcome,
    SettleFailed,
)
from idempotent_receiver.protocol.record import Unread

LETS_GO = (Stage.WAITING, Stage.KEYLESS, Stage.HELD)
"""The stages in which an item that must stop can be let go."""

OVER = "the store had not answered when time ran out"
NOT_SENT = "its effect is done, but its messages were not sent before time ran out; a redelivery sends them"


class Consequence(NamedTuple):
    """What an item's end means for another item, and the outcome it brings."""

    item: Item
    event: Event
    outcome: Outcome | None = None


def _item(index: int, work: Work) -> Item:
    if isinstance(work.claim, Failure):
        keyless = Item(index, work, Stage.KEYLESS)
        keyless.failure = work.claim
        return keyless
    item = Item(index, work, Stage.WAITING, assumed=Unread() if work.seen_before else None)
    item.claim = work.claim
    return item


class Order:
    """A batch's items, and what each waits for."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.items = [_item(index, work) for index, work in enumerate(works)]
        self._groups: dict[str, deque[Item]] = {}
        self.leaders: list[Item] = []
        """The items that wait for no other item of their key."""
        leaders: dict[str, Item] = {}
        for item in self.items:
            work = item.work
            if work.group is not None:
                self._groups.setdefault(work.group, deque()).append(item)
            leader = item if item.stage is Stage.KEYLESS else leaders.setdefault(item.claim.id, item)
            if leader is item:
                self.leaders.append(item)
            else:
                # Created on demand: a batch of thousands needs few.
                leader.followers = leader.followers or deque()
                leader.followers.append(item)

    def has_turn(self, item: Item) -> bool:
        """Whether nothing in the item's group is ahead of it."""
        assert item.work.group is not None  # only called for items in groups
        return self._groups[item.work.group][0] is item

    def is_blocked(self, item: Item) -> bool:
        """Whether an earlier item of the group has failed."""
        assert item.work.group is not None  # only called for items in groups
        line = self._groups[item.work.group]
        first = line[0].outcome if line else None
        return first is not None and not isinstance(first, SUCCEEDED)

    def consequences(self, ended: Item) -> Iterator[Consequence]:
        """What an item's end means for those that waited for it."""
        if ended.followers:
            yield from self._shared(ended)
        if ended.work.group is not None:
            yield from self._passed_on(self._groups[ended.work.group])

    def _passed_on(self, line: deque[Item]) -> Iterator[Consequence]:
        """The next in line gets its turn; behind a failure, none does."""
        while line and line[0].outcome is not None:
            if not isinstance(line[0].outcome, SUCCEEDED):
                # An item awaiting the store finds its group blocked when the answer arrives.
                yield from [Consequence(item, Event.STOPPED, NotStarted()) for item in line if item.stage in LETS_GO]
                return
            line.popleft()
        if line and line[0].stage in (Stage.KEYLESS, Stage.HELD):  # the other item gets its turn when it is claimed
            yield Consequence(line[0], Event.TURN)

    def _shared(self, ended: Item) -> Iterator[Consequence]:
        """A follower with the same payload shares the outcome.

        One with another payload asks the store itself. So does one of another group, which nothing has stopped, if the
        first item was not started. Any that remain wait for both.
        """
        assert ended.outcome is not None  # it has ended
        outcomes = ended.outcomes or {}
        outcomes[ended.claim.fingerprint] = ended.outcome
        followers, ended.followers = ended.followers or deque(), None
        while followers:
            follower = followers.popleft()
            if follower.outcome is not None:
                continue
            same = outcomes.get(follower.claim.fingerprint)
            if same is None or (isinstance(same, NotStarted) and follower.work.group != ended.work.group):
                follower.followers, follower.outcomes = followers, outcomes
                yield Consequence(follower, Event.DIFFERS)
                return
            yield Consequence(follower, Event.SHARES, _mirrored(same))


class Progress:
    """The progress of a batch's items. `actions` are those that the table may ask for."""

    actions: Mapping[Do, Callable[[Item], None]]

    def __init__(
        self,
        order: Order,
        on_end: Callable[[int, Outcome], None] | None = None,
        end_span: Callable[[Item], None] | None = None,
    ) -> None:
        self.order = order
        self._on_end = on_end
        self._end_span = end_span
        self.unresolved = len(order.items)
        self.held = 0
        """Claims that wait for their turn."""
        self.stopped = False
        self.unreachable: str | None = None
        """Why the store did not confirm the end of an unclaimed run. Then nothing more starts."""
        self._answered = False
        self.ended: deque[Item] = deque()
        """Items whose end has not been passed on yet."""

    def happens(self, item: Item, event: Event, outcome: Outcome | None = None) -> None:
        """Process an event, with the outcome it brings if it ends the item.

        After `outcomes`, events are dropped: the executor may still deliver a store's answer while visibilities are
        changed.
        """
        if self._answered:
            return
        was = item.stage
        item.stage, do = TABLE[was, event]
        self.held += (item.stage is Stage.HELD) - (was is Stage.HELD)
        if item.stage is Stage.ENDED:
            assert outcome is not None  # this event brings one
            item.outcome = outcome
        if do is not Do.NOTHING:
            self.actions[do](item)

    def await_turn(self, item: Item) -> None:
        """Continue with an item at once if nothing in its group is ahead of it."""
        if item.work.group is None or self.order.has_turn(item):
            self.happens(item, Event.TURN)

    def not_sent(self, item: Item) -> None:
        """End an item whose dead letter is not confirmed or has no destination."""
        self.happens(item, Event.SENT, Failed(item.failure, recorded=item.recorded))

    def may_start(self, item: Item) -> bool:
        """Whether claiming an item, or keeping its claim, still makes sense."""
        return not self.stopped and (item.work.group is None or not self.order.is_blocked(item))

    def unstarted(self) -> Outcome:
        """The outcome of an item that will not start: if the store is down, it comes again after a backoff."""
        return NotStarted() if self.unreachable is None else ClaimFailed(self.unreachable)

    def stop(self) -> None:
        """Let go of everything that has not started, and of items that arrive later."""
        self.stopped = True
        for item in self.order.items:
            if item.stage in LETS_GO:
                self.happens(item, Event.STOPPED, self.unstarted())

    def pass_on(self) -> None:
        """Notify the items that waited for ended ones. A queue, not recursion, because chains may be long."""
        while self.ended:
            ended = self.ended.popleft()
            if ended.work.group is None and not ended.followers:
                continue  # the usual case: nobody waited
            for item, event, outcome in self.order.consequences(ended):
                if event is Event.DIFFERS and self.stopped:
                    self.happens(item, Event.STOPPED, self.unstarted())
                else:
                    self.happens(item, event, outcome)

    def outcomes(self) -> Sequence[Outcome]:
        """Every item's outcome. The time to answer has come, so anything unfinished is not a success."""
        for item in self.order.items:
            if item.stage is not Stage.ENDED:
                self.happens(item, Event.TIME_OVER, _over(item))
        self._answered = True
        return [item.outcome for item in self.order.items]  # type: ignore[misc]  # each has ended

    def end(self, item: Item) -> None:
        """Count an item that has its outcome, and queue it for those that wait."""
        if self._on_end is not None:
            self._on_end(item.index, item.outcome)  # type: ignore[arg-type]  # it has ended
        if self._end_span is not None:
            self._end_span(item)
        self.unresolved -= 1
        self.ended.append(item)


def _over(item: Item) -> Outcome:
    """The outcome of an item that is unfinished when time is up: as if the store had not answered."""
    match item.stage:
        case Stage.FAILING | Stage.SENDING:
            return Failed(item.failure, recorded=False)
        case Stage.STORING | Stage.COMPLETING | Stage.MARKING:
            return SettleFailed(OVER)
        case Stage.UNSENT:
            return SettleFailed(NOT_SENT)
        case Stage.RELEASING:
            return NotStarted(released=False)
        case _:
            return ClaimFailed(OVER)


def _mirrored(outcome: Outcome) -> Outcome:
    """The outcome of an item with the same key and payload as one that ended this way."""
    match outcome:
        case Completed(record=record):
            return Duplicate(record)
        case DeadLettered(failure=failure):
            # Only the first message's dead letter is confirmed: this message comes again and gets its own.
            return Failed(failure)
        case _:
            return outcome
