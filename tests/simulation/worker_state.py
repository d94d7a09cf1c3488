"""A worker of the explored world: one invocation, its answers under way, and the names that it has for others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.store import Commit, Conflict
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation.adapters import ME
from tests.simulation.setups import REDRIVEN

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.controlled_worker import Call
    from tests.simulation.history import History

FAR = int(START_EPOCH_SECONDS) + 1_000_000
"""Stands for every `expiration` that no worker lives to see."""
OVER_MS = 4000
"""A lease that ended this long ago has ended by every clock, and causes no contention."""
OBJECT = re.compile(r"/(\w+-?\d+)\.json")
"""The version in the name of an object for a large result."""
CHARGED = re.compile(r'"version": "([^"]+)"')
"""The version with which a count of charged attempts was written."""
ANOTHER = "another"
"""Stands for every owner but the worker itself: the owner is informational."""
OPERATORS = ("alice", "bob", "carol")
"""Owners that are never renamed: by its owner a record of a resend is known."""


@dataclass(slots=True)
class WorkerState:
    """One invocation: not started, live, or over.

    Each process calls itself `ME` and counts time from its start, so that workers that have received the same events
    share their history.
    """

    name: str
    receives: int
    variant: int = 0
    """Which consumer it is, or which payload it receives."""
    history: History | None = None
    over: bool = False
    started: float = 0.0
    wall: float = 0.0
    """Its wall clock's error."""
    off: float = 0.0
    """Its wall clock's error at the start; clocks only step forward from there."""
    answers: tuple[tuple[int, tuple[Any, ...]], ...] = ()
    """For each call that it waits for, the answers of its statements, or `ON_THE_WAY`."""
    names: tuple[str, ...] = ()
    """The versions of other workers, in the order in which it saw them."""
    slow: tuple[int, ...] = ()
    """The calls whose answers may arrive after anything else."""
    had_fault: bool = False
    contended: bool = False
    overran: bool = False

    def copy(self) -> WorkerState:
        return WorkerState(*_values_of(self))

    @property
    def live(self) -> bool:
        return self.history is not None and not self.over

    @property
    def unreceived(self) -> bool:
        """Whether it waits for a dead letter that is redriven."""
        return self.history is None and self.receives == REDRIVEN

    def call(self, number: int) -> Call:
        """A call that it waits for."""
        assert self.history is not None, "a live worker has a history"
        return self.history.calls[number]

    def since(self, now: float) -> float:
        return round(now - self.started, 3)

    def waits(self) -> list[tuple[int, Call, tuple[Any, ...]]]:
        """The calls that it waits for: number, call, answers."""
        return [(number, self.call(number), answers) for number, answers in self.answers]

    def end(self) -> None:
        """From now on it neither does nor receives anything."""
        self.over, self.answers, self.names, self.slow = True, (), (), ()

    def sent(self, call: Call, place: int) -> Any:
        """A statement of a call, with the names that all workers share."""
        known = (place, self.name, self.started, self.names)
        if known not in call.sent:
            call.sent[known] = self.world_wide(call.parts[place])
        return call.sent[known]

    def world_wide(self, part: Any) -> Any:
        """One of this worker's statements, with the names and times that all workers share."""
        if isinstance(part, Change):
            return Change(self.world_wide(part.new), None if part.seen is None else self.world_wide(part.seen))
        if isinstance(part, Commit):
            return part._replace(change=self.world_wide(part.change))
        if type(part) is tuple:
            return (self.world_wide(part[0]), *part[1:])
        if isinstance(part, str):
            return OBJECT.sub(lambda found: f"/{self._known(found[1])}.json", part)
        if not isinstance(part, Record):
            return part
        owner, lease = self.name if part.owner == ME else part.owner, part.in_progress_expiration
        lease = None if lease is None else lease + round(self.started * 1000)
        expiration = part.expiration
        if self.started and expiration is not None and expiration < FAR:
            expiration += ceil(self.started)
        return part._replace(
            data=part.data and self.world_wide(part.data),
            charged=counted_with(part.charged, self._known),
            version=self._known(part.version),
            owner=owner,
            in_progress_expiration=lease,
            expiration=expiration,
        )

    def _known(self, version: str | None) -> str | None:
        if version is None:
            return None
        if version.startswith("x"):
            return self.names[int(version[1:])]
        return self.name + version.removeprefix(ME)

    def own(self, answer: Any, now: float) -> Any:
        """An answer in this worker's own names and times, for its history.

        The versions of others are named by the order in which it saw them. Its own clock never goes back, so a lease
        that has ended by that clock stays ended: all such leases are equal, and so is all that has expired.
        """
        if isinstance(answer, Conflict) and answer.found is not None:
            return Conflict(self.own(answer.found, now))
        if not isinstance(answer, Record):
            return answer
        lease, expiration = answer.in_progress_expiration, far(answer.expiration)
        clock = round((START_EPOCH_SECONDS + self.since(now) + self.off) * 1000)
        if lease is not None:
            lease = lease - round(self.started * 1000)
            lease = lease if lease >= clock else round(START_EPOCH_SECONDS * 1000) - OVER_MS
        if expiration is not None and expiration < FAR:
            expiration = ceil(expiration - self.started)
            expiration = expiration if expiration * 1000 > clock else int(START_EPOCH_SECONDS) - OVER_MS // 1000
        data = answer.data and OBJECT.sub(lambda found: f"/{self._called(found[1])}.json", answer.data)
        return answer._replace(
            data=data,
            charged=counted_with(answer.charged, self._called),
            version=self._called(answer.version),
            owner=self._owner(answer.owner),
            in_progress_expiration=lease,
            expiration=expiration,
        )

    def _owner(self, owner: str | None) -> str | None:
        if owner is None or owner in OPERATORS:
            return owner
        return ME if owner == self.name else ANOTHER

    def _called(self, version: str | None) -> str | None:
        if version is None:
            return None
        writer, _, number = version.partition("-")
        if writer == self.name:
            return f"{ME}-{number}"
        if version not in self.names:
            self.names += (version,)
        return f"x{self.names.index(version)}"


_values_of = attrgetter(*WorkerState.__slots__)


def counted_with(charged: str | None, name: Callable[[str], str | None]) -> str | None:
    """A count of charged attempts, with another name for its version."""
    return charged and CHARGED.sub(lambda found: f'"version": "{name(found[1])}"', charged)


def far(expiration: int | None) -> int | None:
    """When a record expires; the same for all moments that no worker lives to see."""
    return expiration if expiration is None or expiration < FAR else FAR
