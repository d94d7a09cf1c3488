"""A state of the explored world: table, time, workers, and the requests that are still on the wire.

Two states are equal if the same can happen from both. That depends on the table's contents, each live worker's history,
the answers under way, the requests on the wire and the faults left. Names do not matter: versions and owners are
opaque, and all workers run the same code. So a key names live workers by their places in a canonical order, and other
writers by the order in which they appear. The absolute time does not matter either, only its distance from leases,
deadlines and events; and all moments that nobody lives to see are equal.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.record import ATTRIBUTES, Change, Record
from idempotent_receiver.protocol.store import Commit, Conflict
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation.adapters import ME

if TYPE_CHECKING:
    from tests.simulation.controlled_worker import Call
    from tests.simulation.history import History
    from tests.simulation.setups import Setup
    from tests.simulation.step_functions_model import Execution

    Item = dict[str, Any]

ON_THE_WAY = "on the way"
"""Stands for the answer of a statement that has not been applied."""
FAR = int(START_EPOCH_SECONDS) + 1_000_000
"""Stands for every `expiration` that no worker lives to see."""
OVER_MS = 4000
"""A lease that ended this long ago has ended by every clock, and causes no contention."""
NAMED = ("version", "owner", "in_progress_expiration", "expiration")
"""The attributes of a record that are names or times; the others are compared as they are."""
UNNAMED = tuple(name for name in ATTRIBUTES if name not in NAMED)
_named_of, _unnamed_of = attrgetter(*NAMED), attrgetter(*UNNAMED)
ANOTHER = "another"
"""Stands for every owner but the worker itself: the owner is informational."""


@dataclass(slots=True)
class WorkerState:
    """One invocation: not started, live, or over.

    Each process calls itself `ME` and counts time from its start, so that workers that have received the same events
    share their history.
    """

    name: str
    receives: int
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
        """A copy to continue from."""
        return WorkerState(
            self.name,
            self.receives,
            self.history,
            self.over,
            self.started,
            self.wall,
            self.off,
            self.answers,
            self.names,
            self.slow,
            self.had_fault,
            self.contended,
            self.overran,
        )

    @property
    def live(self) -> bool:
        """Whether it runs."""
        return self.history is not None and not self.over

    def call(self, number: int) -> Call:
        """A call that it waits for."""
        assert self.history is not None, "a live worker has a history"
        return self.history.calls[number]

    def since(self, now: float) -> float:
        """How long ago it started."""
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
        if not isinstance(part, Record):
            return part
        owner, lease = self.name if part.owner == ME else part.owner, part.in_progress_expiration
        lease = None if lease is None else lease + round(self.started * 1000)
        return part._replace(version=self._known(part.version), owner=owner, in_progress_expiration=lease)

    def _known(self, version: str | None) -> str | None:
        if version is None:
            return None
        if version.startswith("x"):
            return self.names[int(version[1:])]
        return self.name + version.removeprefix(ME)

    def own(self, answer: Any, now: float) -> Any:
        """An answer in this worker's own names and times, for its history.

        The versions of others are named by the order in which it saw them. Its own clock never goes back, so a lease
        that has ended by that clock stays ended: all such leases are equal.
        """
        if isinstance(answer, Conflict) and answer.found is not None:
            return Conflict(self.own(answer.found, now))
        if not isinstance(answer, Record):
            return answer
        lease = answer.in_progress_expiration
        if lease is not None:
            lease = lease - round(self.started * 1000)
            clock = round((START_EPOCH_SECONDS + self.since(now) + self.off) * 1000)
            lease = lease if lease >= clock else round(START_EPOCH_SECONDS * 1000) - OVER_MS
        return answer._replace(
            version=self._called(answer.version),
            owner=None if answer.owner is None else ME if answer.owner == self.name else ANOTHER,
            in_progress_expiration=lease,
            expiration=far(answer.expiration),
        )

    def _called(self, version: str | None) -> str | None:
        if version is None:
            return None
        writer, _, number = version.partition("-")
        if writer == self.name:
            return f"{ME}-{number}"
        if version not in self.names:
            self.names += (version,)
        return f"x{self.names.index(version)}"


def far(expiration: int | None) -> int | None:
    """When a record expires; the same for all moments that no worker lives to see."""
    return expiration if expiration is None or expiration < FAR else FAR


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A write that is still under way although nobody waits for its answer."""

    kind: str
    part: Any
    writer: str

    @property
    def change(self) -> Change:
        """The change that it makes."""
        part = self.part[0] if self.kind == "commit" else self.part
        return Change(part, None) if self.kind == "insert" else part


@dataclass(slots=True)
class State:
    """The world at one moment."""

    setup: Setup
    workers: list[WorkerState]
    faults: int
    now: float = 0.0
    items: dict[str, Item] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    wire: tuple[WireRequest, ...] = ()
    succeeded: frozenset[tuple[str, str]] = frozenset()
    dead_lettered: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    """The versions that have been in the table and were replaced."""
    executions: dict[str, Execution] = field(default_factory=dict)
    """Workflow only: by name. A record's id ends with its execution's name."""
    starts: frozenset[tuple[str, str, str | None]] = frozenset()
    """Without claims only: worker, id, and the version of the record that was there when its handler started."""
    recorded: frozenset[tuple[str, str]] = frozenset()
    """With dead letters only: the workers and ids whose failures have been recorded."""
    clock_stepped: str | None = None
    """The worker whose wall clock has stepped and that has not read it since."""

    def copy(self) -> State:
        """A copy to continue from."""
        return State(
            self.setup,
            [worker.copy() for worker in self.workers],
            self.faults,
            self.now,
            self.items,
            self.entries,
            self.wire,
            self.succeeded,
            self.dead_lettered,
            self.gone,
            self.executions,
            self.starts,
            self.recorded,
            self.clock_stepped,
        )

    @property
    def now_ms(self) -> float:
        """The true time."""
        return (START_EPOCH_SECONDS + self.now) * 1000

    def there(self, id: str) -> str | None:
        """The version of the record that is there."""
        return self.items.get(id, {}).get("version")

    def forget_hopeless(self) -> None:
        """Drop the requests on the wire that will be refused whenever they arrive.

        Records are never deleted, so an insert fails once there is a record. A version that was replaced never comes
        back, since no two writes put the same version and a copy of a write names the version that it replaces.
        """
        if self.wire:
            self.wire = tuple(request for request in self.wire if not self._hopeless(request))

    def _hopeless(self, request: WireRequest) -> bool:
        if request.kind == "start":
            # An execution is never deleted, so a second start under its name changes nothing.
            return request.part[0] in self.executions
        change = request.change
        expected = change.expected
        absent = "id" in expected and expected["id"] is None and change.new.id in self.items
        return absent or expected.get("version") in self.gone

    def key(self) -> bytes:
        """Equal for two states from which the same can happen."""
        live = [worker for worker in self.workers if worker.live]
        if len(live) > 1:
            live.sort(key=_order)
        writing = {worker.name for worker in live}
        if self.wire:
            writing.update(request.writer for request in self.wire)
        names = _Names({worker.name: f"{place}-" for place, worker in enumerate(live)}, writing, self.now)
        executions = [self.executions[name] for name in sorted(self.executions)]
        whole = (
            self.faults,
            [worker.receives for worker in self.workers if worker.history is None],
            [names.stored(self.items[id]) for id in sorted(self.items)],
            [names.worker(worker) for worker in live],
            [names.on_the_wire(one) for one in self.wire],
            # All inputs are equal; an execution's age says when it times out.
            [
                (one.status, one.outcome, one.status == "RUNNING" and round(self.now - one.began, 3))
                for one in executions
            ],
            sorted(self.entries.items()),
            sorted((names.of(name), id) for name, id in self.succeeded if name in writing),
            # What has been replaced since cannot be replaced again.
            sorted(
                (names.of(name), id) for name, id, seen in self.starts if name in writing and seen == self.there(id)
            ),
            sorted((names.of(worker.name), id) for worker in live for name, id in self.recorded if name == worker.name),
            sorted(self.dead_lettered),
            self.clock_stepped is not None,
        )
        return blake2b(marshal.dumps(whole, 2), digest_size=16).digest()


def _order(worker: WorkerState) -> tuple[Any, ...]:
    assert worker.history is not None, "it is live"
    return worker.history.number, worker.started, worker.contended, worker.had_fault, worker.wall, worker.overran


class _Names:
    """Canonical names and relative times for a state's key.

    Live workers, and the versions that they drew, are named by place; others by the order in which they appear.
    `writing` has the workers that may still write.
    """

    def __init__(self, places: dict[str, str], writing: set[str], now: float) -> None:
        self._places = places
        self._writing = writing
        self._now = now
        self._now_ms = round((START_EPOCH_SECONDS + now) * 1000)
        self._others: dict[str, int] = {}

    def of(self, name: str | None) -> str | None:
        """The canonical name of a worker or a version."""
        if name is None:
            return None
        writer, _, number = name.partition("-")
        place = self._places.get(writer)
        return self._others.setdefault(name, str(len(self._others))) if place is None else place + number

    def lease(self, until_ms: int | None) -> int | None:
        """The time until a lease ends."""
        return None if until_ms is None else max(until_ms - self._now_ms, -OVER_MS)

    def stored(self, item: Item) -> tuple[Any, ...]:
        """A record as the table holds it."""
        return (*self._shown(*map(item.get, NAMED)), *map(item.get, UNNAMED))

    def written(self, record: Record) -> tuple[Any, ...]:
        """A record that a request writes."""
        return (*self._shown(*_named_of(record)), *_unnamed_of(record))

    def _shown(
        self, version: str | None, owner: str | None, lease: int | None, expiration: int | None
    ) -> tuple[Any, ...]:
        # A worker that will neither write nor be checked again needs no name of its own.
        nobody = owner is not None and owner not in self._writing
        return self.of(version), ANOTHER if nobody else self.of(owner), self.lease(lease), far(expiration)

    def on_the_wire(self, request: WireRequest) -> tuple[Any, ...]:
        """A request on the wire. For a start it makes no difference who sends it."""
        return (request.kind, *((None, request.part[0]) if request.kind == "start" else self._write(request)))

    def _write(self, request: WireRequest) -> tuple[Any, ...]:
        return self.of(request.writer), self.changed(request.change)

    def changed(self, change: Change) -> tuple[Any, ...]:
        """A write."""
        return self.written(change.new), None if change.seen is None else self.of(change.seen.version)

    def worker(self, worker: WorkerState) -> tuple[Any, ...]:
        """A live worker."""
        assert worker.history is not None, "it is live"
        answers = [
            (number, [one if one is ON_THE_WAY else self._answered(one) for one in some])
            for number, some in worker.answers
        ]
        flags = (worker.had_fault, worker.contended, worker.overran, worker.wall, worker.slow)
        versions = [self.of(version) for version in worker.names]
        return worker.history.number, worker.since(self._now), answers, versions, flags

    def _answered(self, answer: Any) -> Any:
        if isinstance(answer, Conflict):
            return ("Conflict", self._answered(answer.found))
        if isinstance(answer, Record):
            return self.written(answer)
        return None if answer is None else repr(answer)
