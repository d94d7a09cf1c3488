"""The table of a random world: what was written to it, when, and what was violated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Commit
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation import invariants
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.testing.world import World
    from tests.simulation.invariants import Item
    from tests.simulation.random_world import Invocation

HALF_MS = invariants.CLOCKS_DIFFER_SECONDS * 500
"""The largest error of a clock."""


class TableMonitor:
    def __init__(self, world: World, log: Callable[[str], None]) -> None:
        self.world = world
        self.log = log
        self.violations: list[Violation] = []
        self.memory = MemoryStore(tables={"Entries": "id"})
        self._past: dict[str, list[tuple[float, Item | None]]] = {}
        """What has stood in the table under each id, and since when."""
        self._on_the_wire: dict[str, int] = {}

    @property
    def now_ms(self) -> float:
        return (START_EPOCH_SECONDS + self.world.now) * 1000

    @property
    def latest_ms(self) -> float:
        """The time by the clock that is furthest ahead: by it a record may have expired."""
        return self.now_ms + HALF_MS

    def item(self, id: str) -> Item | None:
        return self.memory.items.get(id)

    def stood(self, id: str, since: float) -> list[Item | None]:
        """What has stood there at some time since then."""
        past = [(-1.0, None), *self._past.get(id, [])]
        ends = [began for began, _ in past[1:]] + [self.world.now]
        return [item for (_, item), end in zip(past, ends, strict=True) if end >= since]

    def effect(self, kind: str, part: Any, writer: str | None = None) -> Any:
        """Apply a statement, and check it. Its writer is the owner that it names, unless it is somebody else."""
        if kind == "read":
            return self.memory.read([part])[0]
        id, owner = _target(part)
        writer = writer or owner
        before = self.item(id)
        act = {"insert": self.memory.insert, "replace": self.memory.replace, "commit": self.memory.commit}[kind]
        (answer,) = act([part])  # type: ignore[operator]  # each takes its own parts
        after = self.item(id)
        if before is not after:
            self.log(f"{writer}: {kind}: {id}: {invariants.shown(after)}")
            self._past.setdefault(id, []).append((self.world.now, after))
            self.check(self.written, before, after, writer)
        return answer

    def written(self, before: Item | None, after: Item, writer: str) -> None:
        """Check a write that took effect. Raises Violation."""
        raise NotImplementedError

    def delete_expired(self) -> None:
        """Delete what has expired, as DynamoDB does, sooner or later."""
        for id in [id for id, item in self.memory.items.items() if item["expiration"] * 1000 <= self.now_ms]:
            self.log(f"TTL deletes {id}")
            del self.memory.items[id]
            self._past[id].append((self.world.now, None))

    def delay(self, seconds: float, kind: str, part: Any) -> None:
        id, _ = _target(part)
        self._on_the_wire[id] = self._on_the_wire.get(id, 0) + 1

        def arrive() -> None:
            self._on_the_wire[id] -= 1
            self.effect(kind, part)

        self.world.spawn(arrive, after=seconds)

    def committing(self, invocation: Invocation, items: Sequence[str]) -> None:
        """A call commits one transaction."""

    def invocation_started(self, mine: Invocation, others: Iterable[Invocation]) -> None:
        """Record which invocations contend with each other."""
        for other in others:
            if set(mine.ids) & set(other.ids):
                mine.contended = other.contended = True
        # A lease that has just expired may still be live by this worker's clock.
        by_then = self.now_ms - 2000 * invariants.CLOCKS_DIFFER_SECONDS
        for id in mine.ids:
            mine.contended |= invariants.live(self.item(id), by_then) or self._on_the_wire.get(id, 0) > 0

    def violated(self, violation: Violation) -> None:
        """Record a violation. Raising it here would not do: the code under test handles any exception."""
        self.log(str(violation))
        self.violations.append(violation)

    def check(self, check: Callable[..., None], *facts: Any) -> None:
        try:
            check(*facts)
        except Violation as violation:
            self.violated(violation)


def _target(part: Any) -> tuple[str, str]:
    """The id of the record that a write changes, and its writer. A released record no longer has an owner."""
    change = part.change if isinstance(part, Commit) else part
    if isinstance(change, Record):
        return change.id, str(change.owner)
    return change.new.id, str(change.new.owner or change.seen.owner)
