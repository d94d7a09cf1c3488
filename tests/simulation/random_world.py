"""What all random worlds have in common: processes, invocations, faults, and a quiet phase; and worlds of clients."""

from __future__ import annotations

from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from greenlet import getcurrent

from idempotent_receiver.testing.world import World
from tests.simulation import reached
from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.disturbances import Disturbances
from tests.simulation.invariants import Violation
from tests.simulation.network_faults import RUNNING
from tests.simulation.plan import Plan
from tests.simulation.points import DISTURBANCES, provoked
from tests.simulation.process import NOBODY, Invocation

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from greenlet import greenlet

    from tests.simulation.table_monitor import TableMonitor
    from tests.simulation.wire import Wire

QUIET_FROM_SECONDS = 60.0
LATEST_SECONDS = 4 * 60 * 60.0
"""Backoffs, leases and visibility timeouts may add up, but not to more than this."""
OUTAGE_SECONDS = 12.0

Answer = TypeVar("Answer")


class RandomWorld:
    """The world of a seed. `clocks_off_seconds` is the largest error of a clock, in either direction. A subclass has a
    `monitor`.
    """

    plan: Any
    monitor: TableMonitor
    wire: Wire | None = None
    """What lies between the processes' stores and the table, if it is more than a network."""

    def __init__(
        self,
        seed: int,
        clocks_off_seconds: float,
        log: Callable[[str], None] | None,
        *,
        plan: Callable[[Random, int], Plan],
        source: Callable[[int], Random] = Random,
    ) -> None:
        planned = reached.planned(seed)
        self.random = source(seed)
        self.plan = plan(self.random if planned == seed else source(planned), planned)
        self.world = World(Random(seed).random)
        self.disturbances = Disturbances(self)
        self.clocks_off_seconds = clocks_off_seconds
        self._log = log
        self.live: list[Any] = []
        self.busy: dict[str, tuple[object, float]] = {}
        """Who has had a transaction on an item, and until when it is in the way of others."""
        self.ending = False
        self.calls = self.groups = self.packs = self.faults = self.invocations = self.requests = 0

    def run(self) -> None:
        """Run to the end. Raises the first violation."""
        raise NotImplementedError

    @property
    def violations(self) -> list[Violation]:
        return self.monitor.violations

    def counts(self) -> dict[str, int]:
        names = ("invocations", "calls", "groups", "packs", "faults", "requests")
        return {name: getattr(self, name) for name in names}

    @property
    def quiet(self) -> bool:
        return self.ending or self.world.now >= QUIET_FROM_SECONDS

    def log(self, what: str) -> None:
        if self._log is not None:
            self._log(f"{self.world.now:10.4f}  {what}")

    def fault(self, points: Collection[str]) -> str | None:
        """The fault of a call at these points, if any."""
        plan, out = self.plan, self.plan.outage_from
        if self.quiet:
            return None
        if out is not None and out <= self.world.now < out + OUTAGE_SECONDS:
            fault: str | None = "lost request"
        elif (kind := provoked(points)) is not None and kind not in DISTURBANCES and self.random.random() < 0.5:
            fault = kind
        else:
            fault = self.random.choice(plan.kinds) if self.random.random() < plan.faults else None
        self.faults += fault is not None
        return fault

    def invoke(
        self, process: Any, mine: Invocation, received: Iterable[str], job: Callable[[Any], Answer]
    ) -> Answer | None:
        """Let a process serve an invocation, until its deadline: its answer, or None if it gives none."""
        process.clock.set(self.random.uniform(-1, 1) * self.clocks_off_seconds)
        self.log(f"{mine.name} starts: {', '.join(received)}, clock {process.clock.skew_seconds:+.1f} s")
        process.invocation = mine
        others = [other for one in self.live for other in one.under_way if other is not mine]
        self.live = [one for one in self.live if one is not process] + [process]
        self.monitor.invocation_started(mine, others)
        answers: list[Answer] = []
        process.greenlets = [self.world.spawn(partial(self._run, process, job, answers, getcurrent()))]
        self.disturbances.schedule(process, mine)
        self.world.sleep(BUDGET_SECONDS)
        if not answers:
            return None
        process.invocation = NOBODY
        return answers[0]

    def _run(self, process: Any, job: Callable[[Any], Answer], answers: list[Answer], service: greenlet) -> None:
        RUNNING.set(process.invocation)
        answers.append(job(process))
        self.world.wake(service)

    def kill(self, process: Any) -> None:
        """Kill a process, as a crash or Lambda's time-out does."""
        if process not in self.live:
            return
        process.invocation.mark("killed")
        self.log(f"{process.invocation.name} is dead")
        self.live.remove(process)
        for executor in process.executors:
            executor.kill()
        for one in process.greenlets:
            if one is not getcurrent():
                self.world.kill(one)


class ClientPlan(Plan):
    """A plan with clients who wait for answers."""

    def __init__(self, random: Random, seed: int) -> None:
        super().__init__(random, seed)
        self.lost = self.faults / 2
        """How often a request, or its answer, is lost."""
        self.patience_seconds = random.choice([0.3, 3.0, 12.0, 30.0])
        """How long a client waits for its answer before it sends its request again."""


class ClientWorld(RandomWorld):
    """A world whose clients call processes."""

    def __init__(
        self, seed: int, clocks_off_seconds: float, log: Callable[[str], None] | None, plan: type[ClientPlan]
    ) -> None:
        super().__init__(
            seed, clocks_off_seconds, log, plan=plan, source=lambda seed: Random(f"{plan.__name__} {seed}")
        )

    def run(self) -> None:
        """Run to the end. Raises Violation."""
        try:
            self.start()
            self.world.run()
            self.world.spawn(self._last)
            self.world.run()
        finally:
            self.world.end()
        if self.violations:
            raise self.violations[0]

    def start(self) -> None:
        """Spawn the clients."""
        raise NotImplementedError

    def last(self) -> None:
        """After all faults and leases: ask once more, and check what there is in the end."""
        raise NotImplementedError

    def new_process(self, name: str) -> Any:
        raise NotImplementedError

    def _last(self) -> None:
        self.ending = True
        self.world.sleep(3 * BUDGET_SECONDS)
        if not self.violations:
            self.last()

    @property
    def overdue(self) -> bool:
        return self.world.now > LATEST_SECONDS

    def chance(self, probability: float) -> bool:
        """Whether something goes wrong now that does with this probability, until the quiet phase."""
        return not self.quiet and self.random.random() < probability

    def ask(self, ids: tuple[str, ...], job: Callable[[Any], Answer]) -> Answer | None:
        """Send a request, for a client that waits so long: its answer, or None. The request may go on without it."""
        self.requests += 1
        client, answers, patient = getcurrent(), list[Answer](), [True]

        def deliver() -> None:
            self.world.sleep(self.random.uniform(0.001, 0.02))
            answer = None if self.chance(self.plan.lost) else self.serve(ids, job)
            if answer is not None and patient[0] and not self.chance(self.plan.lost):
                answers.append(answer)
                self.world.wake(client)

        self.world.spawn(deliver)
        self.world.sleep(3 * BUDGET_SECONDS if self.quiet else self.plan.patience_seconds)
        patient[0] = False
        return answers[0] if answers else None

    def serve(self, ids: tuple[str, ...], job: Callable[[Any], Answer]) -> Answer | None:
        """Let Lambda invoke an idle process, or a new one: its answer, or None if it has died."""
        self.invocations += 1
        idle = [one for one in self.live if one.invocation is NOBODY]
        process = self.random.choice(idle) if idle else self.new_process(f"p{self.invocations}")
        mine = Invocation(f"{process.name}/{self.invocations}", (), self.world.now, ids)
        answer = self.invoke(process, mine, ids, job)
        if answer is None:
            if process in self.live and mine.fault_count == 0 and not mine.failed:
                self.monitor.violated(Violation("ANSWER", f"{mine.name} has met no fault, and does not answer"))
            self.kill(process)
        return answer
