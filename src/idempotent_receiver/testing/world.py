"""A world in virtual time: it runs the shipped code unmodified, in greenlets instead of threads, one at a time.

A job yields to the others only in `World.sleep`, which simulated stores, clients and event loops call. No real time
passes there, and only the order of those calls decides which job runs next.
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from greenlet import GreenletExit, getcurrent, greenlet

from idempotent_receiver.testing.virtual_loop import VirtualLoop, outside_any_loop

START_EPOCH_SECONDS = 1_800_000_000.0
LONG_SECONDS = 1e9
MOST_EXITS = 100

_left: set[greenlet] = set()
"""Abandoned jobs, kept because garbage collection would try to end them again."""


class World:
    """Virtual time and its jobs (greenlets). `fraction` returns random numbers in [0, 1), for jitter."""

    def __init__(self, fraction: Callable[[], float] = lambda: 0.5) -> None:
        self.now = 0.0
        self.fraction = fraction
        self._hub = getcurrent()
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, greenlet, int]] = []
        self._wakes: dict[greenlet, int] = {}
        """The number of each greenlet's valid agenda entry; the greenlet's earlier entries are ignored."""
        self._spawned: list[greenlet] = []
        self._killed: set[greenlet] = set()
        self._loops: list[VirtualLoop] = []
        self._exits: Counter[greenlet] = Counter()
        self.ended = False

    def spawn(self, job: Callable[[], object], after: float = 0.0) -> greenlet:
        """Start a job after `after` seconds, in a copy of the caller's context."""
        new = greenlet(job, parent=self._hub)
        new.gr_context = copy_context()
        self._spawned.append(new)
        self._wake(new, after)
        return new

    def event_loop(self) -> VirtualLoop:
        """An event loop in virtual time, which ends with the world."""
        self._loops.append(VirtualLoop(lambda: self.now, self.sleep, self.wake))
        return self._loops[-1]

    def sleep(self, seconds: float) -> None:
        """Make the calling job wait."""
        if self.ended:
            self.leave()
        self._wake(getcurrent(), seconds)
        outside_any_loop(self._hub.switch)

    def wake(self, sleeper: greenlet) -> None:
        """End a job's wait now."""
        self._wake(sleeper, 0.0)

    def delay(self, sleepers: Sequence[greenlet], seconds: float) -> None:
        """Make jobs that are waiting wait `seconds` longer."""
        due = {sleeper: at for at, turn, sleeper, _ in self._agenda if self._wakes.get(sleeper) == turn}
        for sleeper in sleepers:
            if sleeper in due:
                self._wake(sleeper, due[sleeper] - self.now + seconds)

    def kill(self, victim: greenlet) -> None:
        """Stop a job as a crash would: none of its code runs again."""
        self._wakes.pop(victim, None)
        self._killed.add(victim)

    def stop(self) -> Any:
        """Stop the calling job permanently."""
        if self.ended:
            self.leave()
        outside_any_loop(self._hub.switch)
        raise AssertionError("a dead job resumed")

    def leave(self) -> NoReturn:
        """End the calling job after the world has ended. A job that keeps catching `GreenletExit` is abandoned."""
        job = getcurrent()
        self._exits[job] += 1
        if self._exits[job] > MOST_EXITS and job.parent is self._hub:
            _left.add(job)
            outside_any_loop(self._hub.switch)
        raise GreenletExit

    def end(self) -> None:
        """End every job immediately."""
        self.ended = True
        for one in self._spawned:
            while not one.dead and one not in _left:
                outside_any_loop(partial(one.throw, GreenletExit))
        for loop in self._loops:
            loop.end()

    def run(self) -> None:
        """Run until no job is waiting."""
        while self._agenda:
            at, turn, sleeper, _ = heapq.heappop(self._agenda)
            if self._wakes.get(sleeper) != turn:
                continue
            del self._wakes[sleeper]
            self.now = max(self.now, at)
            outside_any_loop(sleeper.switch)

    def _wake(self, sleeper: greenlet, after: float) -> None:
        if sleeper in self._killed:
            return
        turn = next(self._order)
        self._wakes[sleeper] = turn
        heapq.heappush(self._agenda, (self.now + after, turn, sleeper, id(sleeper)))


@dataclass
class WorldClock:
    """One worker's clock. The wall clock can be wrong and can jump; suspending the machine stops monotonic time."""

    world: World
    skew_seconds: float = 0.0
    drawn: "itertools.count[int]" = field(default_factory=itertools.count)
    name: str = "w"
    suspended_seconds: float = 0.0

    def epoch_ms(self) -> int:
        """The wall clock, in milliseconds since 1970."""
        return int((START_EPOCH_SECONDS + self.world.now + self.skew_seconds) * 1000)

    def monotonic_seconds(self) -> float:
        """Virtual seconds, excluding those in which the machine was suspended."""
        return self.world.now - self.suspended_seconds

    def sleep(self, seconds: float) -> None:
        """Let other jobs run for `seconds`."""
        self.world.sleep(seconds)

    def fraction(self) -> float:
        """The world's next number in [0, 1)."""
        return self.world.fraction()

    def versions(self, count: int) -> Sequence[str]:
        """Unique strings: the worker's name and a number."""
        return [f"{self.name}-{next(self.drawn)}" for _ in range(count)]


class WorldExecutor:
    """An `Executor` that runs jobs as greenlets in a world; coroutines share one event loop."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: list[greenlet] = []
        self._finished: list[tuple[Callable[[Any], None], Any]] = []
        self._waiter: greenlet | None = None
        self._loop: VirtualLoop | None = None

    def start(self, job: Callable[[], Any], on_done: Callable[[Any], None]) -> None:
        """Run `job` as a greenlet."""
        self.jobs.append(self.world.spawn(lambda: self._finish(on_done, job())))

    def decide(self, decide: Callable[[], None], on_interrupt: Callable[[BaseException], None]) -> None:
        """Call `decide` here: a world has only one thread."""
        decide()

    def start_handlers(self, job: Callable[[], Any], on_done: Callable[[Any], None]) -> None:
        """Run `job` as a greenlet."""
        self.start(job, on_done)

    def start_async(self, job: Callable[[], Coroutine[Any, Any, Any]], on_done: Callable[[Any], None]) -> None:
        """Run the coroutine on the event loop."""
        if self._loop is None:
            self._loop = self.world.event_loop()
            self.jobs.append(self.world.spawn(self._loop.run_forever))

        async def follow() -> None:
            self._finish(on_done, await job())

        self._loop.spawn(follow)

    def tell(self, on_done: Callable[[Any], None], result: object) -> None:
        """Queue a callback, and the result to pass to it, for `step`."""
        self._finish(on_done, result)

    def step(self, timeout_seconds: float | None) -> None:
        """Wait until a job finishes, then call the callbacks of all finished jobs."""
        if not self._finished:
            self._waiter = getcurrent()
            # At least a microsecond: rounding can make the timeout too short to advance the time.
            self.world.sleep(LONG_SECONDS if timeout_seconds is None else max(1e-6, timeout_seconds))
            self._waiter = None
        finished, self._finished = self._finished, []
        for on_done, result in finished:
            on_done(result)

    def cancel_async(self) -> None:
        """Cancel all tasks on the event loop."""
        if self._loop is not None:
            self._loop.cancel()

    def close(self, within_seconds: float | None) -> None:
        """Cancel tasks that a handler left on the event loop, and wait up to `within_seconds` for them to end."""
        loop, self._loop = self._loop, None
        if loop is not None:
            closer = getcurrent()
            loop.cancel_and_stop(lambda: self.world.wake(closer))
            self.world.sleep(LONG_SECONDS if within_seconds is None else max(0.0, within_seconds))

    def kill(self) -> None:
        """Crash: stop all jobs."""
        for job in self.jobs:
            self.world.kill(job)

    def _finish(self, on_done: Callable[[Any], None], result: object) -> None:
        self._finished.append((on_done, result))
        if self._waiter is not None:
            self.world.wake(self._waiter)
