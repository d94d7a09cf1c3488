"""The random simulation's monitor: checks every write, handler start and answer, and the final state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Commit
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation import invariants
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.testing.world import World
    from tests.simulation.process import Invocation
    from tests.simulation.sqs_model import QueueModel

NO_TIME_SECONDS = 1.1
"""With less time than this left, an invocation may leave work undone."""


class Monitor:
    """The table, and the checks of what happens to it. `effects`: whether handlers write through transactions."""

    def __init__(self, world: World, queue: QueueModel, log: Callable[[str], None], *, effects: bool) -> None:
        self.world = world
        self.queue = queue
        self.log = log
        self.effects = effects
        self.violations: list[Violation] = []
        self.succeeded: set[tuple[str, str]] = set()
        """The invocations and ids whose handlers have returned."""
        self._memory = MemoryStore(tables={"Entries": "id"})
        self._entries = self._memory.tables["Entries"].items
        self._on_the_wire: dict[str, int] = {}

    @property
    def now_ms(self) -> float:
        """The true time."""
        return (START_EPOCH_SECONDS + self.world.now) * 1000

    def item(self, id: str) -> dict[str, Any] | None:
        """A record as the table holds it."""
        return self._memory.items.get(id)

    def violated(self, violation: Violation) -> None:
        """Record a violation. Raising it here would not do: the code under test handles any exception."""
        self.log(str(violation))
        self.violations.append(violation)

    def effect(self, kind: str, part: Any) -> Any:
        """Apply a statement, and check it."""
        if kind == "read":
            return self._memory.read([part])[0]
        id, writer = _target(part)
        before = self.item(id)
        if kind == "commit":
            (answer,) = self._memory.commit([part])
        else:
            answer = (self._memory.insert if kind == "insert" else self._memory.replace)([part])[0]
        after = self.item(id)
        if before is not after:
            self.log(f"{writer}: {kind}: {invariants.shown(after)}")
            self._check(invariants.check_write, before, after, writer, self.now_ms, self.succeeded)
            self._check_effect(id)
        return answer

    def delay(self, seconds: float, kind: str, part: Any) -> None:
        """Apply a statement later."""
        id, _ = _target(part)
        self._on_the_wire[id] = self._on_the_wire.get(id, 0) + 1

        def arrive() -> None:
            self._on_the_wire[id] -= 1
            self.effect(kind, part)

        self.world.spawn(arrive, after=seconds)

    def invocation_started(self, mine: Invocation, others: Iterable[Invocation]) -> None:
        """Record the start of an invocation, and which others contend with it."""
        ids = {message.id for message in mine.messages}
        for other in others:
            if ids & {message.id for message in other.messages}:
                mine.contended = other.contended = True
        # A lease that has just expired may still be live by this worker's clock.
        by_then = self.now_ms - 2000 * invariants.CLOCKS_DIFFER_SECONDS
        for id in ids:
            mine.contended |= invariants.live(self.item(id), by_then) or self._on_the_wire.get(id, 0) > 0

    def handler_started(self, invocation: Invocation, id: str, others: Iterable[Invocation]) -> None:
        """Check the start of a handler."""
        # An invocation that outlives its deadline no longer counts: only its fencing stops it.
        in_time = [other for other in others if self.world.now < other.started + BUDGET_SECONDS]
        running = [other.name for other in in_time if id in other.running]
        self._check(invariants.check_start, id, invocation.name, self.item(id), self.now_ms, running)
        if self.queue.fifo:
            self._check(self._in_order, invocation.name, id)

    def answered(self, invocation: Invocation, failed: Sequence[str]) -> None:
        """Check the answer of an invocation."""
        name, batch = invocation.name, [message.id for message in invocation.messages]
        self.log(f"{name} answers: {', '.join(failed) or 'all done'}")
        self._check(invariants.check_answer, batch, failed)
        for id in batch:
            if id not in failed:
                self._check(
                    invariants.check_acknowledged, id, name, self.item(id), self.now_ms, self.queue.dead_letters
                )
        took = self.world.now - invocation.started
        if invocation.fault_count == 0 and took < BUDGET_SECONDS - NO_TIME_SECONDS:
            self._check(invariants.check_left_behind, name, [self.item(id) for id in batch], self.now_ms)
        uncontended = invocation.fault_count <= 1 and not (
            invocation.contended or invocation.failed or invocation.stepped
        )
        # No message was left for lack of time: no run took longer than the time left after it.
        if uncontended and took < (BUDGET_SECONDS - NO_TIME_SECONDS) / 2:
            self._check(invariants.check_progress, name, failed)

    def settled(self, *, flawless: bool) -> None:
        """Check that every message is completed and deleted, or dead for a reason, and that its effect agrees."""
        for message in self.queue.messages.values():
            item, dead_letter = self.item(message.id), self.queue.dead_letters.get(message.id)
            if not message.gone and not self.violations:
                self.violated(Violation("I6", f"{message.id} is neither deleted nor dead"))
            if (
                message.deleted
                and not invariants.completed(item, self.now_ms)
                and not (dead_letter and dead_letter["reason"])
            ):
                self.violated(Violation("I4", f"{message.id} is deleted: {invariants.shown(item)}"))
            if message.dead_because is not None and flawless:
                self.violated(Violation("I9", f"{message.id} is dead without a fault: {message.dead_because}"))
            self._check_effect(message.id)

    def _in_order(self, name: str, id: str) -> None:
        group = self.queue.messages[id].group
        for message in self.queue.messages.values():
            if message.id == id:
                return
            done = invariants.completed(self.item(message.id), self.now_ms)
            if (
                message.group == group
                and not done
                and message.dead_because is None
                and message.id not in self.queue.dead_letters
            ):
                raise Violation("FIFO", f"{name} starts {id} although {message.id} of its group has not ended well")

    def _check_effect(self, id: str) -> None:
        if self.effects:
            times = int(self._entries.get((id,), {}).get("times", 0))
            self._check(invariants.check_effect, id, self.item(id), times)

    def _check(self, check: Callable[..., None], *facts: Any) -> None:
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
