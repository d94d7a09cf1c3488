"""Network faults at calls of the store and of the queue, in the random simulation."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.store import ActionFailed, Conflict, NotApplied, Unknown
from tests.simulation.monitor import items_of
from tests.simulation.points import DEAD_LETTER, GET, SEND, VISIBILITY, declare_points, points_of
from tests.simulation.reached import mark, mark_at
from tests.simulation.store_calls import StoreCalls

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.process import Invocation, Process
    from tests.simulation.simulation import Simulation

    Parts = Sequence[Any]

UNKNOWN = Unknown("nobody knows")
LONGEST_ON_THE_WIRE_SECONDS = 40.0
TRANSACTION_SECONDS = 0.004
"""How long a transaction is in the way of others on its items."""
SLOW_SECONDS = 3.0
"""The library's clients wait no longer for an answer."""


RUNNING: ContextVar[Any] = ContextVar("RUNNING", default=None)
"""The invocation whose code this is."""


def sender_of(process: Process) -> Invocation:
    """The invocation that sends a request: of a process that was frozen, an earlier one may still be at work."""
    return RUNNING.get() or process.invocation


class NetworkStore(StoreCalls):
    """The store behind a faulty network, as one process sees it; statements take effect one by one."""

    def __init__(self, process: Process, namespace: str | None) -> None:
        self.namespace = namespace
        self.simulation = process.simulation
        self.process = process
        self.random: Random = self.simulation.random

    def commit(self, commits: Parts) -> list[Any]:
        """One request after the other for an item, of one invocation; those of others may be in the way."""
        sender = sender_of(self.process)
        items = [item for commit in commits for item in items_of(commit)]
        self.simulation.monitor.committing(sender, items)
        sender.committing.append(set(items))
        self.simulation.packs += len(commits) > 1
        try:
            answers = self.send("commit", commits)
        finally:
            sender.committing.remove(set(items))
        sender.failed |= any(isinstance(answer, ActionFailed) for answer in answers)
        return answers

    def get(self, table: str, key: dict[str, Any]) -> Any:
        """What a handler reads. It comes, or it does not: a read changes nothing."""
        simulation, sender = self.simulation, sender_of(self.process)
        with sender.waiting_at({GET}):
            simulation.disturbances.provoke(sender, {GET})
            if simulation.wire is not None:
                answer = simulation.wire.get(self.process, table, key)
            else:
                simulation.world.sleep(self.random.uniform(0.0005, 0.01))
                lost = simulation.fault({GET}) is not None
                answer = UNKNOWN if lost else simulation.monitor.memory.get(table, key)
                simulation.world.sleep(self.random.uniform(0.0005, 0.01))
        if isinstance(answer, Unknown):
            mark(f"{GET}: lost")
            sender.fault_count += 1
            sender.failed = True
        return answer

    def send(self, kind: str, parts: Parts) -> list[Any]:
        simulation, sender = self.simulation, sender_of(self.process)
        simulation.calls += 1
        simulation.groups += kind == "replace" and sum(change.new.status == "COMPLETED" for change in parts) > 1
        points = points_of(kind, parts, sender.sent)
        with sender.waiting_at(points):
            simulation.disturbances.provoke(sender, points)
            if simulation.wire is not None:
                return simulation.wire.ask(self.process, kind, parts)
            simulation.world.sleep(self.random.uniform(0.0005, 0.01))
            fault = simulation.fault(points)
            if fault is None:
                answers = self._apply(kind, parts)
            else:
                sender.fault_count += 1
                simulation.log(f"{sender.name}: {kind} meets: {fault}")
                mark_at(points, fault)
                answers = FAULTS[fault](self, kind, parts)
            simulation.world.sleep(self.random.uniform(0.0005, 0.01))
        return answers

    def _apply(self, kind: str, parts: Parts) -> list[Any]:
        """Apply the statements one by one: those of other processes may come between."""
        answers = []
        for part in parts:
            answers.append(self._effect(kind, part, alone=len(parts) == 1))
            if len(parts) > 1 and self.random.random() < 0.1:
                self.simulation.world.sleep(self.random.choice([0.0, 0.001, 0.02]))
        return answers

    def _effect(self, kind: str, part: Any, *, alone: bool) -> Any:
        sender_of(self.process).asked = self.simulation.world.now
        if kind == "commit" and self._contended(part):
            return NotApplied("another transaction is in the way", retry=True, contended=True)
        answer = self.simulation.monitor.effect(kind, part)
        # For one of several inserts DynamoDB answers `DuplicateItem`, without the record that is there.
        return Conflict() if kind == "insert" and isinstance(answer, Conflict) and not alone else answer

    def _contended(self, part: Any) -> bool:
        """Whether another process's transaction has only just been on one of these items; ours is, from now on."""
        busy, now = self.simulation.busy, self.simulation.world.now
        items = items_of(part)
        if any(busy.get(item, (self, 0.0))[0] is not self and now < busy[item][1] for item in items):
            return True
        busy.update(dict.fromkeys(items, (self, now + TRANSACTION_SECONDS)))
        return False

    def _later(self, kind: str, parts: Parts) -> None:
        """Let requests arrive late, whatever has happened in the meantime."""
        if kind == "read":
            return
        seconds = self.random.choice([0.02, 0.5, 5.0, LONGEST_ON_THE_WIRE_SECONDS]) * self.random.random()
        for part in parts:
            self.simulation.monitor.delay(seconds, kind, part)

    def lost_answer(self, kind: str, parts: Parts) -> list[Any]:
        self._apply(kind, parts)
        return [UNKNOWN] * len(parts)

    def lost_request(self, kind: str, parts: Parts) -> list[Any]:
        return [UNKNOWN] * len(parts)

    def delayed(self, kind: str, parts: Parts) -> list[Any]:
        self._later(kind, parts)
        return [UNKNOWN] * len(parts)

    def sent_again(self, kind: str, parts: Parts) -> list[Any]:
        self._apply(kind, parts)
        return [Conflict(None) if isinstance(one, Conflict) else one for one in self._apply(kind, parts)]

    def copied(self, kind: str, parts: Parts) -> list[Any]:
        self._later(kind, parts)
        return self._apply(kind, parts)

    def slow(self, kind: str, parts: Parts) -> list[Any]:
        answers = self._apply(kind, parts)
        self.simulation.world.sleep(self.random.uniform(0.0, SLOW_SECONDS))
        return answers

    def throttled(self, kind: str, parts: Parts) -> list[Any]:
        return self._partly(kind, parts, UNKNOWN if kind == "read" else NotApplied("throttled", retry=True))

    def unknown_result(self, kind: str, parts: Parts) -> list[Any]:
        first = self.random.randrange(len(parts))
        return [
            UNKNOWN if place == first or self.random.random() < 0.5 else answer
            for place, answer in enumerate(self._apply(kind, parts))
        ]

    def raises(self, kind: str, parts: Parts) -> list[Any]:
        """A defect is not retried: the request fails at once."""
        sender_of(self.process).failed = True
        if self.random.random() < 0.5:
            self._apply(kind, parts)
        raise RuntimeError("absurd")

    def crash(self, kind: str, parts: Parts) -> list[Any]:
        """Kill the process after some statements; the others arrive late, or never."""
        served = self.random.randint(0, len(parts))
        for part in parts[:served]:
            self._effect(kind, part, alone=False)
        if self.random.random() < 0.5:
            self._later(kind, parts[served:])
        self.simulation.kill(self.process)
        return self.simulation.world.stop()

    def _partly(self, kind: str, parts: Parts, otherwise: object) -> list[Any]:
        first = self.random.randrange(len(parts))
        return [
            otherwise
            if place == first or self.random.random() < 0.5
            else self._effect(kind, part, alone=len(parts) == 1)
            for place, part in enumerate(parts)
        ]


FAULTS: dict[str, Callable[[NetworkStore, str, Parts], list[Any]]] = {
    "lost answer": NetworkStore.lost_answer,
    "lost request": NetworkStore.lost_request,
    "delayed on the wire": NetworkStore.delayed,
    "sent again by the client": NetworkStore.sent_again,
    "copied by the network": NetworkStore.copied,
    "throttled": NetworkStore.throttled,
    "unknown result": NetworkStore.unknown_result,
    "raises": NetworkStore.raises,
    "crash": NetworkStore.crash,
    "slow": NetworkStore.slow,
}
declare_points([*FAULTS])


class NetworkQueueClient:
    class meta:  # noqa: N801  # boto3's name
        endpoint_url = "https://sqs.us-east-1.amazonaws.com"

    def __init__(self, simulation: Simulation, process: Process) -> None:
        self.simulation = simulation
        self.process = process

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> None:  # noqa: N803
        self._send(VISIBILITY)
        queue = self.simulation.queue_named(QueueUrl.rpartition("/")[2])
        for entry in Entries:
            queue.change_visibility(entry["ReceiptHandle"], self.simulation.world.now + entry["VisibilityTimeout"])

    def send_message(self, **arguments: Any) -> None:
        invocation, monitor = sender_of(self.process), self.simulation.monitor
        message = monitor.dead_letter_sent(invocation, arguments)
        confirmed = self._send(DEAD_LETTER, raises=False)
        arrived = confirmed or self.simulation.random.random() < 0.5
        if arrived:
            message.queue.add_dead_letter(arguments)
            monitor.history.dead_lettered(invocation, message, confirmed=confirmed)
        if not confirmed:
            mark(f"{DEAD_LETTER}: lost answer" if arrived else f"{DEAD_LETTER}: lost")
            raise ConnectionError("the answer was lost")

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        invocation, random = sender_of(self.process), self.simulation.random
        confirmed = self._send(SEND, raises=False)
        answer: dict[str, Any] = {"Successful": [], "Failed": []}
        if confirmed or random.random() < 0.5:
            for entry in Entries:
                if not self.simulation.quiet and random.random() < self.simulation.plan.faults / 2:
                    mark(f"{SEND}: partly")
                    invocation.failed = True
                    invocation.fault_count += 1
                    answer["Failed"].append({"Id": entry["Id"], "Code": "InternalError", "SenderFault": False})
                else:
                    self.simulation.monitor.message_sent(invocation, QueueUrl, entry)
                    answer["Successful"].append({"Id": entry["Id"]})
        if not confirmed:
            invocation.failed = True
            invocation.fault_count += 1
            mark(f"{SEND}: lost answer" if answer["Successful"] else f"{SEND}: lost")
            raise ConnectionError("the answer was lost")
        return answer

    def _send(self, point: str, *, raises: bool = True) -> bool:
        sender = sender_of(self.process)
        with sender.waiting_at({point}):
            self.simulation.disturbances.provoke(sender, {point})
            self.simulation.world.sleep(self.simulation.random.uniform(0.001, 0.02))
            fault = self.simulation.fault({point})
            if fault == "slow":
                mark(f"{point}: slow")
                self.simulation.world.sleep(self.simulation.random.uniform(0.0, SLOW_SECONDS))
        lost = fault not in (None, "slow")
        if lost and raises:
            mark(f"{point}: lost")
            raise ConnectionError("refused")
        return not lost
