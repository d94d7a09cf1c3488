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
from idempotent_receiver.protocol.store import Conflict
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation.invariants import CLOCKS_DIFFER_SECONDS
from tests.simulation.worker_state import ANOTHER, FAR, OBJECT, OVER_MS, WorkerState, counted_with, far

if TYPE_CHECKING:
    from tests.simulation.setups import Setup
    from tests.simulation.step_functions_model import Execution

    Item = dict[str, Any]

ON_THE_WAY = "on the way"
"""Stands for the answer of a statement that has not been applied."""
NAMED = ("version", "owner", "in_progress_expiration", "expiration")
"""The attributes of a record that are names or times; the others are compared as they are."""
UNNAMED = tuple(name for name in ATTRIBUTES if name not in (*NAMED, "data", "charged"))
_named_of, _unnamed_of = attrgetter(*NAMED), attrgetter(*UNNAMED)


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A write that is still under way although nobody waits for its answer."""

    kind: str
    part: Any
    writer: str

    @property
    def change(self) -> Change:
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
    runs: frozenset[tuple[str, str]] = frozenset()
    """With dead letters only: the runs that have started, by worker and id."""
    before: frozenset[tuple[str, str, str]] = frozenset()
    """With dead letters only: worker, id, and who has recorded a failure of it after the run had started."""
    overruled: frozenset[tuple[str, str]] = frozenset()
    """The runs that started before a failure of which a dead letter was sent."""
    results: frozenset[tuple[str, str, str, int]] = frozenset()
    """With short retentions only: the completions by id, owner, result, and when they expire."""
    completions: dict[str, int] = field(default_factory=dict)
    """With short retentions only: how often each record was completed."""
    sent: frozenset[tuple[str, str]] = frozenset()
    """The messages that SQS has taken, by the ids of the records that sent them, and their keys."""
    bucket: dict[str, str] = field(default_factory=dict)
    """With large results only: the objects."""
    clock_stepped: str | None = None
    """The worker whose wall clock has stepped and that has not read it since."""

    def copy(self) -> State:
        copy = State(*_values_of(self))
        copy.workers = [worker.copy() for worker in self.workers]
        return copy

    @property
    def now_ms(self) -> float:
        return (START_EPOCH_SECONDS + self.now) * 1000

    @property
    def latest_ms(self) -> float:
        """The time by a clock that is ahead, where that decides what has expired."""
        return self.now_ms + (CLOCKS_DIFFER_SECONDS * 500 if self.setup.retention_seconds else 0)

    @property
    def over(self) -> bool:
        """Whether all workers are over. What is redriven is never received where there is no dead letter."""
        return all(worker.over or (worker.unreceived and not self.dead_lettered) for worker in self.workers)

    def named(self, name: str) -> WorkerState:
        return next(worker for worker in self.workers if worker.name == name)

    def faulted(self, name: str) -> WorkerState:
        """The worker of that name, which meets a fault."""
        worker = self.named(name)
        worker.had_fault = True
        return worker

    def there(self, id: str) -> str | None:
        return self.items.get(id, {}).get("version")

    def forget_hopeless(self) -> None:
        """Drop the requests on the wire that will be refused whenever they arrive.

        Where records are never deleted, an insert fails once there is a record. A version that was replaced never comes
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
        absent = absent and self.setup.retention_seconds is None
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
            [(worker.receives, worker.variant) for worker in self.workers if worker.history is None],
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
            sorted(self.sent),
            sorted(
                (id, names.of(owner) if owner in writing else ANOTHER, result, names.expiration(at))
                for id, owner, result, at in self.results
            ),
            sorted(self.completions.items()),
            sorted((names.data(name), text) for name, text in self.bucket.items()),
            sorted((names.of(name), id) for name, id in self.runs if name in writing),
            sorted(
                (names.of(name), id, names.of(other))
                for name, id, other in self.before
                if other in writing and (name in writing or self.items.get(id, {}).get("owner") == name)
            ),
            sorted((names.of(name), id) for name, id in self.overruled if name in writing),
            self.clock_stepped is not None,
        )
        return blake2b(marshal.dumps(whole, 2), digest_size=16).digest()


_values_of = attrgetter(*State.__slots__)


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
        return None if until_ms is None else max(until_ms - self._now_ms, -OVER_MS)

    def expiration(self, at: int | None) -> int | None:
        """The time until a record expires, where somebody lives to see it."""
        return far(at) if at is None or at >= FAR else max(at * 1000 - self._now_ms, -OVER_MS)

    def data(self, data: str | None) -> str | None:
        """A result, or the place where it is."""
        return data and OBJECT.sub(lambda found: f"/{self.of(found[1])}.json", data)

    def stored(self, item: Item) -> tuple[Any, ...]:
        charged = counted_with(item.get("charged"), self.of)
        return (*self._shown(*map(item.get, NAMED)), self.data(item.get("data")), charged, *map(item.get, UNNAMED))

    def written(self, record: Record) -> tuple[Any, ...]:
        charged = counted_with(record.charged, self.of)
        return (*self._shown(*_named_of(record)), self.data(record.data), charged, *_unnamed_of(record))

    def _shown(
        self, version: str | None, owner: str | None, lease: int | None, expiration: int | None
    ) -> tuple[Any, ...]:
        # A worker that will neither write nor be checked again needs no name of its own.
        nobody = owner is not None and owner not in self._writing
        return self.of(version), ANOTHER if nobody else self.of(owner), self.lease(lease), self.expiration(expiration)

    def on_the_wire(self, request: WireRequest) -> tuple[Any, ...]:
        return (request.kind, *((None, request.part[0]) if request.kind == "start" else self._write(request)))

    def _write(self, request: WireRequest) -> tuple[Any, ...]:
        return self.of(request.writer), self.changed(request.change)

    def changed(self, change: Change) -> tuple[Any, ...]:
        """A write."""
        return self.written(change.new), None if change.seen is None else self.of(change.seen.version)

    def worker(self, worker: WorkerState) -> tuple[Any, ...]:
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
