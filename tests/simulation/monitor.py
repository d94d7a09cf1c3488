"""The random simulation's monitor: checks every write, handler start and answer, and the final state."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import Commit
from idempotent_receiver.sqs.dead_letter import STAMP
from idempotent_receiver.sqs.received import raw_attribute
from idempotent_receiver.testing.memory import Table
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from tests.simulation import invariants, reached
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.ends import Ends
from tests.simulation.invariants import Violation
from tests.simulation.recorder import Recorder
from tests.simulation.setups import WAIVED
from tests.simulation.sqs_model import copy_in, is_audit, stamp_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.testing.world import World
    from tests.simulation.plan import Plan
    from tests.simulation.process import Invocation
    from tests.simulation.results import Bucket
    from tests.simulation.sqs_model import QueuedMessage, QueueModel

_OFF_MS = 1000 * invariants.CLOCKS_DIFFER_SECONDS / 2
"""How far off a clock may be: by it a record may have expired so much earlier, or later."""
STOP_MARGIN_SECONDS = 1.0
NO_TIME_SECONDS = 1.1
"""With less time than this left, an invocation may leave work undone."""


def items_of(commit: Commit) -> list[str]:
    """The items that a transaction is on."""
    return [f"{action.arguments['TableName']} {action.arguments['Key']['id']}" for action in commit.actions]


class Monitor:
    def __init__(
        self, world: World, queues: Sequence[QueueModel], bucket: Bucket, log: Callable[[str], None], plan: Plan
    ) -> None:
        self.world = world
        self.queues = queues
        self.bucket = bucket
        self.log = log
        self.effects, self.expires = plan.transactional, plan.expires
        self.history = Recorder(world, queues[0].history, plan.accounts, effects=plan.transactional)
        self.violations: list[Violation] = []
        self.succeeded: set[tuple[str, str]] = set()
        """The invocations and ids whose handlers have returned."""
        self.closed: set[str] = set()
        """The ids of the records whose transactions fail by their condition."""
        self.ends = Ends()
        self._starts: set[tuple[str, str, str | None]] = set()
        """What was there when handlers started, of invocations without claims."""
        self._memory = MemoryStore(tables={"Entries": "id", "Accounts": "id", "Open": Table("id")})
        self._entries, self._accounts = (self._memory.tables[name].items for name in ("Entries", "Accounts"))
        self._on_the_wire: dict[str, int] = {}
        self._unclaimed: set[str] = set()
        self._refused: set[tuple[str, str]] = set()
        """The invocations and ids whose bodies do not validate, so that no handler starts."""
        self._without_bucket: set[str] = set()
        self._live: list[Invocation] = []
        """The invocations under way when the last one started, and that one."""

    @property
    def now_ms(self) -> float:
        return (START_EPOCH_SECONDS + self.world.now) * 1000

    def item(self, id: str) -> dict[str, Any] | None:
        return self._memory.items.get(id)

    @property
    def _known(self) -> set[str]:
        """The ids of all records that there may be."""
        messages = [message for queue in self.queues for message in queue.messages.values() if message.usable]
        return {id for message in messages for id in (message.key, message.audit_key)}

    def violated(self, violation: Violation) -> None:
        """Record a violation. Raising it here would not do: the code under test handles any exception."""
        self.log(str(violation))
        self.violations.append(violation)

    def effect(self, kind: str, part: Any) -> Any:
        if kind == "read":
            return self._memory.read([part])[0]
        id, writer = _target(part)
        before = self.item(id)
        if kind == "commit":
            self._memory.tables["Open"].items = {} if id in self.closed else {(id,): {"id": id}}
            (answer,) = self._memory.commit([part])
        else:
            answer = (self._memory.insert if kind == "insert" else self._memory.replace)([part])[0]
        self.written(kind, id, before, writer)
        return answer

    def written(self, kind: str, id: str, before: dict[str, Any] | None, writer: str) -> None:
        """Check what a statement has made of a record."""
        after = self.item(id)
        if before is not after:
            if id not in self._known:
                self.violated(Violation("KEY", f"{writer} writes {id}, which is no message's key"))
            self.log(f"{writer}: {kind}: {invariants.shown(after)}")
            self._check(invariants.check_write, before, after, writer, self.now_ms + _OFF_MS, self.succeeded)
            if writer in self._unclaimed and not is_audit(id) and (writer, id) not in self._refused:
                self._check(invariants.check_seen, before, after, writer, self._starts)
            self.ends.written(before, after, writer)
        self._check_effect(id)
        self.history.posted(self._entries, writer)

    def delete_expired(self) -> None:
        """TTL deletes what has expired, by its own clock."""
        for id, item in [*self._memory.items.items()]:
            if item["expiration"] * 1000 <= self.now_ms:
                self.log(f"TTL deletes {invariants.shown(item)}")
                reached.mark("TTL deletes")
                del self._memory.items[id]
                self.ends.deleted(item)
                for invocation in self._live:
                    invocation.contended = True

    def delay(self, seconds: float, kind: str, part: Any) -> None:
        id, _ = _target(part)
        self._on_the_wire[id] = self._on_the_wire.get(id, 0) + 1

        def arrive() -> None:
            self._on_the_wire[id] -= 1
            self.effect(kind, part)

        self.world.spawn(arrive, after=seconds)

    def invocation_started(self, mine: Invocation, others: Sequence[Invocation]) -> None:
        """Record the start of an invocation, and which others contend with it."""
        self._live = [mine, *others]
        self.history.delivered(mine)
        ids = {id for message in mine.messages for id in (message.key, message.audit_key)}
        for other in others:
            if ids & {message.key for message in other.messages}:
                mine.contended = other.contended = True
        # A lease that has just expired may still be live by this worker's clock, and so may a record.
        by_then = self.now_ms - 2000 * invariants.CLOCKS_DIFFER_SECONDS
        for id in ids:
            item = self.item(id)
            mine.contended |= invariants.live(item, by_then) or self._on_the_wire.get(id, 0) > 0
            mine.contended |= item is not None and item["expiration"] * 1000 < self.now_ms + 2 * BUDGET_SECONDS * 1000
            mine.contended |= len(self._payloads(id)) > 1
        assert mine.version is not None, "a process has one"
        if mine.version.validates:
            unlike = {message.key for message in mine.messages if '"amount": 2' in message.body}
            refused = {
                (mine.name, key)
                for key in unlike
                if not invariants.completed(self.item(key), self.now_ms + 2000 * BUDGET_SECONDS)
            }
            mine.failed |= bool(refused)
            self._refused |= refused
        if not mine.version.bucket:
            self._without_bucket.add(mine.name)
        if not mine.claims:
            self._unclaimed.add(mine.name)
            # A record that is there may refuse the commit of a first receive, and is read when that comes again.
            mine.contended |= any(message.receives == 1 and self.item(message.key) for message in mine.messages)

    def handler_started(self, invocation: Invocation, message: QueuedMessage, others: Iterable[Invocation]) -> None:
        waived = [] if invocation.claims else _waived(invocation, message)
        self._started(invocation, message.key, [other for other in others if other.claims], waived)
        if message.receives == 1:
            # What is unread counts as nothing, and TTL may have deleted it when the commit arrives.
            self._starts.add((invocation.name, message.key, None))
        self.history.started(invocation, message)
        if not message.usable:
            self.violated(Violation("KEY", f"{invocation.name} starts {message.id}, which has no usable key"))
        if message.queue.fifo:
            self._check(self._in_order, invocation.name, message)

    def audit_started(self, invocation: Invocation, id: str, others: Iterable[Invocation]) -> None:
        """Check the start of the function that handlers call, which claims in each process."""
        self._started(invocation, id, others, [])

    def _started(self, invocation: Invocation, id: str, others: Iterable[Invocation], waived: Sequence[str]) -> None:
        item = self.item(id)
        # An invocation that outlives its deadline no longer counts: only its fencing stops it.
        in_time = [other for other in others if self.world.now < other.started + BUDGET_SECONDS]
        running = [other.name for other in in_time if id in other.running]
        check = partial(invariants.check_start, waived=waived)
        self._check(check, id, invocation.name, item, self.now_ms + _OFF_MS, running)
        took = self.world.now - invocation.started
        if not invocation.held_up and took > BUDGET_SECONDS - STOP_MARGIN_SECONDS + 0.01 and not is_audit(id):
            self.violated(Violation("START", f"{invocation.name} starts {id} after {took:.2f} s"))
        self._starts.add((invocation.name, id, None if item is None else item["version"]))

    def committing(self, invocation: Invocation, items: Sequence[str]) -> None:
        """Check the items of transactions that are sent in one request."""
        before = {item for request in invocation.committing for item in request}
        if len(set(items)) < len(items) or before & set(items):
            what = f"{invocation.name} sends transactions on {items}, while others are under way on {sorted(before)}"
            self.violated(Violation("TURNS", what))

    def dead_letter_sent(self, invocation: Invocation, arguments: dict[str, Any]) -> QueuedMessage:
        """Check a dead letter, and return the message that it is of. A message without a usable key, or with another
        payload than its record's, has no record or leaves it untouched.
        """
        stamp = stamp_in(arguments)
        message = next((one for one in invocation.messages if one.id == copy_in(arguments)), None)
        if message is None:
            self.violated(Violation("LETTER", f"{invocation.name} sends {arguments}, which it has not received"))
            return invocation.messages[0]
        key = message.plain_key if message.usable else message.original
        attributes = {name: dict(kept) for name, kept in arguments["MessageAttributes"].items() if name != STAMP}
        sent = {name: raw_attribute(kept) for name, kept in message.attributes.items() if name != STAMP}
        told = (
            arguments["MessageBody"],
            arguments.get("MessageGroupId"),
            attributes,
            stamp["key"],
            stamp["original_id"],
        )
        if told != (message.body, message.group, sent, key, message.original):
            self.violated(Violation("LETTER", f"{invocation.name} sends {told} for {message}"))
        if stamp["error_type"] not in ("FingerprintMismatch", "UnusableKey"):
            self._check(invariants.check_dead_letter, message.key, invocation.name, self.ends.failures)
        return message

    def answered(self, invocation: Invocation, failed: Sequence[str]) -> None:
        name, batch = invocation.name, [message.id for message in invocation.messages]
        records = [id for message in invocation.messages for id in (message.key, message.audit_key)]
        self.log(f"{name} answers: {', '.join(failed) or 'all done'}")
        self._check(invariants.check_answer, batch, failed)
        for message in invocation.messages:
            if message.id not in failed:
                self.history.acknowledged(invocation, message)
                self._check_acknowledged(message, invocation)
        took = self.world.now - invocation.started
        if invocation.fault_count == 0 and took < BUDGET_SECONDS - NO_TIME_SECONDS:
            self._check(invariants.check_left_behind, name, [self.item(id) for id in records], self.now_ms)
        uncontended = invocation.fault_count <= 1 and not (
            invocation.contended or invocation.failed or invocation.stepped
        )
        # No message was left for lack of time: no run took longer than the time left after it.
        if uncontended and took < (BUDGET_SECONDS - NO_TIME_SECONDS) / 2:
            blocked = {message.id for message in invocation.messages if self.refusable(message)}
            self._check(invariants.check_progress, name, [id for id in failed if id not in blocked])

    def settled(self, *, flawless: bool) -> None:
        """Check that every message is completed and deleted, or dead for a reason, and that its effect agrees."""
        for message in [message for queue in self.queues for message in queue.messages.values()]:
            if not message.gone and not self.violations:
                self.violated(Violation("I6", f"{message.id} is neither deleted nor dead"))
            if message.deleted and message.key not in self.ends.results and not message.dead_lettered:
                self.violated(Violation("I4", f"{message.id} is deleted: {invariants.shown(self.item(message.key))}"))
            if message.dead_because is not None and flawless:
                self.violated(Violation("I9", f"{message.id} is dead without a fault: {message.dead_because}"))

    def judge(self) -> None:
        if not self.expires:
            for violation in self.history.judge(self.queues, self._accounts):
                self.violated(violation)

    def refusable(self, message: QueuedMessage) -> bool:
        """Whether it has no usable key, or its key may have been used for another payload, or that is so of one before
        it in its group.
        """
        messages = [*message.queue.messages.values()]
        before = messages[: messages.index(message)] if message.queue.fifo else []
        in_line = [one for one in before if one.group == message.group]
        return any(not one.usable or len(self._payloads(one.key)) > 1 for one in (*in_line, message))

    def _payloads(self, key: str) -> set[str]:
        return {message.body for queue in self.queues for message in queue.messages.values() if message.key == key}

    def _in_order(self, name: str, starting: QueuedMessage) -> None:
        for message in starting.queue.messages.values():
            if message.id == starting.id:
                return
            if (
                message.group == starting.group
                and message.key not in self.ends.results
                and message.dead_because is None
                and not message.dead_lettered
            ):
                what = f"{name} starts {starting.id} although {message.id} of its group has not ended well"
                raise Violation("FIFO", what)

    def _check_acknowledged(self, message: QueuedMessage, invocation: Invocation) -> None:
        if message.dead_lettered:
            return
        item = self.ends.results.get(message.key)
        # What was completed when the invocation began, by its clock, may have expired since.
        since_ms = (START_EPOCH_SECONDS + invocation.started) * 1000 - _OFF_MS
        self._check(invariants.check_acknowledged, message.id, invocation.name, item, since_ms, ())
        if item is not None and not self.bucket.keeps(item, message.result, self._without_bucket):
            what = f"{invocation.name} acknowledged {message.id}, whose result is not what its record keeps: {item}"
            self.violated(Violation("I4", what))

    def _is_audit(self, id: str) -> bool:
        return "audit#" in id

    def _check_effect(self, id: str) -> None:
        if self.effects or is_audit(id):
            times = int(self._entries.get((id,), {}).get("times", 0))
            self._check(invariants.check_effect, id, self.item(id), times - self.ends.expired[id])

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
