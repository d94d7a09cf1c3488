"""The random simulation's monitor: checks every write, handler start and answer, and the final state."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Commit
from idempotent_receiver.testing.memory import Table
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from local.checker import check
from local.history import Acknowledged, Balance, DeadLettered, Delivered, Effect, Ended, Left, Started
from tests.simulation import invariants
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.invariants import Violation
from tests.simulation.setups import WAIVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.testing.world import World
    from local.history import Event
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

    def __init__(
        self, world: World, queue: QueueModel, log: Callable[[str], None], *, effects: bool, accounts: int = 0
    ) -> None:
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
        self._account_count = accounts
        self._noted: dict[str, int] = {}
        """How often the effect of each key had taken place at the last look."""
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
        self._posted(writer)
        return answer

    def _posted(self, writer: str) -> None:
        """Note what has been added to the ledger since the last look."""
        for (id,), entry in self._entries.items():
            for _ in range(self._noted.get(id, 0), int(entry["times"])):
                moves = ((account_of(id, self._account_count), 1),) if self._account_count else ()
                self.note(Effect, key=id, payload=entry["body"], worker=writer, moves=moves)
            self._noted[id] = int(entry["times"])

    def note(self, kind: type[Event], **what: Any) -> None:
        """Add an event to the history."""
        self.queue.history.append(kind(at=self.world.now, **what))

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
        for message in mine.messages:
            self.note(Delivered, message=message.id, worker=mine.name, receives=message.receives)
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

    def handler_started(self, invocation: Invocation, message: QueuedMessage) -> None:
        """Check the start of a handler. That no other runs its key, the history shows."""
        id, item = message.key, self.item(message.key)
        waived = [] if invocation.claims else _waived(invocation, message)
        self._check(partial(invariants.check_start, waived=waived), id, invocation.name, item, self.now_ms, ())
        self._starts.add((invocation.name, id, None if item is None else item["version"]))
        # An invocation that outlives its deadline holds nothing: only its fencing stops it.
        until = invocation.started + BUDGET_SECONDS if invocation.claims else None
        self.note(Started, message=message.id, worker=invocation.name, until=until)

    def handler_ended(self, invocation: Invocation, message: QueuedMessage, *, ok: bool) -> None:
        """Record the end of a handler, which is its effect unless that is a transaction."""
        self.note(Ended, message=message.id, worker=invocation.name, ok=ok)
        if ok:
            self.succeeded.add((invocation.name, message.key))
        if ok and not self.effects:
            self.note(Effect, key=message.key, payload=message.body, worker=invocation.name, once=False)

    def dead_lettered(self, invocation: Invocation, stamp: dict[str, Any], *, confirmed: bool) -> None:
        """Record a dead letter that SQS has accepted."""
        self.note(DeadLettered, message=stamp["original_id"], worker=invocation.name, confirmed=confirmed)

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
                self.note(Acknowledged, message=message.id, worker=name)
                item, dead_letters = self.item(message.key), self.queue.dead_letters
                self._check(invariants.check_acknowledged, message.id, name, item, self.now_ms, dead_letters)
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
            if not message.gone and not self.violations:
                self.violated(Violation("I6", f"{message.id} is neither deleted nor dead"))
            if message.dead_because is not None and flawless:
                self.violated(Violation("I9", f"{message.id} is dead without a fault: {message.dead_because}"))

    def judge(self) -> None:
        """Check the history."""
        for number in range(self._account_count):
            account = account_of(str(number), self._account_count)
            closing = int(self._accounts.get((account,), {}).get("times", 0))
            self.note(Balance, account=account, opening=0, closing=closing)
        for message in self.queue.messages.values():
            if not message.gone:
                self.note(Left, message=message.id)
        for finding in check(self.queue.history):
            self.violated(Violation(finding.rule, finding.told))

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
