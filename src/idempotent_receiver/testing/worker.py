"""A consumer process in a world, which can be invoked and killed."""

from collections.abc import Callable, Sequence
from typing import Any

from greenlet import greenlet

from idempotent_receiver.sqs.consumer import Consumer
from idempotent_receiver.testing.events import LambdaContext
from idempotent_receiver.testing.world import World, WorldClock, WorldExecutor


class Silent:
    """A logger and metrics that record nothing."""

    log_level = 100

    def info(self, *arguments: object, **fields: object) -> None:
        """Record nothing."""

    debug = warning = error = append_keys = add_metric = flush_metrics = info


SILENT: Any = Silent()


class Worker:
    """A process that runs a consumer in virtual time.

    `consumer` creates the consumer from a clock and an executor.
    """

    def __init__(self, world: World, consumer: Callable[..., Consumer], name: str, skew_seconds: float = 0.0) -> None:
        self.name = name
        self.clock = WorldClock(world, skew_seconds, name=name)
        self.handler: Callable[[Any, Any], Any] = consumer(clock=self.clock, executor=self._executor)
        self.answers: list[Any] = []
        self.begin(world)

    def begin(self, world: World) -> None:
        """Become a new process in this world, with the same consumer: creating one costs more than running it."""
        self.world = self.clock.world = world
        self.executors: list[WorldExecutor] = []
        self.greenlets: list[greenlet] = []
        self.watchdogs: list[greenlet] = []

    def _executor(self) -> WorldExecutor:
        self.executors.append(WorldExecutor(self.world))
        return self.executors[-1]

    def deliver(self, *records: dict[str, Any], seconds: float = 30.0, after: float = 0.0) -> None:
        """Invoke the handler with a batch after `after` seconds, and pass its answer or exception to `answered`.

        If the handler has not answered within `seconds`, Lambda's timeout kills the process.
        """

        def invoke() -> None:
            context = LambdaContext(seconds, WorldClock(self.world), aws_request_id=self.name)
            watchdog = self.world.spawn(self.timed_out, after=seconds)
            self.watchdogs.append(watchdog)
            try:
                self.answered(records, failed_ids(self.handler({"Records": list(records)}, context)))
            except Exception as error:  # noqa: BLE001  # reported as an answer
                self.answered(records, error)
            self.world.kill(watchdog)

        self.greenlets.append(self.world.spawn(invoke, after))

    def answered(self, records: Sequence[dict[str, Any]], answer: list[str] | Exception) -> None:
        """Record the handler's answer: the failed messageIds, or the exception."""
        self.answers.append(answer)

    def timed_out(self) -> None:
        """Kill the process at the deadline."""
        self.kill()

    def kill(self) -> None:
        """Crash the process, and stop its timeouts."""
        for executor in self.executors:
            executor.kill()
        for one in (*self.greenlets, *self.watchdogs):
            self.world.kill(one)


def failed_ids(response: dict[str, list[dict[str, str]]]) -> list[str]:
    """The messageIds that an answer reports as failed."""
    assert list(response) == ["batchItemFailures"]
    return [failure["itemIdentifier"] for failure in response["batchItemFailures"]]
