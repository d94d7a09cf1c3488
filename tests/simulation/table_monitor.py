"""The table of a random world: what was written to it, when, and what was violated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Commit
from idempotent_receiver.testing.memory import Table
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation import invariants
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.testing.world import World
    from tests.simulation.invariants import Item
    from tests.simulation.process import Invocation

NO_TIME_SECONDS = 1.1
"""With less time than this left, an invocation may leave work undone."""
HALF_MS = invariants.CLOCKS_DIFFER_SECONDS * 500
"""The largest error of a clock."""


class TableMonitor:
    def __init__(self, world: World, log: Callable[[str], None]) -> None:
        self.world = world
        self.log = log
        self.violations: list[Violation] = []
        self.memory = MemoryStore(tables={"Entries": "id", "Accounts": "id", "Open": Table("id")})
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
        before = self.item(id)
        (answer,) = getattr(self.memory, kind)([part])
        self.applied(kind, id, before, writer or owner)
        return answer

    def applied(self, kind: str, id: str, before: Item | None, writer: str) -> None:
        """Check what a statement has made of a record."""
        after = self.item(id)
        if after is not None and before is not after:
            self.log(f"{writer}: {kind}: {id}: {invariants.shown(after)}")
            self._past.setdefault(id, []).append((self.world.now, after))
            self.check(self.written, before, after, writer)

    def written(self, before: Item | None, after: Item, writer: str) -> None:
        """Check a write that took effect. Raises Violation."""
        raise NotImplementedError

    def delete_expired(self) -> None:
        """TTL deletes what has expired, by its own clock."""
        for id, item in [*self.memory.items.items()]:
            if item["expiration"] * 1000 <= self.now_ms:
                self.log(f"TTL deletes {invariants.shown(item)}")
                del self.memory.items[id]
                self._past[id].append((self.world.now, None))
                self.deleted(item)

    def deleted(self, item: Item) -> None:
        """TTL has deleted a record."""

    def delay(self, seconds: float, kind: str, part: Any) -> None:
        id, _ = _target(part)
        self._on_the_wire[id] = self._on_the_wire.get(id, 0) + 1

        def arrive() -> None:
            self._on_the_wire[id] -= 1
            self.effect(kind, part)

        self.world.spawn(arrive, after=seconds)

    def committing(self, invocation: Invocation, items: Sequence[str]) -> None:
        """Check the items of transactions that are sent in one request."""
        before = {item for request in invocation.committing for item in request}
        if len(set(items)) < len(items) or before & set(items):
            what = f"{invocation.name} sends transactions on {items}, while others are under way on {sorted(before)}"
            self.violated(Violation("TURNS", what))

    def invocation_started(self, mine: Invocation, others: Iterable[Invocation]) -> None:
        """Record which invocations contend with each other."""
        for other in others:
            if set(mine.ids) & set(other.ids):
                mine.contended = other.contended = True
        # A lease that has just expired may still be live by this worker's clock.
        by_then = self.now_ms - 2000 * invariants.CLOCKS_DIFFER_SECONDS
        for id in mine.ids:
            mine.contended |= invariants.live(self.item(id), by_then) or self._on_the_wire.get(id, 0) > 0

    def running(self, id: str, invocations: Iterable[Invocation]) -> list[str]:
        """Those that run a record's handler. One that outlives its deadline no longer counts: its fencing stops it."""
        in_time = [one for one in invocations if self.world.now < one.started + BUDGET_SECONDS]
        return [one.name for one in in_time if id in one.running]

    def left_nothing(self, invocation: Invocation) -> bool:
        """Check that an invocation that has answered leaves no claim behind. Whether I9 holds of it: no message was
        left for lack of time, since no run took longer than the time left after it.
        """
        took = self.world.now - invocation.started
        if invocation.fault_count == 0 and took < BUDGET_SECONDS - NO_TIME_SECONDS:
            items = [self.item(id) for id in invocation.ids]
            self.check(invariants.check_left_behind, invocation.name, items, self.now_ms)
        return invocation.undisturbed and took < (BUDGET_SECONDS - NO_TIME_SECONDS) / 2

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
