"""A state of the explored world: table, time, workers, and requests that are still on the wire.

Two states are the same if nothing that can come differs: the table's contents, the time, what each live worker has been
told, the answers under way, the requests on the wire and the faults left. Versions are opaque, so they count by the
order in which they appear.
"""

from __future__ import annotations

import marshal
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from idempotent_receiver.record import Change, Record
from idempotent_receiver.store import Conflict
from tests.simulation.world import START_EPOCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.held import Call, Setup
    from tests.simulation.past import Past

ON_THE_WAY = "on the way"
"""Stands for the answer of a statement that has not been applied."""


@dataclass(slots=True)
class Worker:
    """One invocation: not begun, live, or over."""

    name: str
    receives: int
    past: Past | None = None
    over: bool = False
    started: float = 0.0
    wall: float = 0.0
    answers: tuple[tuple[int, tuple[Any, ...]], ...] = ()
    """Of each call that it waits for, the answers of its statements so far, or that one is still on the way."""
    names: tuple[str, ...] = ()
    """The versions of others that it has seen, in the order in which it saw them."""
    slow: tuple[int, ...] = ()
    """The calls whose answers may take longer than anything else."""
    troubles: int = 0
    contended: bool = False
    overran: bool = False

    @property
    def live(self) -> bool:
        """Whether it runs."""
        return self.past is not None and not self.over

    def call(self, number: int) -> Call:
        """A call that it waits for."""
        assert self.past is not None, "a live worker has a past"
        return self.past.calls[number]

    def waits(self) -> list[tuple[int, Call, tuple[Any, ...]]]:
        """The calls that it waits for: number, call, answers."""
        return [(number, self.call(number), answers) for number, answers in self.answers]

    def world_wide(self, part: Any) -> Any:
        """A statement of this worker's with the versions that everybody knows them by."""
        if isinstance(part, Change) and part.seen is not None:
            version = part.seen.version
            if version is not None and version.startswith("x"):
                return replace(part, seen=replace(part.seen, version=self.names[int(version[1:])]))
        if isinstance(part, tuple):
            return (self.world_wide(part[0]), *part[1:])
        return part

    def own(self, answer: Any) -> Any:
        """An answer with the versions of others by the order in which this worker saw them."""
        if isinstance(answer, Conflict) and answer.found is not None:
            return Conflict(self.own(answer.found))
        if not isinstance(answer, Record) or answer.version is None or answer.version.startswith(self.name + "-"):
            return answer
        if answer.version not in self.names:
            self.names += (answer.version,)
        return replace(answer, version=f"x{self.names.index(answer.version)}")


@dataclass(frozen=True, slots=True)
class Wired:
    """A write that is still under way, though nobody waits for it any more."""

    kind: str
    part: Any
    writer: str


@dataclass(slots=True)
class State:
    """The world at one moment."""

    setup: Setup
    workers: list[Worker]
    faults: int
    now: float = 0.0
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    entries: dict[str, int] = field(default_factory=dict)
    wire: tuple[Wired, ...] = ()
    succeeded: frozenset[tuple[str, str]] = frozenset()
    buried: frozenset[str] = frozenset()

    def copy(self) -> State:
        """Another state, to go on from here."""
        return replace(self, workers=[replace(worker) for worker in self.workers])

    @property
    def now_ms(self) -> float:
        """The true time."""
        return (START_EPOCH_SECONDS + self.now) * 1000

    def item(self, id: str) -> dict[str, Any] | None:
        """A record as the table holds it."""
        return self.items.get(id)

    def key(self) -> bytes:
        """The same for two states from which the same can come."""
        rename = _renaming({worker.name for worker in self.workers if worker.live})
        table = [_shelved(item, rename) for _, item in sorted(self.items.items())]
        wire = [(one.kind, one.writer, _sent(one.part, rename)) for one in self.wire]
        workers = [_standing(worker, rename) for worker in self.workers]
        rest = (self.now, self.faults, sorted(self.entries.items()))
        confirmed = (sorted(self.succeeded), sorted(self.buried))
        whole = (table, wire, workers, rest, confirmed)
        return blake2b(marshal.dumps(whole, 2), digest_size=16).digest()


def _renaming(live: set[str]) -> Callable[[str | None], str | None]:
    """Versions by the order in which they appear; those of live workers stand in their pasts by their names."""
    order: dict[str, str] = {}

    def rename(version: str | None) -> str | None:
        if version is None or version.partition("-")[0] in live:
            return version
        return order.setdefault(version, str(len(order)))

    return rename


def _shelved(item: dict[str, Any], rename: Callable[[str | None], str | None]) -> list[Any]:
    return [rename(value) if name == "version" else value for name, value in item.items()]


def _sent(part: Any, rename: Callable[[str | None], str | None]) -> tuple[Any, ...]:
    change = part[0] if isinstance(part, tuple) else part
    if isinstance(change, Change):
        return _written(change.new, rename), rename(change.seen.version) if change.seen is not None else None
    return _written(change, rename) if isinstance(change, Record) else (change,)


def _written(one: Record, rename: Callable[[str | None], str | None]) -> tuple[Any, ...]:
    lease, expiration = one.in_progress_expiration, one.expiration
    return (
        one.id,
        one.status,
        rename(one.version),
        lease,
        expiration,
        one.attempts,
        one.validation,
        one.error,
        one.owner,
    )


def _standing(worker: Worker, rename: Callable[[str | None], str | None]) -> Any:
    if worker.past is None or worker.over:
        return worker.over
    answers = [(number, [_answered(one, rename) for one in some]) for number, some in worker.answers]
    flags = (worker.troubles, worker.contended, worker.overran, worker.wall, worker.started, worker.slow)
    return worker.past.number, answers, [rename(name) for name in worker.names], flags


def _answered(answer: Any, rename: Callable[[str | None], str | None]) -> Any:
    if isinstance(answer, Conflict):
        return ("Conflict", _answered(answer.found, rename))
    if isinstance(answer, Record):
        return _written(answer, rename)
    return None if answer is None else repr(answer)
