"""A worker process outside Lambda in virtual time: the shipped `Process`, on greenlets instead of threads."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from greenlet import getcurrent, greenlet

from idempotent_receiver.sqs.handlers import consumer_inside
from idempotent_receiver.testing.world import LONG_SECONDS, World, WorldClock, WorldExecutor
from idempotent_receiver.worker import in_flight, polling, process
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.process import Limits, Process
from idempotent_receiver.worker.reports import Reports
from tests.simulation.world import QUEUE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from idempotent_receiver.sqs.consumer import LambdaHandler
    from tests.simulation.sqs_model import QueueModel

QUEUE_URL = "https://sqs.us-east-1.amazonaws.com/123456789012/transfers"
LONGEST_VISIBILITY_SECONDS = 12 * 60 * 60
"""SQS counts it from the receive. Source: SQS Developer Guide, "Visibility timeout"."""


class Condition:
    """`threading.Condition`. No two greenlets run at once, so it has nothing to lock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._waiting: list[greenlet] = []

    def __enter__(self) -> None:
        """Nothing to lock."""

    def __exit__(self, *error: object) -> None:
        """Nothing to release."""

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        ends = self._world.now + (LONG_SECONDS if timeout is None else timeout)
        while not predicate() and self._world.now < ends:
            self._waiting.append(getcurrent())
            self._world.sleep(min(0.5, ends - self._world.now))
            self._waiting.remove(getcurrent())
        return predicate()

    def notify_all(self) -> None:
        for one in self._waiting:
            self._world.wake(one)

    notify = notify_all


class Lock:
    """`threading.Lock`."""

    def __init__(self, world: World) -> None:
        self._freed = Condition(world)
        self._taken = False

    def __enter__(self) -> None:
        self._freed.wait_for(lambda: not self._taken)
        self._taken = True

    def __exit__(self, *error: object) -> None:
        self._taken = False
        self._freed.notify_all()


_own: ContextVar[WorkerProcess] = ContextVar("_own")
"""The process whose thread this is."""


class Thread:
    """`threading.Thread`."""

    def __init__(self, *, target: Callable[..., object], args: tuple[Any, ...] = (), **options: Any) -> None:
        self._target = partial(target, *args)
        self._world = _own.get().world
        self._ended = False

    def start(self) -> None:
        _own.get().spawn(self._run)

    def is_alive(self) -> bool:
        return not self._ended

    def join(self, timeout: float | None = None) -> None:
        Condition(self._world).wait_for(lambda: self._ended, timeout)

    def _run(self) -> None:
        self._target()
        self._ended = True


@contextmanager
def threads_of(world: World) -> Iterator[None]:
    """Let the worker's modules have this world's threads."""
    threads = SimpleNamespace(
        Thread=Thread, Condition=partial(Condition, world), Lock=partial(Lock, world), Semaphore=threading.Semaphore
    )
    with ExitStack() as stack:
        for module in (in_flight, polling, process):
            stack.enter_context(patch.object(module, "threading", threads))
        stack.enter_context(patch.object(process, "die", lambda why: _own.get().die(why)))
        yield


@dataclass
class Timer:
    """The kernel timer: when its time has come, the process is killed."""

    world: World
    kill: Callable[[], None]
    _watchdog: greenlet | None = None

    def arm(self, seconds: float) -> None:
        self.disarm()
        self._watchdog = self.world.spawn(self.kill, after=max(0.0, seconds))

    def disarm(self) -> None:
        if self._watchdog is not None:
            self.world.kill(self._watchdog)


@dataclass
class Sqs:
    """SQS as a worker sees it. It refuses a visibility that would end more than twelve hours after the receive; what
    is asked for by a receipt handle that a later receive has superseded is refused, or, a deletion, does nothing.
    """

    world: World
    model: QueueModel
    received: dict[str, float] = field(default_factory=dict)
    refused: int = 0
    changes: int = 0
    receives: list[int] = field(default_factory=list)
    """How many messages each receive was answered with."""
    _polls: list[greenlet] = field(default_factory=list)
    """Those that wait for a message to become visible."""

    def receive_message(self, **arguments: Any) -> dict[str, Any]:
        ends = self.world.now + arguments["WaitTimeSeconds"]
        while not (found := self.model.receive(self.world.now, arguments["MaxNumberOfMessages"])):
            if self.world.now >= ends:
                return {}
            wake = self.model.next_visible()
            self._polls.append(getcurrent())
            self.world.sleep(min(ends, wake if wake > self.world.now else ends) - self.world.now)
            self._polls.remove(getcurrent())
        self.receives.append(len(found))
        for message in found:
            message.visible_at = self.world.now + arguments["VisibilityTimeout"]
            self.received[message.handle] = self.world.now
        return {
            "Messages": [
                {
                    "MessageId": message.id,
                    "ReceiptHandle": message.handle,
                    "Body": message.body,
                    "Attributes": {"ApproximateReceiveCount": str(message.receives)},
                }
                for message in found
            ]
        }

    def delete_message_batch(self, **arguments: Any) -> dict[str, Any]:
        self.world.sleep(0.005)
        self.model.delete(entry["ReceiptHandle"] for entry in arguments["Entries"] if self._newest(entry))
        return {"Successful": [{"Id": entry["Id"]} for entry in arguments["Entries"]]}

    def change_message_visibility_batch(self, **arguments: Any) -> dict[str, Any]:
        self.world.sleep(0.005)
        done, failed = [], []
        for entry in arguments["Entries"]:
            if self._changed(entry):
                done.append({"Id": entry["Id"]})
            else:
                failed.append({"Id": entry["Id"], "Code": "ReceiptHandleIsInvalid", "SenderFault": True})
        self.changes += len(arguments["Entries"])
        self.refused += len(failed)
        return {"Successful": done, "Failed": failed}

    def _changed(self, entry: dict[str, Any]) -> bool:
        handle, ends = entry["ReceiptHandle"], self.world.now + entry["VisibilityTimeout"]
        if not self._newest(entry) or ends > self.received[handle] + LONGEST_VISIBILITY_SECONDS:
            return False
        self.model.change_visibility(handle, ends)
        for poll in self._polls:
            self.world.wake(poll)
        return True

    def _newest(self, entry: dict[str, Any]) -> bool:
        handle = entry["ReceiptHandle"]
        return self.model.messages[handle.partition("/")[0]].handle == handle


class WorkerProcess:
    """One process. It works until it is told to `stop`, or until its timer or a lost lease has killed it."""

    process: Process

    def __init__(self, world: World, consumer: LambdaHandler, sqs: Any, name: str, limits: Limits) -> None:
        self.world = world
        self.name = name
        self.killed_because: str | None = None
        self._greenlets: list[greenlet] = []
        self._executors: list[WorldExecutor] = []
        self.spawn(partial(self._work, consumer, sqs, limits))

    def spawn(self, job: Callable[[], object]) -> None:
        self._greenlets.append(self.world.spawn(job))

    def stop(self) -> None:
        """Drain, as SIGTERM lets it."""
        self.process.draining = True

    def kill(self, why: str) -> None:
        """End it where it stands."""
        self.killed_because = why
        self._end()

    def die(self, why: str) -> None:
        """What a job of this process calls to end it: none of its code runs again."""
        self.kill(why)
        self.world.stop()

    def _work(self, consumer: LambdaHandler, sqs: Any, limits: Limits) -> None:
        _own.set(self)
        clock = WorldClock(self.world, name=self.name)
        leases = Leases(
            consumer.options.store,
            clock,
            Timer(self.world, partial(self.kill, "the timer")),
            lambda key, why: self.die(f"{key}: {why}"),
            lease_seconds=limits.lease_seconds,
            margin_seconds=limits.margin_seconds,
        )
        own = consumer_inside(
            consumer.with_options(
                replace(consumer.options, concurrency=limits.concurrency), clock=clock, executor=self._executor
            )
        )
        assert own is not None
        queue, reports = polling.PolledQueue(sqs, QUEUE_URL, QUEUE), Reports(None, self.name)
        self.process = Process(own, queue, leases=leases, limits=limits, reports=reports, clock=clock)
        self.process.run()
        self._end()

    def _executor(self) -> WorldExecutor:
        self._executors.append(WorldExecutor(self.world))
        return self._executors[-1]

    def _end(self) -> None:
        for executor in self._executors:
            executor.kill()
        for one in self._greenlets:
            self.world.kill(one)
