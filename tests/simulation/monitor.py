"""The random simulation's monitor: checks every write, handler start and answer, and the final state."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Commit
from idempotent_receiver.testing.memory import Table
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation import invariants
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.invariants import Violation
from tests.simulation.setups import WAIVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.testing.world import World
    from tests.simulation.process import Invocation
    from tests.simulation.sqs_model import QueuedMessage, QueueModel

NO_TIME_SECONDS = 1.1
"""With less time than this left, an invocation may leave work undone."""
NAMESPACE = "transfers"
"""The store's, where messages have keys of their producers."""


def account_of(key: str, accounts: int) -> str:
    """The item that the transactions of a record share with others."""
    return f"account {int(key[-1]) % accounts}"


def done(body: str) -> str:
    """The result of a message with this body."""
    return f"done {body}"


def items_of(commit: Commit) -> list[str]:
    """The items that a transaction is on."""
    return [f"{action.arguments['TableName']} {action.arguments['Key']['id']}" for action in commit.actions]


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
        self.closed: set[str] = set()
        """The ids of the records whose transactions fail by their condition."""
        self._starts: set[tuple[str, str, str | None]] = set()
        """What was there when handlers started, of invocations without claims."""
        self._recorded: set[tuple[str, str]] = set()
        """The invocations and ids whose failures have been recorded."""
        self._memory = MemoryStore(tables={"Entries": "id", "Accounts": "id", "Open": Table("id")})
        self._entries, self._accounts = (self._memory.tables[name].items for name in ("Entries", "Accounts"))
        self._on_the_wire: dict[str, int] = {}
        self._unclaimed: set[str] = set()

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
            self._memory.tables["Open"].items = {} if id in self.closed else {(id,): {"id": id}}
            (answer,) = self._memory.commit([part])
        else:
            answer = (self._memory.insert if kind == "insert" else self._memory.replace)([part])[0]
        after = self.item(id)
        if before is not after:
            self.log(f"{writer}: {kind}: {invariants.shown(after)}")
            self._check(invariants.check_write, before, after, writer, self.now_ms, self.succeeded)
            if writer in self._unclaimed:
                self._check(invariants.check_seen, before, after, writer, self._starts)
            if after is not None and after["status"] == "FAILED":
                self._recorded.add((writer, id))
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
        ids = {message.key for message in mine.messages}
        for other in others:
            if ids & {message.key for message in other.messages}:
                mine.contended = other.contended = True
        # A lease that has just expired may still be live by this worker's clock.
        by_then = self.now_ms - 2000 * invariants.CLOCKS_DIFFER_SECONDS
        for id in ids:
            mine.contended |= invariants.live(self.item(id), by_then) or self._on_the_wire.get(id, 0) > 0
            mine.contended |= len(self.queue.payloads(id)) > 1
        if not mine.claims:
            self._unclaimed.add(mine.name)
            # A record that is there may refuse the commit of a first receive, and is read when that comes again.
            mine.contended |= any(message.receives == 1 and self.item(message.key) for message in mine.messages)

    def handler_started(self, invocation: Invocation, message: QueuedMessage, others: Iterable[Invocation]) -> None:
        """Check the start of a handler."""
        id, item = message.key, self.item(message.key)
        # An invocation that outlives its deadline no longer counts: only its fencing stops it.
        in_time = [other for other in others if self.world.now < other.started + BUDGET_SECONDS]
        running = [other.name for other in in_time if other.claims and id in other.running]
        waived = [] if invocation.claims else _waived(invocation, message)
        self._check(partial(invariants.check_start, waived=waived), id, invocation.name, item, self.now_ms, running)
        self._starts.add((invocation.name, id, None if item is None else item["version"]))
        if self.queue.fifo:
            self._check(self._in_order, invocation.name, message)

    def committing(self, invocation: Invocation, items: Sequence[str]) -> None:
        """Check the items of transactions that are sent in one request."""
        before = {item for request in invocation.committing for item in request}
        if len(set(items)) < len(items) or before & set(items):
            what = f"{invocation.name} sends transactions on {items}, while others are under way on {sorted(before)}"
            self.violated(Violation("TURNS", what))

    def dead_letter_sent(self, invocation: Invocation, stamp: dict[str, Any]) -> None:
        """Check a dead letter. A message with another payload than its record's leaves that untouched."""
        if "FingerprintMismatch" not in stamp["error_type"]:
            key = self.queue.messages[stamp["original_id"]].key
            self._check(invariants.check_dead_letter, key, invocation.name, self._recorded)

    def answered(self, invocation: Invocation, failed: Sequence[str]) -> None:
        """Check the answer of an invocation."""
        name, batch = invocation.name, [message.id for message in invocation.messages]
        records = [message.key for message in invocation.messages]
        self.log(f"{name} answers: {', '.join(failed) or 'all done'}")
        self._check(invariants.check_answer, batch, failed)
        for message in invocation.messages:
            if message.id not in failed:
                self._check_acknowledged(message, name)
        took = self.world.now - invocation.started
        if invocation.fault_count == 0 and took < BUDGET_SECONDS - NO_TIME_SECONDS:
            self._check(invariants.check_left_behind, name, [self.item(id) for id in records], self.now_ms)
        uncontended = invocation.fault_count <= 1 and not (
            invocation.contended or invocation.failed or invocation.stepped
        )
        # No message was left for lack of time: no run took longer than the time left after it.
        if uncontended and took < (BUDGET_SECONDS - NO_TIME_SECONDS) / 2:
            self._check(invariants.check_progress, name, failed)

    def settled(self, *, flawless: bool) -> None:
        """Check that every message is completed and deleted, or dead for a reason, and that its effect agrees."""
        for message in self.queue.messages.values():
            item, dead_letter = self.item(message.key), self.queue.dead_letters.get(message.id)
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
            self._check_effect(message.key)
        if self._accounts:
            self._check(self._shared_effects)

    def _in_order(self, name: str, starting: QueuedMessage) -> None:
        for message in self.queue.messages.values():
            if message.id == starting.id:
                return
            if (
                message.group == starting.group
                and not invariants.completed(self.item(message.key), self.now_ms)
                and message.dead_because is None
                and message.id not in self.queue.dead_letters
            ):
                what = f"{name} starts {starting.id} although {message.id} of its group has not ended well"
                raise Violation("FIFO", what)

    def _check_acknowledged(self, message: QueuedMessage, name: str) -> None:
        item, dead_letters = self.item(message.key), self.queue.dead_letters
        self._check(invariants.check_acknowledged, message.id, name, item, self.now_ms, dead_letters)
        ours = item is not None and item.get("data") == json.dumps(done(message.body))
        if message.id not in dead_letters and not ours:
            what = f"{name} acknowledged {message.id}, whose payload is not the one that was done: {item}"
            self.violated(Violation("I4", what))

    def _check_effect(self, id: str) -> None:
        if self.effects:
            times = int(self._entries.get((id,), {}).get("times", 0))
            self._check(invariants.check_effect, id, self.item(id), times)

    def _shared_effects(self) -> None:
        """EFFECT, for the items that transactions share: as many effects as records are completed."""
        completed = sum(item["status"] == "COMPLETED" for item in self._memory.items.values())
        if sum(int(item["times"]) for item in self._accounts.values()) != completed:
            raise Violation("EFFECT", f"{completed} are completed, and their shared items are {self._accounts}")

    def _check(self, check: Callable[..., None], *facts: Any) -> None:
        try:
            check(*facts)
        except Violation as violation:
            self.violated(violation)


def _waived(invocation: Invocation, message: QueuedMessage) -> list[str]:
    """The rules that do not hold of a start without a claim. What was read is known while nobody else is at work."""
    return [rule for rule in WAIVED if rule != "I2" or message.receives == 1 or invocation.contended]


def _target(part: Any) -> tuple[str, str]:
    """The id of the record that a write changes, and its writer. A released record no longer has an owner."""
    change = part.change if isinstance(part, Commit) else part
    if isinstance(change, Record):
        return change.id, str(change.owner)
    return change.new.id, str(change.new.owner or change.seen.owner)
