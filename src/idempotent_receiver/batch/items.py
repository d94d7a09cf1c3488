"""A batch's work, piece by piece: what each wants, how far it is, and which waits for which."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.attempt import AsyncHandle, Handle
from idempotent_receiver.handler.outcome import Completed as CompletedOutcome
from idempotent_receiver.handler.outcome import DeadLettered, Duplicate, Failed, Outcome, succeeded
from idempotent_receiver.protocol.exchange import Unread
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.transitions import Claim, Claimed


class Work(NamedTuple):
    """One message's work. `claim` is what to claim, or why nothing can be. Works of one `group` run in order.

    `seen_before` says that a record is probably there already, so that it is read rather than inserted.
    """

    key: str
    claim: Claim | Failure
    handle: Handle | AsyncHandle
    group: str | None = None
    seen_before: bool = False


class Stage(Enum):
    """Where an item is on its way."""

    WAITING = auto()  # not asked about yet
    CLAIMING = auto()  # the store is being asked
    HELD = auto()  # claimed, and kept until its turn
    READY = auto()  # its turn has come
    RUNNING = auto()  # its handler runs
    SETTLING = auto()  # its end is being recorded, or sent to the dead-letter queue


@dataclass(slots=True, eq=False)
class Item:
    """One work on its way. `followers` have the same key and wait for this one's end; `outcomes` are those of earlier
    works of its key, by their payloads' fingerprints.
    """

    index: int
    work: Work
    stage: Stage = Stage.WAITING
    assumed: Record | Unread | None = None
    held: Claimed | None = None
    failure: Failure | None = None
    outcome: Outcome | None = None
    followers: "deque[Item] | None" = None
    outcomes: dict[str | None, Outcome] | None = None

    @property
    def claim(self) -> Claim:
        """The claim to make; only asked of items that have one."""
        assert isinstance(self.work.claim, Claim)
        return self.work.claim


class Order:
    """Who waits for whom: in a group each for the one before it, and of one key all for the first.

    Everybody waits only for earlier items of the batch, so nobody waits in a circle.
    """

    def __init__(self, works: Sequence[Work]) -> None:
        self.items = [Item(index, work) for index, work in enumerate(works)]
        self._groups: dict[str, deque[Item]] = {}
        self.leaders: list[Item] = []
        """The items that need not wait for another of their key."""
        leaders: dict[str, Item] = {}
        for item in self.items:
            if item.work.group is not None:
                self._groups.setdefault(item.work.group, deque()).append(item)
            leader = leaders.setdefault(item.claim.id, item) if isinstance(item.work.claim, Claim) else item
            if leader is item:
                self.leaders.append(item)
            else:
                # Made where it is needed: a batch of thousands has few of them.
                leader.followers = leader.followers or deque()
                leader.followers.append(item)

    def has_turn(self, item: Item) -> bool:
        """Whether nothing of the item's group stands before it."""
        return item.work.group is None or self._groups[item.work.group][0] is item

    def advance(self, ended: Item) -> tuple[Item | None, Iterable[Item]]:
        """Whose turn it is in the group of an item that has ended, and who never gets one because of a failure."""
        line = self._groups.get(ended.work.group) if ended.work.group is not None else None
        if line is None:
            return None, ()
        while line and line[0].outcome is not None:
            if not succeeded(line[0].outcome):
                return None, [item for item in line if item.outcome is None]
            line.popleft()
        return (line[0] if line else None), ()

    def is_blocked(self, item: Item) -> bool:
        """Whether an earlier item of the group has failed."""
        line = self._groups.get(item.work.group) if item.work.group is not None else None
        first = line[0].outcome if line else None
        return first is not None and not succeeded(first)


def mirrored(outcome: Outcome) -> Outcome:
    """What the outcome of a key's first item means for a second one with the same payload."""
    match outcome:
        case CompletedOutcome(record=record):
            return Duplicate(record)
        case DeadLettered(failure=failure):
            # Only the first message's dead letter is confirmed: this one comes again and gets its own.
            return Failed(failure)
        case _:
            return outcome
