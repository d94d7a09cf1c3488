"""What may happen to a process while it works: it dies, it freezes, its machine is suspended, its clock steps."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from greenlet import getcurrent, greenlet

from tests.simulation.adapters import BUDGET_SECONDS
from tests.simulation.points import provoked

if TYPE_CHECKING:
    from collections.abc import Collection

    from tests.simulation.process import Invocation, Process
    from tests.simulation.random_world import RandomWorld


class Disturbances:
    def __init__(self, simulation: RandomWorld) -> None:
        self.simulation = simulation
        self.world, self.random, self.plan = simulation.world, simulation.random, simulation.plan
        self.still = simulation.plan.source("standing still")

    def schedule(self, process: Process, mine: Invocation) -> None:
        """Let the process die or freeze, or its clock step, at some time."""
        if self.simulation.quiet:
            return
        plan, poller = self.plan, getcurrent()
        kill, step = partial(self.simulation.kill, process), partial(self._step_clock, process, mine)
        freeze, suspend = (partial(one, process, mine, poller) for one in (self._freeze, self._suspend))
        mine.disturbances = {"killed": kill, "frozen": freeze, "suspended": suspend}
        mine.disturbances |= {"clock forward": partial(step, 1), "clock back": partial(step, -1)}
        still = partial(self._stand_still, process, mine)
        mine.disturbances |= {f"{which} still": partial(still, which) for which in ("wall", "monotonic")}
        for often, disturb in [(plan.crashes, kill), (plan.freezes, freeze), (0.1, step)]:
            if self.random.random() < often:
                self.world.spawn(disturb, after=self.random.random() * BUDGET_SECONDS)
        if plan.suspended.random() < plan.suspensions:
            self.world.spawn(suspend, after=plan.suspended.random() * BUDGET_SECONDS)
        if self.still.random() < plan.still:
            self.world.spawn(still, after=self.still.random() * BUDGET_SECONDS / 2)

    def _stand_still(self, process: Process, invocation: Invocation, which: str | None = None) -> None:
        """Let one of a process's clocks stand still for a while, not both: then neither shows that time has passed."""
        if process.invocation is not invocation or invocation.wall_behind or invocation.suspended:
            return
        which = which or self.still.choice(["wall", "monotonic"])
        seconds = self.still.choice([2.0, 20.0])
        invocation.mark(f"{which} still")
        self.simulation.log(f"{invocation.name}: its {which} clock stands still for {seconds:.0f} s")
        invocation.suspended |= which == "monotonic"
        invocation.wall_behind |= which == "wall"
        invocation.fault_count += 2
        process.clock.stand_still(which, seconds)

    def provoke(self, invocation: Invocation, points: Collection[str]) -> None:
        """Disturb an invocation while it waits at these points, if this world is steered towards that."""
        disturb = invocation.disturbances.get(provoked(points) or "")
        if disturb is not None and not self.simulation.quiet and self.random.random() < 0.3:
            self.world.spawn(disturb, after=self.random.uniform(0.0, 0.01))

    def _step_clock(self, process: Process, invocation: Invocation, sign: int | None = None) -> None:
        # With one clock suspended and the other set back, neither shows that time has passed.
        if process.invocation is invocation and not invocation.suspended:
            step = self.random.choice([-3600, -60, 60, 3600])
            step = step if sign is None else abs(step) * sign
            invocation.mark("clock forward" if step > 0 else "clock back")
            process.clock.skew_seconds += step
            invocation.stepped |= step > 0
            invocation.wall_behind |= step < 0

    def _freeze(self, process: Process, invocation: Invocation, poller: greenlet) -> None:
        """Freeze a process, perhaps past its deadline; then it continues as if nothing had happened."""
        if process not in self.simulation.live or process.invocation is not invocation:
            return
        seconds = self.random.uniform(0, 3 * BUDGET_SECONDS)
        invocation.mark("frozen")
        self.simulation.log(f"{invocation.name} freezes for {seconds:.1f} s")
        self._delay(process, invocation, poller, seconds)

    def _suspend(self, process: Process, invocation: Invocation, poller: greenlet) -> None:
        """Suspend the machine of a process, its monotonic clock included; then it goes on."""
        if process not in self.simulation.live or process.invocation is not invocation or invocation.wall_behind:
            return
        seconds = self.plan.suspended.choice([2.0, 20.0, 3600.0])
        invocation.mark("suspended")
        self.simulation.log(f"{invocation.name} is suspended for {seconds:.0f} s")
        invocation.suspended = True
        process.clock.suspended_seconds += seconds
        self._delay(process, invocation, poller, seconds)

    def _delay(self, process: Process, invocation: Invocation, poller: greenlet, seconds: float) -> None:
        invocation.fault_count += 2
        invocation.held_up = True
        self.world.delay([poller, *process.greenlets, *(job for one in process.executors for job in one.jobs)], seconds)
