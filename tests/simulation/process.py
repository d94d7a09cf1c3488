"""A worker's process in the simulated worlds: the shipped consumer, on a clock of its own, in bad weather."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, get_type_hints

from idempotent_receiver import Message, Transaction, sqs_consumer
from tests.simulation.ways import DEAD_LETTERS, SILENT
from tests.simulation.weather import Client, Wire
from tests.simulation.world import WorldClock, WorldExecutor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from greenlet import greenlet

    from tests.simulation.simulated import Simulation
    from tests.simulation.sqs_model import Mail

BUDGET_SECONDS = 10.0


@dataclass
class Invocation:
    """One call of a process's handler."""

    name: str
    mails: Sequence[Mail]
    started: float
    contended: bool = False
    delayed: bool = False
    failed: bool = False
    stepped: bool = False
    """Whether its wall clock has stepped forward, so that it begins nothing more."""
    suspended: bool = False
    troubles: int = 0
    running: set[str] = field(default_factory=set)


class Process:
    """A worker's process: it lives for one invocation after the other, until it is killed."""

    def __init__(self, simulation: Simulation, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.clock = WorldClock(simulation.world, name=name)
        self._at_work: list[tuple[Invocation, WorldExecutor]] = []
        self.invocation = Invocation("nobody", (), 0.0)
        self.greenlets: list[greenlet] = []
        wire, client = Wire(simulation, self), Client(simulation)
        letters: Any = {"dead_letter_queue": DEAD_LETTERS + (".fifo" if simulation.queue.fifo else "")}
        consumer = sqs_consumer(
            wire,
            clock=self.clock,
            executor=self._executor,
            sqs=client,  # type: ignore[arg-type]  # the part of it that is used
            concurrency=simulation.odds.concurrency,
            logger=SILENT,
            metrics=SILENT,
            **(letters if simulation.odds.letters else {}),
        )
        self.handler = consumer(self._post if simulation.odds.transactional else self._handle)

    def _executor(self) -> WorldExecutor:
        self._at_work = [*self._still_at_work(), (self.invocation, WorldExecutor(self.simulation.world))]
        return self._at_work[-1][1]

    def _still_at_work(self) -> list[tuple[Invocation, WorldExecutor]]:
        return [one for one in self._at_work if any(not job.dead for job in one[1].jobs)]

    @property
    def executors(self) -> list[WorldExecutor]:
        """Those of its invocation, and of earlier ones that have left requests behind."""
        return [executor for _, executor in self._at_work]

    @property
    def under_way(self) -> list[Invocation]:
        """Its invocation, and earlier ones that have answered while requests of theirs are still under way."""
        return [self.invocation, *(one for one, _ in self._still_at_work() if one is not self.invocation)]

    def _handle(self, body: str, message: Message) -> str:
        self.simulation.handle(self.invocation, message.id)
        return "done"

    def _post(self, body: str, message: Message, tx: Transaction) -> str:
        tx.update(
            TableName="Entries",
            Key={"id": message.id},
            UpdateExpression="ADD times :one",
            ExpressionAttributeValues={":one": 1},
        )
        return self._handle(body, message)


for _handler in (Process._handle, Process._post):
    # Resolved once: each consumer that is made reads them, and there are millions.
    _handler.__annotations__ = get_type_hints(_handler)
