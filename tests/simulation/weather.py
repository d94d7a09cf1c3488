"""What may go wrong at a call of the store or of the queue, in the simulated worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from tests.simulation.simulated import Process, Simulation

    Parts = Sequence[Any]

UNKNOWN = Unknown("nobody knows")
LONGEST_ON_THE_WIRE_SECONDS = 40.0


class Wire:
    """The store as one process sees it: behind a network, statement by statement, in bad weather."""

    namespace = None

    def __init__(self, simulation: Simulation, process: Process) -> None:
        self.simulation = simulation
        self.process = process
        self.random: Random = simulation.random

    def insert(self, records: Parts) -> list[Any]:
        return self._send("insert", records)

    def read(self, ids: Parts) -> list[Any]:
        return self._send("read", ids)

    def replace(self, changes: Parts) -> list[Any]:
        return self._send("replace", changes)

    def commit(self, change: Any, actions: Any) -> Any:
        (answer,) = self._send("commit", [(change, actions)])
        return answer

    def _send(self, kind: str, parts: Parts) -> list[Any]:
        simulation, sender = self.simulation, self.process.invocation
        simulation.calls += 1
        simulation.groups += kind == "replace" and sum(change.new.status == "COMPLETED" for change in parts) > 1
        simulation.world.sleep(self.random.uniform(0.0005, 0.01))
        fault = simulation.fault()
        if fault is None:
            answers = self._served(kind, parts)
        else:
            sender.troubles += 1
            simulation.say(f"{sender.name}: {kind} meets: {fault}")
            answers = FAULTS[fault](self, kind, parts)
        simulation.world.sleep(self.random.uniform(0.0005, 0.01))
        return answers

    def _served(self, kind: str, parts: Parts) -> list[Any]:
        """Statements are independent of each other: others may come between them."""
        answers = []
        for part in parts:
            answers.append(self._effect(kind, part, alone=len(parts) == 1))
            if len(parts) > 1 and self.random.random() < 0.1:
                self.simulation.world.sleep(self.random.choice([0.0, 0.001, 0.02]))
        return answers

    def _effect(self, kind: str, part: Any, *, alone: bool) -> Any:
        answer = self.simulation.watch.effect(kind, part)
        # Of an insert among several, DynamoDB says no more than that there is something: `DuplicateItem`.
        return Conflict() if kind == "insert" and isinstance(answer, Conflict) and not alone else answer

    def _later(self, kind: str, parts: Parts) -> None:
        """Requests that are delayed on the wire arrive, whatever has happened meanwhile."""
        if kind == "read":
            return
        self.process.invocation.delayed = True
        seconds = self.random.choice([0.02, 0.5, 5.0, LONGEST_ON_THE_WIRE_SECONDS]) * self.random.random()
        for part in parts:
            self.simulation.watch.delay(seconds, kind, part)

    # The faults.

    def lost_answer(self, kind: str, parts: Parts) -> list[Any]:
        self._served(kind, parts)
        return [UNKNOWN] * len(parts)

    def lost_request(self, kind: str, parts: Parts) -> list[Any]:
        return [UNKNOWN] * len(parts)

    def delayed(self, kind: str, parts: Parts) -> list[Any]:
        self._later(kind, parts)
        return [UNKNOWN] * len(parts)

    def sent_again(self, kind: str, parts: Parts) -> list[Any]:
        self._served(kind, parts)
        return [Conflict(None) if isinstance(one, Conflict) else one for one in self._served(kind, parts)]

    def copied(self, kind: str, parts: Parts) -> list[Any]:
        self._later(kind, parts)
        return self._served(kind, parts)

    def throttled(self, kind: str, parts: Parts) -> list[Any]:
        return self._partly(kind, parts, UNKNOWN if kind == "read" else NotApplied("throttled", retry=True))

    def unsure(self, kind: str, parts: Parts) -> list[Any]:
        return [UNKNOWN if self.random.random() < 0.5 else answer for answer in self._served(kind, parts)]

    def raises(self, kind: str, parts: Parts) -> list[Any]:
        """A defect, which does not pass: what was asked for fails at once."""
        self.process.invocation.failed = True
        if self.random.random() < 0.5:
            self._served(kind, parts)
        raise RuntimeError("absurd")

    def crash(self, kind: str, parts: Parts) -> list[Any]:
        """The process dies here: after some statements, with others yet to arrive, or never."""
        served = self.random.randint(0, len(parts))
        for part in parts[:served]:
            self._effect(kind, part, alone=False)
        if self.random.random() < 0.5:
            self._later(kind, parts[served:])
        self.simulation.kill(self.process)
        return self.simulation.world.stop()

    def _partly(self, kind: str, parts: Parts, otherwise: object) -> list[Any]:
        one_at_least = self.random.randrange(len(parts))
        return [
            otherwise
            if place == one_at_least or self.random.random() < 0.5
            else self._effect(kind, part, alone=len(parts) == 1)
            for place, part in enumerate(parts)
        ]


FAULTS: dict[str, Callable[[Wire, str, Parts], list[Any]]] = {
    "lost answer": Wire.lost_answer,
    "lost request": Wire.lost_request,
    "delayed on the wire": Wire.delayed,
    "sent again by the client": Wire.sent_again,
    "copied by the network": Wire.copied,
    "throttled": Wire.throttled,
    "nobody knows": Wire.unsure,
    "raises": Wire.raises,
    "crash": Wire.crash,
}


class Client:
    """The queue's client as one process sees it."""

    class meta:  # noqa: N801  # boto3's name
        endpoint_url = "https://sqs.us-east-1.amazonaws.com"

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> None:  # noqa: N803
        self._arrive()
        for entry in Entries:
            self.simulation.queue.show_again(
                entry["ReceiptHandle"], self.simulation.world.now + entry["VisibilityTimeout"]
            )

    def send_message(self, **arguments: Any) -> None:
        confirmed = self._arrive(quietly=True)
        if confirmed or self.simulation.random.random() < 0.5:
            self.simulation.queue.bury(arguments)
        if not confirmed:
            raise ConnectionError("the answer was lost")

    def _arrive(self, *, quietly: bool = False) -> bool:
        self.simulation.world.sleep(self.simulation.random.uniform(0.001, 0.02))
        lost = self.simulation.fault() is not None
        if lost and not quietly:
            raise ConnectionError("refused")
        return not lost
