"""A state of the explored world: table, time, workers, and requests that are still on the wire.

Two states are the same if nothing that can come differs: the table's contents, the time, what each live worker has been
told, the answers under way, the requests on the wire and the faults left. What is only a name does not count: versions
and owners are opaque, and which worker is which does not matter, since all run the same code; so live workers count by
their places in an order of their own, and all else that is gone by the order in which it appears. Nor does it count
what the time is, but only how far off leases, deadlines and what was heard are from it; and one moment a month away is
as good as another.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field
from hashlib import blake2b
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.record import ATTRIBUTES, Change, Record
from idempotent_receiver.protocol.store import Conflict
from tests.simulation.ways import ME
from tests.simulation.world import START_EPOCH_SECONDS

if TYPE_CHECKING:
    from tests.simulation.held import Call, Setup
    from tests.simulation.machines import Execution
    from tests.simulation.past import Past

    Item = dict[str, Any]

ON_THE_WAY = "on the way"
"""Stands for the answer of a statement that has not been applied."""
FAR = int(START_EPOCH_SECONDS) + 1_000_000
"""Stands for every `expiration` that nobody lives to see."""
OVER_MS = 4000
"""A lease that has been over for so long is over by every clock, and nobody counts as contending for it."""
NAMED = ("version", "owner", "in_progress_expiration", "expiration")
"""The attributes of a record that are names or times; all others count as they are."""
UNNAMED = tuple(name for name in ATTRIBUTES if name not in NAMED)
_named_of, _unnamed_of = attrgetter(*NAMED), attrgetter(*UNNAMED)
ANOTHER = "another"
"""Stands for every owner but the worker itself: owners are for people."""


@dataclass(slots=True)
class Worker:
    """One invocation: not begun, live, or over.

    Its process calls itself `ME`, whoever it is, and counts the time from its start, so that workers that have been
    told the same share their past.
    """

    name: str
    receives: int
    past: Past | None = None
    over: bool = False
    started: float = 0.0
    wall: float = 0.0
    """How far off its wall clock is."""
    off: float = 0.0
    """How far off it was in the beginning: clocks that step go forward from there."""
    answers: tuple[tuple[int, tuple[Any, ...]], ...] = ()
    """Of each call that it waits for, the answers of its statements so far, or that one is still on the way."""
    names: tuple[str, ...] = ()
    """The versions of others that it has seen, in the order in which it saw them."""
    slow: tuple[int, ...] = ()
    """The calls that it waits for whose answers may take longer than anything else."""
    troubled: bool = False
    contended: bool = False
    overran: bool = False

    def copy(self) -> Worker:
        """Another one, to go on from here."""
        return Worker(
            self.name,
            self.receives,
            self.past,
            self.over,
            self.started,
            self.wall,
            self.off,
            self.answers,
            self.names,
            self.slow,
            self.troubled,
            self.contended,
            self.overran,
        )

    @property
    def live(self) -> bool:
        """Whether it runs."""
        return self.past is not None and not self.over

    def call(self, number: int) -> Call:
        """A call that it waits for."""
        assert self.past is not None, "a live worker has a past"
        return self.past.calls[number]

    def since(self, now: float) -> float:
        """How long ago it started."""
        return round(now - self.started, 3)

    def waits(self) -> list[tuple[int, Call, tuple[Any, ...]]]:
        """The calls that it waits for: number, call, answers."""
        return [(number, self.call(number), answers) for number, answers in self.answers]

    def end(self) -> None:
        """It neither does nor hears anything any more."""
        self.over, self.answers, self.names, self.slow = True, (), (), ()

    def sent(self, call: Call, place: int) -> Any:
        """A statement of a call, as everybody knows it."""
        known = (place, self.name, self.started, self.names)
        if known not in call.sent:
            call.sent[known] = self.world_wide(call.parts[place])
        return call.sent[known]

    def world_wide(self, part: Any) -> Any:
        """A statement of this worker's with the names that everybody knows."""
        if isinstance(part, Change):
            return Change(self.world_wide(part.new), None if part.seen is None else self.world_wide(part.seen))
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
        """An answer as it concerns this worker alone, for its past.

        The versions of others count by the order in which it saw them. A lease that is over by its own clock will be
        so ever after, since that never goes back, be it stepped or not: so all of these count as one.
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
    """When a record expires, where somebody may live to see it."""
    return expiration if expiration is None or expiration < FAR else FAR


@dataclass(frozen=True, slots=True)
class Wired:
    """A write that is still under way, though nobody waits for it any more."""

    kind: str
    part: Any
    writer: str

    @property
    def change(self) -> Change:
        """What it changes."""
        part = self.part[0] if self.kind == "commit" else self.part
        return Change(part, None) if self.kind == "insert" else part


@dataclass(slots=True)
class State:
    """The world at one moment."""

    setup: Setup
    workers: list[Worker]
    faults: int
    now: float = 0.0
    items: dict[str, Item] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    wire: tuple[Wired, ...] = ()
    succeeded: frozenset[tuple[str, str]] = frozenset()
    buried: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()
    """The versions that were in the table and have been replaced."""
    executions: dict[str, Execution] = field(default_factory=dict)
    """Of a workflow: by their names, which end their records' ids."""
    stepped: str | None = None
    """The worker whose wall clock has stepped, and who has not looked at it since."""

    def copy(self) -> State:
        """Another state, to go on from here."""
        return State(
            self.setup,
            [worker.copy() for worker in self.workers],
            self.faults,
            self.now,
            self.items,
            self.entries,
            self.wire,
            self.succeeded,
            self.buried,
            self.gone,
            self.executions,
            self.stepped,
        )

    @property
    def now_ms(self) -> float:
        """The true time."""
        return (START_EPOCH_SECONDS + self.now) * 1000

    def item(self, id: str) -> Item | None:
        """A record as the table holds it."""
        return self.items.get(id)

    def forget_hopeless(self) -> None:
        """Drop the requests on the wire that will be refused, whenever they arrive.

        Records are never deleted, so an insert has no hope once there is one; and a version that has been replaced
        never comes back, since no two writes put the same one and a copy of a write names what it replaces.
        """
        if self.wire:
            self.wire = tuple(wired for wired in self.wire if not self._hopeless(wired))

    def _hopeless(self, wired: Wired) -> bool:
        if wired.kind == "start":
            # What runs or has run under a name is there for good: another start of it changes nothing.
            return wired.part[0] in self.executions
        change = wired.change
        expected = change.expected
        absent = "id" in expected and expected["id"] is None and change.new.id in self.items
        return absent or expected.get("version") in self.gone

    def key(self) -> bytes:
        """The same for two states from which the same can come."""
        live = [worker for worker in self.workers if worker.live]
        if len(live) > 1:
            live.sort(key=_order)
        writing = {worker.name for worker in live}
        if self.wire:
            writing.update(wired.writer for wired in self.wire)
        names = _Names({worker.name: f"{place}-" for place, worker in enumerate(live)}, writing, self.now)
        executions = [self.executions[name] for name in sorted(self.executions)]
        whole = (
            self.faults,
            [worker.receives for worker in self.workers if worker.past is None],
            [names.shelved(self.items[id]) for id in sorted(self.items)],
            [names.standing(worker) for worker in live],
            [names.under_way(one) for one in self.wire],
            # Their inputs are all the same; how long one has run says when it must end.
            [(one.status, one.word, one.status == "RUNNING" and round(self.now - one.began, 3)) for one in executions],
            sorted(self.entries.items()),
            sorted((names.of(name), id) for name, id in self.succeeded if name in writing),
            sorted(self.buried),
            self.stepped is not None,
        )
        return blake2b(marshal.dumps(whole, 2), digest_size=16).digest()


def _order(worker: Worker) -> tuple[Any, ...]:
    assert worker.past is not None, "it is live"
    return worker.past.number, worker.started, worker.contended, worker.troubled, worker.wall, worker.overran


class _Names:
    """What things are called in a state's key, where names and times do not count.

    Workers, and the versions that they drew, are called by the live workers' places, the others' by the order in which
    they appear. `writing`: who may still write.
    """

    def __init__(self, places: dict[str, str], writing: set[str], now: float) -> None:
        self._places = places
        self._writing = writing
        self._now = now
        self._now_ms = round((START_EPOCH_SECONDS + now) * 1000)
        self._others: dict[str, int] = {}

    def of(self, name: str | None) -> str | None:
        """What a worker or a version is called."""
        if name is None:
            return None
        writer, _, number = name.partition("-")
        place = self._places.get(writer)
        return self._others.setdefault(name, str(len(self._others))) if place is None else place + number

    def lease(self, until_ms: int | None) -> int | None:
        """How far off the end of a lease is."""
        return None if until_ms is None else max(until_ms - self._now_ms, -OVER_MS)

    def shelved(self, item: Item) -> tuple[Any, ...]:
        """A record as the table holds it."""
        return (*self._shown(*map(item.get, NAMED)), *map(item.get, UNNAMED))

    def written(self, record: Record) -> tuple[Any, ...]:
        """A record under way."""
        return (*self._shown(*_named_of(record)), *_unnamed_of(record))

    def _shown(
        self, version: str | None, owner: str | None, lease: int | None, expiration: int | None
    ) -> tuple[Any, ...]:
        # Who will neither write nor be judged any more is nobody in particular.
        nobody = owner is not None and owner not in self._writing
        return self.of(version), ANOTHER if nobody else self.of(owner), self.lease(lease), far(expiration)

    def under_way(self, wired: Wired) -> tuple[Any, ...]:
        """A request on the wire. Who asks for a start makes no difference to it."""
        return (wired.kind, *((None, wired.part[0]) if wired.kind == "start" else self._write(wired)))

    def _write(self, wired: Wired) -> tuple[Any, ...]:
        return self.of(wired.writer), self.changed(wired.change)

    def changed(self, change: Change) -> tuple[Any, ...]:
        """A write."""
        return self.written(change.new), None if change.seen is None else self.of(change.seen.version)

    def standing(self, worker: Worker) -> tuple[Any, ...]:
        """A live worker."""
        assert worker.past is not None, "it is live"
        answers = [
            (number, [one if one is ON_THE_WAY else self._answered(one) for one in some])
            for number, some in worker.answers
        ]
        flags = (worker.troubled, worker.contended, worker.overran, worker.wall, worker.slow)
        versions = [self.of(version) for version in worker.names]
        return worker.past.number, worker.since(self._now), answers, versions, flags

    def _answered(self, answer: Any) -> Any:
        if isinstance(answer, Conflict):
            return ("Conflict", self._answered(answer.found))
        if isinstance(answer, Record):
            return self.written(answer)
        return None if answer is None else repr(answer)
