"""What must hold in a simulated world: of every write, every start of a handler, every answer, and at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.record import Record
from tests.simulation import invariants
from tests.simulation.invariants import Violation
from tests.simulation.process import BUDGET_SECONDS
from tests.simulation.world import START_EPOCH_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tests.simulation.process import Invocation
    from tests.simulation.sqs_model import Queue
    from tests.simulation.world import World

NO_TIME_SECONDS = 1.1
"""Who has no more left than this may have to leave work undone."""


class Watch:
    """The table, and whoever watches it. `effects`: whether handlers write through their transactions."""

    def __init__(self, world: World, queue: Queue, say: Callable[[str], None], *, effects: bool) -> None:
        self.world = world
        self.queue = queue
        self.say = say
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

    def broken(self, violation: Violation) -> None:
        """Note a violation: raising it inside would only be coped with."""
        self.say(str(violation))
        self.violations.append(violation)

    # What happens to the table.

    def effect(self, kind: str, part: Any) -> Any:
        """Let a statement take effect."""
        if kind == "read":
            return self._memory.read([part])[0]
        id, writer = _about(part)
        before = self.item(id)
        if kind == "commit":
            answer = self._memory.commit(*part)
        else:
            answer = (self._memory.insert if kind == "insert" else self._memory.replace)([part])[0]
        after = self.item(id)
        if before is not after:
            self.say(f"{writer}: {kind}: {invariants.shown(after)}")
            self._hold(invariants.check_write, before, after, writer, self.now_ms, self.succeeded)
            self._once(id)
        return answer

    def delay(self, seconds: float, kind: str, part: Any) -> None:
        """Let a statement take effect so much later."""
        id, _ = _about(part)
        self._on_the_wire[id] = self._on_the_wire.get(id, 0) + 1

        def arrive() -> None:
            self._on_the_wire[id] -= 1
            self.effect(kind, part)

        self.world.spawn(arrive, after=seconds)

    # What invocations do.

    def begun(self, mine: Invocation, others: Iterable[Invocation]) -> None:
        """An invocation has begun: note who contends with it."""
        ids = {mail.id for mail in mine.mails}
        for other in others:
            if ids & {mail.id for mail in other.mails}:
                mine.contended = other.contended = True
        # A lease that is only just over may not be over by this worker's clock.
        by_then = self.now_ms - 2000 * invariants.CLOCKS_DIFFER_SECONDS
        for id in ids:
            mine.contended |= invariants.live(self.item(id), by_then) or self._on_the_wire.get(id, 0) > 0

    def started(self, invocation: Invocation, id: str, others: Iterable[Invocation]) -> None:
        """A handler has started."""
        # Who outlives its deadline is known to the fence alone.
        in_time = [other for other in others if self.world.now < other.started + BUDGET_SECONDS]
        running = [other.name for other in in_time if id in other.running]
        self._hold(invariants.check_start, id, invocation.name, self.item(id), self.now_ms, running)
        if self.queue.fifo:
            self._hold(self._in_order, invocation.name, id)

    def answered(self, invocation: Invocation, failed: Sequence[str]) -> None:
        """An invocation has answered."""
        name, batch = invocation.name, [mail.id for mail in invocation.mails]
        self.say(f"{name} answers: {', '.join(failed) or 'all done'}")
        self._hold(invariants.check_answer, batch, failed)
        for id in batch:
            if id not in failed:
                self._hold(invariants.check_acknowledged, id, name, self.item(id), self.now_ms, self.queue.letters)
        took = self.world.now - invocation.started
        if invocation.troubles == 0 and took < BUDGET_SECONDS - NO_TIME_SECONDS:
            self._hold(invariants.check_left_behind, name, [self.item(id) for id in batch], self.now_ms)
        undisturbed = invocation.troubles <= 1 and not (invocation.contended or invocation.failed or invocation.stepped)
        # No message was left for want of time: no run was longer than what was left after it.
        if undisturbed and took < (BUDGET_SECONDS - NO_TIME_SECONDS) / 2:
            self._hold(invariants.check_progress, name, failed)

    def settled(self, *, flawless: bool) -> None:
        """Everything is done and deleted, or dead with a reason; each effect is there once, or not at all."""
        for mail in self.queue.mails.values():
            item, letter = self.item(mail.id), self.queue.letters.get(mail.id)
            if not mail.gone and not self.violations:
                self.broken(Violation("I6", f"{mail.id} is neither deleted nor dead"))
            if mail.deleted and not invariants.completed(item, self.now_ms) and not (letter and letter["reason"]):
                self.broken(Violation("I4", f"{mail.id} is deleted: {invariants.shown(item)}"))
            if mail.dead_because is not None and flawless:
                self.broken(Violation("I9", f"{mail.id} is dead without a fault: {mail.dead_because}"))
            self._once(mail.id)

    def _in_order(self, name: str, id: str) -> None:
        group = self.queue.mails[id].group
        for mail in self.queue.mails.values():
            if mail.id == id:
                return
            done = invariants.completed(self.item(mail.id), self.now_ms)
            if mail.group == group and not done and mail.dead_because is None and mail.id not in self.queue.letters:
                raise Violation("FIFO", f"{name} starts {id} although {mail.id} of its group has not ended well")

    def _once(self, id: str) -> None:
        if self.effects:
            times = int(self._entries.get((id,), {}).get("times", 0))
            self._hold(invariants.check_effect, id, self.item(id), times)

    def _hold(self, check: Callable[..., None], *facts: Any) -> None:
        try:
            check(*facts)
        except Violation as violation:
            self.broken(violation)


def _about(part: Any) -> tuple[str, str]:
    """Which record a write is about, and who sends it: what is given back has no owner any more."""
    change = part[0] if type(part) is tuple else part
    if isinstance(change, Record):
        return change.id, str(change.owner)
    return change.new.id, str(change.new.owner or change.seen.owner)
