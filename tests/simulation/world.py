"""What lives in the world of virtual time: workers of a test, queues and messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.testing import sqs_event, worker
from tests.consumers import controlled

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.protocol.store import RecordStore
    from idempotent_receiver.testing.world import World

QUEUE = "arn:aws:sqs:us-east-1:123456789012:transfers"
FIFO = QUEUE + ".fifo"
DEAD_LETTERS = "https://sqs.us-east-1.amazonaws.com/123456789012/dead-letters"
"""The URL of the dead-letter queue."""


class Worker(worker.Worker):
    def __init__(self, world: World, store: RecordStore, function: Callable[..., Any], **options: Any) -> None:
        name, skew_seconds = str(options.pop("name", "w")), options.pop("skew_seconds", 0.0)
        super().__init__(world, lambda **own: controlled(store, **own, **options)(function), name, skew_seconds)

    def suspend(self, seconds: float) -> None:
        """Called from a job: suspend the machine, with its monotonic clock and Lambda's time-out."""
        self.clock.suspended_seconds += seconds
        jobs = [job for executor in self.executors for job in executor.jobs]
        self.world.delay([*self.greenlets, *self.watchdogs, *jobs], seconds)
        self.world.sleep(seconds)


def sqs_record(
    id: str,
    body: str = "{}",
    *,
    receives: int = 1,
    queue: str = QUEUE,
    group: str | None = None,
    attributes: dict[str, Any] | None = None,
) -> dict[str, Any]:
    (record,) = sqs_event(body, ids=[id], receive_count=receives, groups=group)["Records"]
    del record["attributes"]["ApproximateFirstReceiveTimestamp"]
    return {**record, "eventSourceARN": queue, "messageAttributes": attributes or {}}
