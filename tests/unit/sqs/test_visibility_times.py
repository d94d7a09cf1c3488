"""How long failed messages are hidden, and how long that may take: counted from now, not from when the batch began."""

from __future__ import annotations

from typing import Any

from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler.outcome import HeldElsewhere
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.visibility import Backoff, send_back
from tests.manual_clock import START_MS, ManualClock
from tests.queues import Queues
from tests.unit.batch.at_once import AtOnce

QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"


class Waiting(AtOnce):
    """An executor that notes for how long it may wait."""

    waited: list[float | None]

    def step(self, timeout_seconds: float | None) -> None:
        self.waited.append(timeout_seconds)
        super().step(timeout_seconds)


def test_a_batch_that_has_taken_its_time_hides_a_message_until_the_lease_ends_and_no_longer() -> None:
    clock, executor = ManualClock(fraction=0.0), Waiting()
    executor.waited = []
    deadline = Deadline.after(clock, 30_000)
    clock.seconds += 20
    message = Message(id="1", body="", raw_body="", attributes={}, queue_arn=QUEUE, receipt_handle="r")

    queues = Queues(clock)
    sqs: Any = queues
    failed = [(message, HeldElsewhere(START_MS + 50_000))]
    send_back(sqs, Backoff(), failed, executor, deadline, left_to_sqs=True)

    ((_, asked),) = queues.calls
    assert asked["Entries"] == [{"Id": "0", "ReceiptHandle": "r", "VisibilityTimeout": 30}]
    assert executor.waited == [1.0]
