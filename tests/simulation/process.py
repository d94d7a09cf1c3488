"""A worker's process in the random simulation: the shipped consumer, its own clock and a faulty network."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, get_type_hints

from idempotent_receiver import Message, PermanentError, Transaction, body_field, message_id, sqs_consumer
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.testing.world import WorldClock, WorldExecutor
from tests.simulation import reached
from tests.simulation.monitor import account_of, done
from tests.simulation.network_faults import NetworkQueueClient, NetworkStore
from tests.simulation.points import HANDLER, PAUSE
from tests.simulation.world import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from greenlet import greenlet

    from tests.simulation.simulation import Simulation
    from tests.simulation.sqs_model import QueuedMessage


@dataclass
class Invocation:
    """One invocation of a process's handler, and what happened to it."""

    name: str
    messages: Sequence[QueuedMessage]
    started: float
    claims: bool = True
    contended: bool = False
    delayed: bool = False
    failed: bool = False
    stepped: bool = False
    """Whether its wall clock has stepped forward, so that it starts nothing more."""
    suspended: bool = False
    fault_count: int = 0
    committing: list[set[str]] = field(default_factory=list)
    """The items of its transactions that are on their way, request by request."""
    sent: dict[str, str] = field(default_factory=dict)
    """What its last write of each record was."""
    points: Counter[str] = field(default_factory=Counter)
    """At which points it waits for answers now, and for how many at each."""
    disturbances: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What may happen to its process while it is under way."""

    @contextmanager
    def waiting_at(self, points: Iterable[str]) -> Iterator[None]:
        """Wait for an answer. A process that dies meanwhile leaves no trace of it that matters."""
        self.points.update(points)
        try:
            yield
        finally:
            self.points.subtract(points)

    def mark(self, disturbance: str) -> None:
        """It is disturbed where it is now."""
        reached.mark_at([point for point, count in self.points.items() if count] or [PAUSE], disturbance)


class Process:
    """A worker's process. It runs one invocation after the other until it is killed."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.clock = WorldClock(simulation.world, name=name)
        self._at_work: list[tuple[Invocation, WorldExecutor]] = []
        self.invocation = Invocation("nobody", (), 0.0)
        self.greenlets: list[greenlet] = []
        plan = simulation.plan
        self.claims = Random(f"{simulation.seed} {name}").random() >= plan.unclaimed
        wire, client = NetworkStore(simulation, self), NetworkQueueClient(simulation, self)
        dead_letter_options: Any = {"dead_letter_queue": DEAD_LETTERS + (".fifo" if simulation.queue.fifo else "")}
        consumer = sqs_consumer(
            wire,
            clock=self.clock,
            executor=self._executor,
            sqs=client,  # type: ignore[arg-type]  # it has the methods that are called
            concurrency=plan.concurrency,
            key=body_field("key") if plan.keyed else message_id,
            effects="any" if self.claims else "transaction",
            logger=SILENT,
            metrics=SILENT,
            **(dead_letter_options if plan.dead_letters else {}),
        )
        self.handler = consumer(self._post if plan.transactional else self._handle)

    def _executor(self) -> WorldExecutor:
        self._at_work = [*self._still_at_work(), (self.invocation, WorldExecutor(self.simulation.world))]
        return self._at_work[-1][1]

    def _still_at_work(self) -> list[tuple[Invocation, WorldExecutor]]:
        return [one for one in self._at_work if any(not job.dead for job in one[1].jobs)]

    @property
    def executors(self) -> list[WorldExecutor]:
        """The executors of its invocation, and of earlier ones whose requests are still under way."""
        return [executor for _, executor in self._at_work]

    @property
    def under_way(self) -> list[Invocation]:
        """Its invocation, and earlier ones that have answered although their requests are still under way."""
        return [self.invocation, *(one for one, _ in self._still_at_work() if one is not self.invocation)]

    def _handle(self, body: str, message: Message) -> str:
        self.simulation.disturbances.provoke(self.invocation, {HANDLER})
        with self.invocation.waiting_at({HANDLER}):
            self.simulation.handle(self.invocation, self.simulation.queue.messages[message.id])
        return done(body)

    def _post(self, body: str, message: Message, tx: Transaction) -> str:
        plan, queued = self.simulation.plan, self.simulation.queue.messages[message.id]
        _add_one(tx, "Entries", queued.key, body=queued.body)
        if plan.accounts:
            _add_one(tx, "Accounts", account_of(queued.key, plan.accounts))
        if plan.closes:
            error = PermanentError("closed") if queued.key[-1] in "02468" else None
            tx.check(
                TableName="Open", Key={"id": queued.key}, ConditionExpression="attribute_exists(id)", otherwise=error
            )
        return self._handle(body, message)


def _add_one(tx: Transaction, table: str, id: str, body: str = "") -> None:
    tx.update(
        TableName=table,
        Key={"id": id},
        UpdateExpression="SET body = :body ADD times :one",
        ExpressionAttributeValues={":one": 1, ":body": body},
    )


for _handler in (Process._handle, Process._post):
    # Resolved once, because millions of consumers are made and each of them reads the annotations.
    _handler.__annotations__ = get_type_hints(_handler)
