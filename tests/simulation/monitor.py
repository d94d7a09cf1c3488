"""The random simulation's monitor: checks every write, handler start and answer, and the final state."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from idempotent_receiver.sqs.received import raw_attribute
from idempotent_receiver.testing.world import START_EPOCH_SECONDS
from idempotent_receiver.transaction.outbox import STAMP
from tests.simulation import invariants, reached
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.invariants import Violation
from tests.simulation.recorder import Recorder
from tests.simulation.results import keeps
from tests.simulation.setups import WAIVED
from tests.simulation.sqs_model import copy_in, is_audit, stamp_in
from tests.simulation.table_monitor import HALF_MS, TableMonitor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.protocol.store import Commit
    from idempotent_receiver.testing.world import World
    from tests.simulation.invariants import Item
    from tests.simulation.plan import Plan
    from tests.simulation.process import Invocation
    from tests.simulation.sqs_model import QueuedMessage, QueueModel

STOP_MARGIN_SECONDS = 1.0


def items_of(commit: Commit) -> list[str]:
    """The items that a transaction is on."""
    return [f"{action.arguments['TableName']} {action.arguments['Key']['id']}" for action in commit.actions]


class Monitor(TableMonitor):
    def __init__(self, world: World, queues: Sequence[QueueModel], log: Callable[[str], None], plan: Plan) -> None:
        super().__init__(world, log)
        self.queues = queues
        self.effects, self.expires = plan.transactional, plan.expires
        self.history = Recorder(world, queues[0].history, plan.accounts, effects=plan.transactional)
        self.succeeded: set[tuple[str, str]] = set()
        """The invocations and ids whose handlers have returned."""
        self.closed: set[str] = set()
        """The ids of the records whose transactions fail by their condition."""
        self.results: dict[str, Item] = {}
        """The records as they were last completed, by their ids; also of those that have expired since."""
        self.sends = plan.sends
        self._sent: dict[str, set[str]] = {}
        """The keys of the messages that SQS has taken, by the records that sent them."""
        self._expired: Counter[str] = Counter()
        """How often each record has expired after it was completed: so often its effect may be there once more."""
        self._failures: set[tuple[str, str]] = set()
        """The invocations and ids whose failures have been recorded."""
        self._starts: set[tuple[str, str, str | None]] = set()
        """What was there when handlers started, of invocations without claims."""
        self._unclaimed: set[str] = set()
        self._refused: set[tuple[str, str]] = set()
        """The invocations and ids whose bodies do not validate, so that no handler starts."""
        self._live: list[Invocation] = []
        """The invocations under way when the last one started, and that one."""

    @property
    def _known(self) -> set[str]:
        """The ids of all records that there may be."""
        messages = [message for queue in self.queues for message in queue.messages.values() if message.usable]
        return {id for message in messages for id in (message.key, message.audit_key)}

    def effect(self, kind: str, part: Any, writer: str | None = None) -> Any:
        if kind == "commit":
            id = part.change.new.id
            self.memory.tables["Open"].items = {} if id in self.closed else {(id,): {"id": id}}
        return super().effect(kind, part, writer)

    def applied(self, kind: str, id: str, before: Item | None, writer: str) -> None:
        super().applied(kind, id, before, writer)
        if self.effects or is_audit(id):
            times = int(self._table("Entries").get((id,), {}).get("times", 0))
            self.check(invariants.check_effect, id, self.item(id), times - self._expired[id])
        self.history.posted(self._table("Entries"), writer)

    def written(self, before: Item | None, after: Item, writer: str) -> None:
        id = after["id"]
        if id not in self._known:
            self.violated(Violation("KEY", f"{writer} writes {id}, which is no message's key"))
        self.check(invariants.check_write, before, after, writer, self.latest_ms, self.succeeded)
        marks = before is not None and before["status"] == "SENDING"
        if writer in self._unclaimed and not (marks or is_audit(id) or (writer, id) in self._refused):
            self.check(invariants.check_seen, before, after, writer, self._starts)
        self._replaced(before)
        if after["status"] == "FAILED":
            self._failures.add((writer, id))
        if after["status"] == "COMPLETED":
            self.results[id] = after
        if self.sends and not is_audit(id):
            self.check(invariants.check_sent, before, after, writer, self._sent.get(id, ()))

    def _replaced(self, item: Item | None) -> None:
        """A record is replaced or deleted. Once it is completed, only one that has expired may be (I3)."""
        if item is not None and item["status"] == "COMPLETED":
            self._expired[item["id"]] += 1

    def _table(self, name: str) -> dict[Any, dict[str, Any]]:
        return self.memory.tables[name].items

    def deleted(self, item: Item) -> None:
        reached.mark("TTL deletes")
        self._replaced(item)
        for invocation in self._live:
            invocation.contended = True

    def invocation_started(self, mine: Invocation, others: Sequence[Invocation]) -> None:
        """Record the start of an invocation, and which others contend with it."""
        self._live = [mine, *others]
        self.history.delivered(mine)
        super().invocation_started(mine, others)
        for id in mine.ids:
            item = self.item(id)
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
        if not mine.claims:
            self._unclaimed.add(mine.name)
            # A record that is there may refuse the commit of a first receive, and is read at its redelivery.
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
            self.check(self._in_order, invocation.name, message)

    def audit_started(self, invocation: Invocation, id: str, others: Iterable[Invocation]) -> None:
        """Check the start of the function that handlers call, which claims in each process."""
        self._started(invocation, id, others, [])

    def _started(self, invocation: Invocation, id: str, others: Iterable[Invocation], waived: Sequence[str]) -> None:
        item = self.item(id)
        check = partial(invariants.check_start, waived=waived)
        self.check(check, id, invocation.name, item, self.latest_ms, self.running(id, others))
        took = self.world.now - invocation.started
        if not invocation.held_up and took > BUDGET_SECONDS - STOP_MARGIN_SECONDS + 0.01 and not is_audit(id):
            self.violated(Violation("START", f"{invocation.name} starts {id} after {took:.2f} s"))
        self._starts.add((invocation.name, id, None if item is None else item["version"]))

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
            self.check(invariants.check_dead_letter, message.key, invocation.name, self._failures)
        return message

    def message_sent(self, invocation: Invocation, queue_url: str, entry: dict[str, Any]) -> None:
        """Check a message that SQS has taken of a handler's."""
        message = next(message for message in invocation.messages if message.key == entry["MessageBody"])
        key = stamp_in(entry)["key"]
        keys = self._sent.setdefault(message.key, set())
        keys.add(key)
        item, fifo = self.item(message.key), queue_url.endswith(".fifo")
        if item is None or item["status"] not in ("SENDING", "COMPLETED"):
            self.violated(Violation("SENT", f"{invocation.name} sends for {message.key}: {invariants.shown(item)}"))
        if len(keys) > 1 or (fifo and entry["MessageDeduplicationId"] != key):
            self.violated(Violation("SENT", f"{invocation.name} sends the message of {message.key} under {keys}"))

    def answered(self, invocation: Invocation, failed: Sequence[str]) -> None:
        name, batch = invocation.name, [message.id for message in invocation.messages]
        self.log(f"{name} answers: {', '.join(failed) or 'all done'}")
        self.check(invariants.check_answer, batch, failed)
        for message in invocation.messages:
            if message.id not in failed:
                self.history.acknowledged(invocation, message)
                self._check_acknowledged(message, invocation)
        if self.left_nothing(invocation):
            blocked = {message.id for message in invocation.messages if self.refusable(message)}
            self.check(invariants.check_progress, name, [id for id in failed if id not in blocked])

    def settled(self, *, flawless: bool) -> None:
        """Check that every message is completed and deleted, or dead for a reason, and that its effect agrees."""
        for message in [message for queue in self.queues for message in queue.messages.values()]:
            if not message.gone and not self.violations:
                self.violated(Violation("I6", f"{message.id} is neither deleted nor dead"))
            if message.deleted and message.key not in self.results and not message.dead_lettered:
                self.violated(Violation("I4", f"{message.id} is deleted: {invariants.shown(self.item(message.key))}"))
            if message.dead_because is not None and flawless:
                self.violated(Violation("I9", f"{message.id} is dead without a fault: {message.dead_because}"))

    def judge(self) -> None:
        if not self.expires:
            for violation in self.history.judge(self.queues, self._table("Accounts")):
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
                and message.key not in self.results
                and message.dead_because is None
                and not message.dead_lettered
            ):
                what = f"{name} starts {starting.id} although {message.id} of its group has not ended well"
                raise Violation("FIFO", what)

    def _check_acknowledged(self, message: QueuedMessage, invocation: Invocation) -> None:
        if message.dead_lettered:
            return
        item = self.results.get(message.key)
        # What was completed when the invocation began, by its clock, may have expired since.
        since_ms = (START_EPOCH_SECONDS + invocation.started) * 1000 - HALF_MS
        self.check(invariants.check_acknowledged, message.id, invocation.name, item, since_ms, ())
        if item is not None and not keeps(item, message.result):
            what = f"{invocation.name} acknowledged {message.id}, whose result is not what its record keeps: {item}"
            self.violated(Violation("I4", what))


def _waived(invocation: Invocation, message: QueuedMessage) -> list[str]:
    """The rules that do not hold of a start without a claim. What was read is known while nobody else is at work."""
    return [rule for rule in WAIVED if rule != "I2" or message.receives == 1 or invocation.contended]
