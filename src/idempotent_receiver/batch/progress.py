"""How far a batch's items are, and which of them wait for which.

Each event is taken in, the table in `items.py` is asked, and those that waited go on. Items of a group each wait for
the one before; items of one key all wait for the first. So everybody waits for earlier items, and nobody in a circle.
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
from idempotent_receiver.protocol.exchange import Unread

LETS_GO = (Stage.WAITING, Stage.KEYLESS, Stage.HELD)
"""The stages in which an item that has to stop may be let go."""

OVER = "the store had not answered when the time was over"


class Consequence(NamedTuple):
    """What an item's end means for another one, and the outcome that comes with it."""

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
    """The items of a batch, and what each of them waits for."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.items = [_item(index, work) for index, work in enumerate(works)]
        self._groups: dict[str, deque[Item]] = {}
        self.leaders: list[Item] = []
        """The items that need not wait for another of their key."""
        leaders: dict[str, Item] = {}
        for item in self.items:
            work = item.work
            if work.group is not None:
                self._groups.setdefault(work.group, deque()).append(item)
            leader = item if item.stage is Stage.KEYLESS else leaders.setdefault(item.claim.id, item)
            if leader is item:
                self.leaders.append(item)
            else:
                # Made where it is needed: a batch of thousands has few of them.
                leader.followers = leader.followers or deque()
                leader.followers.append(item)

    def has_turn(self, item: Item) -> bool:
        """Whether nothing of the item's group stands before it."""
        assert item.work.group is not None  # asked of items in groups
        return self._groups[item.work.group][0] is item

    def is_blocked(self, item: Item) -> bool:
        """Whether an earlier item of the group has failed."""
        assert item.work.group is not None  # asked of items in groups
        line = self._groups[item.work.group]
        first = line[0].outcome if line else None
        return first is not None and not isinstance(first, SUCCEEDED)

    def consequences(self, ended: Item) -> Iterator[Consequence]:
        """What follows from an item's end for those that waited for it."""
        if ended.followers:
            yield from self._shared(ended)
        if ended.work.group is not None:
            yield from self._passed_on(self._groups[ended.work.group])

    def _passed_on(self, line: deque[Item]) -> Iterator[Consequence]:
        """The turn goes to the next in line; behind a failure nobody gets one."""
        while line and line[0].outcome is not None:
            if not isinstance(line[0].outcome, SUCCEEDED):
                # What waits for the store finds its group blocked when that answers.
                yield from [Consequence(item, Event.STOPPED, NotStarted()) for item in line if item.stage in LETS_GO]
                return
            line.popleft()
        if line and line[0].stage in (Stage.KEYLESS, Stage.HELD):  # another one takes its turn when it is claimed
            yield Consequence(line[0], Event.TURN)

    def _shared(self, ended: Item) -> Iterator[Consequence]:
        """A follower with the same payload shares the outcome. One with another payload asks the store itself, and so
        does one of another group, which nothing has stopped, where the first was not started. Those that are left then
        wait for both.
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
    """How far a batch's items are. `actions` are what the table may ask for."""

    actions: Mapping[Do, Callable[[Item], None]]

    def __init__(self, order: Order, on_end: Callable[[int, Outcome], None] | None = None) -> None:
        self.order = order
        self._on_end = on_end
        self.unresolved = len(order.items)
        self.held = 0
        """Claims that wait for their turn."""
        self.stopped = False
        self.unreachable: str | None = None
        """Why the store did not answer how a run that nothing had claimed ended. Then nothing more starts."""
        self._answered = False
        self.ended: deque[Item] = deque()
        """Items whose end has not been passed on yet."""

    def happens(self, item: Item, event: Event, outcome: Outcome | None = None) -> None:
        """Take an event in, with the outcome that it brings if the item ends by it. After `outcomes`,
        events are dropped: while visibilities are changed, the executor may still deliver a store's answer.
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
        """Go on with an item at once if nothing of its group stands before it."""
        if item.work.group is None or self.order.has_turn(item):
            self.happens(item, Event.TURN)

    def not_sent(self, item: Item) -> None:
        """End an item whose dead letter is not confirmed, or has nowhere to go."""
        self.happens(item, Event.SENT, Failed(item.failure, recorded=item.recorded))

    def may_start(self, item: Item) -> bool:
        """Whether there is any sense in claiming an item, or in keeping its claim."""
        return not self.stopped and (item.work.group is None or not self.order.is_blocked(item))

    def unstarted(self) -> Outcome:
        """How it ends for what does not start: where the store is away, it comes again after a backoff."""
        return NotStarted() if self.unreachable is None else ClaimFailed(self.unreachable)

    def stop(self) -> None:
        """Let go of what has not started, and of whatever comes."""
        self.stopped = True
        for item in self.order.items:
            if item.stage in LETS_GO:
                self.happens(item, Event.STOPPED, self.unstarted())

    def pass_on(self) -> None:
        """Tell those that waited for what has ended. A queue, not recursion, since the chains may be long."""
        while self.ended:
            ended = self.ended.popleft()
            if ended.work.group is None and not ended.followers:
                continue  # nobody waited, as is usual
            for item, event, outcome in self.order.consequences(ended):
                if event is Event.DIFFERS and self.stopped:
                    self.happens(item, Event.STOPPED, self.unstarted())
                else:
                    self.happens(item, event, outcome)

    def outcomes(self) -> Sequence[Outcome]:
        """Every item's outcome. The time to answer has come: what is still under way is nobody's success."""
        for item in self.order.items:
            if item.stage is not Stage.ENDED:
                self.happens(item, Event.TIME_OVER, _over(item))
        self._answered = True
        return [item.outcome for item in self.order.items]  # type: ignore[misc]  # each has ended

    def end(self, item: Item) -> None:
        """Count an item that has its outcome, and let those that waited for it hear of that."""
        if self._on_end is not None:
            self._on_end(item.index, item.outcome)  # type: ignore[arg-type]  # it has ended
        self.unresolved -= 1
        self.ended.append(item)


def _over(item: Item) -> Outcome:
    """How it ends for an item that is under way when the time is over: as if the store had not answered."""
    match item.stage:
        case Stage.FAILING | Stage.SENDING:
            return Failed(item.failure, recorded=False)
        case Stage.STORING | Stage.COMPLETING:
            return SettleFailed(OVER)
        case Stage.RELEASING:
            return NotStarted(released=False)
        case _:
            return ClaimFailed(OVER)


def _mirrored(outcome: Outcome) -> Outcome:
    """What the outcome of a key's first item means for a second one with the same payload."""
    match outcome:
        case Completed(record=record):
            return Duplicate(record)
        case DeadLettered(failure=failure):
            # Only the first message's dead letter is confirmed: this one comes again and gets its own.
            return Failed(failure)
        case _:
            return outcome
