"""The progress of a batch's items, and the order in which they wait for each other.

Each event is looked up in the table in `items.py`, and the items that waited for it continue. Items in a group wait for
the previous one; items with one key wait for the first. Each waits only for items whose keys were known before its own,
so there are no cycles.
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
    NotSent,
    NotStarted,
    Outcome,
    SettleFailed,
)
from idempotent_receiver.protocol.record import Unread
from idempotent_receiver.protocol.transitions import Claim

LETS_GO = (Stage.UNKEYED, Stage.WAITING, Stage.KEYLESS, Stage.HELD)
"""The stages of unstarted items that `Progress` stops. `Runs` stops the ready ones."""

OVER = "the store had not answered when time ran out"
NOT_SENT = "time ran out before all its messages were sent"
NOT_CALLED = "time ran out before all its calls were made"


class Consequence(NamedTuple):
    """The event that an item's end causes for another item, and the outcome if that ends it too."""

    item: Item
    event: Event
    outcome: Outcome | None = None


def _item(index: int, work: Work) -> Item:
    if isinstance(work.claim, Failure):
        keyless = Item(index, work, Stage.KEYLESS)
        keyless.failure = work.claim
        return keyless
    keyed = isinstance(work.claim, Claim)
    item = Item(index, work, Stage.WAITING if keyed else Stage.UNKEYED, assumed=Unread() if work.seen_before else None)
    if isinstance(work.claim, Claim):
        item.claim = work.claim
    return item


class Order:
    """A batch's items, and the items that each waits for."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.items = [_item(index, work) for index, work in enumerate(works)]
        self._groups: dict[str, deque[Item]] = {}
        self.leaders: list[Item] = []
        """The items with a known key, or without one, that wait for no other item with their key."""
        self._leaders: dict[str, Item] = {}
        """The first item with each record id, until it has ended and passed on to another."""
        for item in self.items:
            work = item.work
            if work.group is not None:
                self._groups.setdefault(work.group, deque()).append(item)
            if item.stage is Stage.KEYLESS or (item.stage is Stage.WAITING and self.leads(item)):
                self.leaders.append(item)

    def leads(self, item: Item) -> bool:
        """Whether an item, whose key has just become known, waits for no other item with its key. If the one before it
        has ended, the record says how.
        """
        leader = self._leaders.setdefault(item.claim.id, item)
        if leader is item:
            return True
        if leader.outcome is not None and not leader.followers:
            self._leaders[item.claim.id] = item
            item.assumed = Unread()
            return True
        # Created on demand: a batch of thousands needs few.
        leader.followers = leader.followers or deque()
        leader.followers.append(item)
        return False

    def line(self, item: Item) -> Sequence[Item]:
        """The items of an item's group that have not passed on their turn, in order; the item alone if it has none."""
        return [item] if item.work.group is None else [*self._groups[item.work.group]]

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
        """The consequences of an item's end for the items that waited for it."""
        if ended.followers:
            yield from self._shared(ended)
        if ended.work.group is not None:
            yield from self._passed_on(self._groups[ended.work.group])

    def _passed_on(self, line: deque[Item]) -> Iterator[Consequence]:
        """The next item in line gets its turn; all items behind a failed one are stopped."""
        while line and line[0].outcome is not None:
            if not isinstance(line[0].outcome, SUCCEEDED):
                # An item awaiting the store finds its group blocked when the answer arrives.
                yield from [Consequence(item, Event.STOPPED, NotStarted()) for item in line if item.stage in LETS_GO]
                return
            line.popleft()
        if line and line[0].stage in (Stage.KEYLESS, Stage.HELD):  # otherwise, it gets its turn once claimed
            yield Consequence(line[0], Event.TURN)

    def _shared(self, ended: Item) -> Iterator[Consequence]:
        """A follower with the same payload shares the outcome.

        A follower with a different payload sends its own request to the store. So does a follower in a different group
        if the item that ended was never started, because nothing has stopped that group. The rest then wait for that
        follower.
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
                self._leaders[follower.claim.id] = follower
                yield Consequence(follower, Event.DIFFERS)
                return
            yield Consequence(follower, Event.SHARES, _mirrored(same))


class Progress:
    """The progress of a batch's items. `actions` maps each action in the table to its function."""

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
        """The number of claimed items that wait for their turn."""
        self.stopped = False
        self.unreachable: str | None = None
        """Why the store did not confirm the end of an unclaimed run. Once this is set, nothing more starts."""
        self.dead_lettered = False
        """Whether a dead letter of this batch is confirmed."""
        self._answered = False
        self.ended: deque[Item] = deque()
        """Ended items, until the items that wait for them have been notified."""

    def happens(self, item: Item, event: Event, outcome: Outcome | None = None) -> None:
        """Process an event. An event that ends the item brings its `outcome`.

        After a call to `outcomes`, events are dropped: the executor may still deliver a store's answer while visibility
        timeouts are being changed.
        """
        if self._answered:
            return
        was = item.stage
        stage, do = TABLE[was, event]
        item.stage = stage
        self.held += (stage is Stage.HELD) - (was is Stage.HELD)
        if stage is Stage.ENDED:
            assert outcome is not None  # an event that ends an item brings one
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
        """Whether it still makes sense to claim an item or to keep its claim."""
        return not self.stopped and (item.work.group is None or not self.order.is_blocked(item))

    def unstarted(self) -> Outcome:
        """The outcome of an item that will not start. If the store is down, its message returns after a backoff."""
        return NotStarted() if self.unreachable is None else ClaimFailed(self.unreachable)

    def stop(self) -> None:
        """Stop the items in the stages of `LETS_GO`, and start none from now on."""
        self.stopped = True
        for item in self.order.items:
            if item.stage in LETS_GO:
                self.happens(item, Event.STOPPED, self.unstarted())

    def pass_on(self) -> None:
        """Notify the items that waited for ended ones. Uses a queue, not recursion, because chains may be long."""
        while self.ended:
            ended = self.ended.popleft()
            if ended.work.group is None and not ended.followers:
                continue  # the usual case: no item waited
            for item, event, outcome in self.order.consequences(ended):
                if event is Event.DIFFERS and self.stopped:
                    self.happens(item, Event.STOPPED, self.unstarted())
                else:
                    self.happens(item, event, outcome)

    def outcomes(self) -> Sequence[Outcome]:
        """Every item's outcome. The answer is due, so no unfinished item counts as a success."""
        for item in self.order.items:
            if item.stage is not Stage.ENDED:
                self.happens(item, Event.TIME_OVER, _over(item))
        self._answered = True
        return [item.outcome for item in self.order.items]  # type: ignore[misc]  # each has ended

    def end(self, item: Item) -> None:
        """Count and report an item that has ended, and queue it so that waiting items are notified."""
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
        case Stage.COMPLETING:
            return SettleFailed(OVER)
        case Stage.MARKING:
            return NotSent(OVER)
        case Stage.UNSENT | Stage.STOPPING:
            return NotSent(NOT_SENT)
        case Stage.CALLING:
            return NotSent(NOT_CALLED)
        case Stage.RELEASING:
            return NotStarted(released=False)
        case _:
            return ClaimFailed(OVER)


def _mirrored(outcome: Outcome) -> Outcome:
    """The outcome of an item with the same key and payload as an item that ended with `outcome`."""
    match outcome:
        case Completed(record=record):
            return Duplicate(record)
        case DeadLettered(failure=failure):
            # Only the first message's dead letter is confirmed: this message is redelivered and gets its own.
            return Failed(failure)
        case _:
            return outcome
