"""A world of virtual time in which the shipped code runs unmodified: greenlets instead of threads, one at a time.

A job yields to the others only in `World.sleep`, which the simulated stores and clients call around each request.
Nothing really sleeps, and the seed alone decides what runs next.
"""

from __future__ import annotations

import heapq
import itertools
from asyncio import CancelledError
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from greenlet import GreenletExit, getcurrent, greenlet

from idempotent_receiver import sqs_consumer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Sequence

    from idempotent_receiver.protocol.store import RecordStore

START_EPOCH_SECONDS = 1_800_000_000.0
QUEUE = "arn:aws:sqs:us-east-1:123456789012:transfers"
FIFO = QUEUE + ".fifo"
DEAD_LETTERS = "https://sqs.us-east-1.amazonaws.com/123456789012/dead-letters"
"""The URL of the dead-letter queue."""


class Silent:
    """A logger and metrics that record nothing."""

    log_level = 100

    def info(self, *arguments: object, **fields: object) -> None:
        """Record nothing."""

    debug = warning = error = append_keys = add_metric = flush_metrics = info


SILENT: Any = Silent()


class World:
    """Virtual time, and the jobs (greenlets) that wait in it."""

    def __init__(self, seed: int = 0) -> None:
        self.now = 0.0
        self.random = Random(seed)
        self._hub = getcurrent()
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, greenlet, int]] = []
        self._wakes: dict[greenlet, int] = {}
        """The agenda entry that counts for each greenlet; an earlier one is void."""
        self._spawned: list[greenlet] = []
        self._ended = False

    def spawn(self, job: Callable[[], object], after: float = 0.0) -> greenlet:
        """Start a job after that many seconds."""
        new = greenlet(job, parent=self._hub)
        self._spawned.append(new)
        self._wake(new, after)
        return new

    def sleep(self, seconds: float) -> None:
        """Let the calling job wait."""
        if self._ended:
            raise GreenletExit
        self._wake(getcurrent(), seconds)
        self._hub.switch()

    def wake(self, sleeper: greenlet) -> None:
        """End a job's wait now."""
        self._wake(sleeper, 0.0)

    def delay(self, sleepers: Sequence[greenlet], seconds: float) -> None:
        """Let these jobs wait longer."""
        due = {sleeper: at for at, turn, sleeper, _ in self._agenda if self._wakes.get(sleeper) == turn}
        for sleeper in sleepers:
            if sleeper in due:
                self._wake(sleeper, due[sleeper] - self.now + seconds)

    def kill(self, victim: greenlet) -> None:
        """End a job where it stands, as a crash does: none of its code runs again."""
        self._wakes.pop(victim, None)

    def stop(self) -> Any:
        """Stop the calling job for good."""
        if self._ended:
            raise GreenletExit
        self._hub.switch()
        raise AssertionError("a dead job goes on")

    def end(self) -> None:
        """End every job where it stands."""
        self._ended = True
        for one in self._spawned:
            while not one.dead:
                one.throw(GreenletExit)

    def run(self) -> None:
        """Run until no job is waiting."""
        while self._agenda:
            at, turn, sleeper, _ = heapq.heappop(self._agenda)
            if self._wakes.get(sleeper) != turn:
                continue
            del self._wakes[sleeper]
            self.now = max(self.now, at)
            sleeper.switch()

    def _wake(self, sleeper: greenlet, after: float) -> None:
        turn = next(self._order)
        self._wakes[sleeper] = turn
        heapq.heappush(self._agenda, (self.now + after, turn, sleeper, id(sleeper)))


@dataclass
class WorldClock:
    """One worker's clock. The wall clock may be off and may step; suspending the machine stops the monotonic one."""

    world: World
    skew_seconds: float = 0.0
    drawn: itertools.count[int] = field(default_factory=itertools.count)
    name: str = "w"
    suspended_seconds: float = 0.0

    def epoch_ms(self) -> int:
        return int((START_EPOCH_SECONDS + self.world.now + self.skew_seconds) * 1000)

    def monotonic_seconds(self) -> float:
        return self.world.now - self.suspended_seconds

    def sleep(self, seconds: float) -> None:
        self.world.sleep(seconds)

    def fraction(self) -> float:
        return self.world.random.random()

    def versions(self, count: int) -> Sequence[str]:
        return [f"{self.name}-{next(self.drawn)}" for _ in range(count)]


class WorldExecutor:
    """An `Executor` whose jobs are greenlets of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.jobs: list[greenlet] = []
        self._finished: list[tuple[Callable[[Any], None], Any]] = []
        self._waiter: greenlet | None = None
        self._sleepers: set[greenlet] = set()
        self._to_cancel: set[greenlet] = set()

    def start(self, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.jobs.append(self.world.spawn(lambda: self._finish(then, job())))

    def start_async(self, job: Callable[[], Coroutine[Any, Any, Any]], then: Callable[[Any], None]) -> None:
        self.jobs.append(self.world.spawn(lambda: self._finish(then, self._drive(job()))))

    def tell(self, then: Callable[[Any], None], result: object) -> None:
        self._finish(then, result)

    def step(self, timeout_seconds: float | None) -> None:
        if not self._finished:
            self._waiter = getcurrent()
            # At least a microsecond: a shorter time-out, from a rounding error, would not advance the time.
            self.world.sleep(1e9 if timeout_seconds is None else max(1e-6, timeout_seconds))
            self._waiter = None
        finished, self._finished = self._finished, []
        for then, result in finished:
            then(result)

    def cancel_async(self) -> None:
        self._to_cancel |= self._sleepers
        for sleeper in self._sleepers:
            self.world.wake(sleeper)

    def close(self, within_seconds: float | None) -> None:
        return

    def kill(self) -> None:
        """Crash: stop all jobs."""
        for job in self.jobs:
            self.world.kill(job)

    def _finish(self, then: Callable[[Any], None], result: object) -> None:
        self._finished.append((then, result))
        if self._waiter is not None:
            self.world.wake(self._waiter)

    def _drive(self, coroutine: Coroutine[Any, Any, Any]) -> object:
        """Run a coroutine that awaits only `nap`."""
        try:
            seconds = coroutine.send(None)
            while True:
                self._sleepers.add(getcurrent())
                self.world.sleep(seconds)
                self._sleepers.discard(getcurrent())
                if getcurrent() in self._to_cancel:
                    self._to_cancel.discard(getcurrent())
                    seconds = coroutine.throw(CancelledError())
                else:
                    seconds = coroutine.send(None)
        except StopIteration as stop:
            return stop.value


class nap:  # noqa: N801  # reads like a function: `await nap(5)`
    """Virtual seconds that a coroutine awaits."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __await__(self) -> Generator[float, None, None]:
        yield self.seconds


@dataclass
class Context:
    """Lambda's context for an invocation whose deadline is at a moment of virtual time."""

    world: World
    ends: float
    aws_request_id: str = "request"
    function_name: str = "consumer"

    def get_remaining_time_in_millis(self) -> int:
        return int((self.ends - self.world.now) * 1000)


class Worker:
    """One process. It runs a consumer on events in virtual time, and can be killed."""

    def __init__(self, world: World, store: RecordStore, function: Callable[..., Any], **options: Any) -> None:
        self.world = world
        self.name = str(options.pop("name", "w"))
        self.clock = WorldClock(world, options.pop("skew_seconds", 0.0), name=self.name)
        self.executors: list[WorldExecutor] = []
        self.greenlets: list[greenlet] = []
        self.watchdogs: list[greenlet] = []
        self.answers: list[Any] = []
        self.handler = sqs_consumer(store, clock=self.clock, executor=self._executor, **options)(function)

    def _executor(self) -> WorldExecutor:
        self.executors.append(WorldExecutor(self.world))
        return self.executors[-1]

    def deliver(self, *records: dict[str, Any], seconds: float = 30.0, after: float = 0.0) -> None:
        """Invoke the handler with a batch, later, and append its answer or its exception to `answers`.

        Lambda's time-out kills the process at the deadline if it has not answered by then.
        """

        def invoke() -> None:
            context = Context(self.world, self.world.now + seconds, aws_request_id=self.name)
            watchdog = self.world.spawn(self.kill, after=seconds)
            self.watchdogs.append(watchdog)
            try:
                self.answers.append(failed_ids(self.handler({"Records": list(records)}, context)))
            except Exception as error:  # noqa: BLE001  # the test checks it
                self.answers.append(error)
            self.world.kill(watchdog)

        self.greenlets.append(self.world.spawn(invoke, after))

    def suspend(self, seconds: float) -> None:
        """Called from a job: suspend the machine, with its monotonic clock and Lambda's time-out."""
        self.clock.suspended_seconds += seconds
        jobs = [job for executor in self.executors for job in executor.jobs]
        self.world.delay([*self.greenlets, *self.watchdogs, *jobs], seconds)
        self.world.sleep(seconds)

    def kill(self) -> None:
        """Crash the process."""
        for executor in self.executors:
            executor.kill()
        for one in self.greenlets:
            self.world.kill(one)


def failed_ids(response: dict[str, list[dict[str, str]]]) -> list[str]:
    """The messageIds that an answer reports as failed."""
    assert list(response) == ["batchItemFailures"]
    return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]


def sqs_record(
    id: str,
    body: str = "{}",
    *,
    receives: int = 1,
    queue: str = QUEUE,
    group: str | None = None,
    attributes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A message as Lambda delivers it."""
    system = {"ApproximateReceiveCount": str(receives), "SentTimestamp": "1800000000000"}
    if group is not None:
        system["MessageGroupId"] = group
    return {
        "messageId": id,
        "receiptHandle": f"handle-{id}",
        "body": body,
        "attributes": system,
        "messageAttributes": attributes or {},
        "eventSource": "aws:sqs",
        "eventSourceARN": queue,
        "awsRegion": "us-east-1",
    }
