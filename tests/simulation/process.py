"""A worker's process in the random simulation: the shipped consumer, its own clock and a faulty network."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from idempotent_receiver import body_field, message_id
from idempotent_receiver.testing.events import LambdaContext
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.testing.world import WorldClock, WorldExecutor
from tests.consumers import controlled
from tests.simulation import reached
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.casts import Cast
from tests.simulation.network_faults import NetworkQueueClient, NetworkStore
from tests.simulation.plan import DAY_SECONDS
from tests.simulation.points import PAUSE
from tests.simulation.world import DEAD_LETTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from greenlet import greenlet

    from tests.simulation.plan import Version
    from tests.simulation.random_world import RandomWorld
    from tests.simulation.simulation import Simulation
    from tests.simulation.sqs_model import QueuedMessage


@dataclass(eq=False)
class Invocation:
    """One invocation of a process's handler, and what happened to it."""

    name: str
    messages: Sequence[QueuedMessage]
    started: float
    ids: Sequence[str] = ()
    """The records that it may touch."""
    version: Version | None = None
    contended: bool = False
    failed: bool = False
    stepped: bool = False
    """Whether its wall clock has stepped forward, so that it starts nothing more."""
    suspended: bool = False
    """Whether its monotonic clock has stood still, alone or with its machine."""
    wall_behind: bool = False
    """Whether its wall clock has stood still or stepped back. Both at once would hide that time has passed."""
    held_up: bool = False
    """Whether the process itself has stood still."""
    asked: float = 0.0
    """When the table last took one of its requests."""
    fault_count: int = 0
    running: set[str] = field(default_factory=set)
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

    @property
    def undisturbed(self) -> bool:
        """Whether it met at most one fault, which the store's retries make up for, and nobody was in its way."""
        return self.fault_count <= 1 and not (self.contended or self.failed or self.stepped)

    @property
    def claims(self) -> bool:
        return self.version is None or self.version.claims

    def message(self, id: str) -> QueuedMessage:
        return next(message for message in self.messages if message.id == id)


@dataclass
class Clock(WorldClock):
    """A process's clock. Each of its two clocks may stand still for a while, although the process goes on."""

    stops: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: {"wall": [], "monotonic": []})

    def stand_still(self, which: str, seconds: float) -> None:
        self.stops[which].append((self.world.now, self.world.now + seconds))

    def epoch_ms(self) -> int:
        return super().epoch_ms() - int(self._stood("wall") * 1000)

    def monotonic_seconds(self) -> float:
        return super().monotonic_seconds() - self._stood("monotonic")

    def set(self, skew_seconds: float) -> None:
        """Set the wall clock, and let both clocks go on."""
        self.skew_seconds, now = skew_seconds, self.world.now
        self.stops["wall"].clear()
        self.stops["monotonic"] = [(since, min(until, now)) for since, until in self.stops["monotonic"]]

    def _stood(self, which: str) -> float:
        now = self.world.now
        return sum(max(0.0, min(now, until) - since) for since, until in self.stops[which])


NOBODY = Invocation("nobody", (), 0.0)


class Process:
    """A process of Lambda: it serves one invocation after the other until it is killed or replaced by a new one."""

    simulation: Any

    def __init__(self, simulation: RandomWorld, name: str) -> None:
        self.simulation = simulation
        self.name = name
        self.clock = Clock(simulation.world, name=name)
        self.invocation = NOBODY
        self.greenlets: list[greenlet] = []
        self._at_work: list[tuple[Invocation, WorldExecutor]] = []

    def context(self) -> LambdaContext:
        return LambdaContext(BUDGET_SECONDS, WorldClock(self.simulation.world), aws_request_id=self.invocation.name)

    def executor(self) -> WorldExecutor:
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


class Consumer(Process):
    """A worker's process, with the shipped consumer of a queue."""

    simulation: Simulation

    def __init__(self, simulation: Simulation, name: str, namespace: str | None) -> None:
        super().__init__(simulation, name)
        self.namespace = namespace
        plan = simulation.plan
        self.deployed = simulation.deployed
        self.version = version = plan.version(name, deployed=self.deployed)
        more: dict[str, Any] = {"retention_seconds": DAY_SECONDS} if plan.expires else {}
        if version.dead_letters:
            more["dead_letter_queue"] = DEAD_LETTERS + (".fifo" if plan.fifo else "")
        cast = Cast(self)
        self.handler = controlled(
            NetworkStore(self, namespace),
            calls=[cast.announce] if plan.calls else [],
            clock=self.clock,
            executor=self.executor,
            sqs=NetworkQueueClient(simulation, self),  # type: ignore[arg-type]  # it has the methods that are called
            concurrency=version.concurrency,
            key=body_field("key") if plan.keyed else message_id,
            effects="any" if version.claims else "transaction",
            logger=SILENT,
            metrics=SILENT,
            **more,
        )(cast.function)
