"""SQS's own redrive, `StartMessageMoveTask`: fast, but it knows nothing of what became of a message.

It makes new messages with new messageIds, and it moves everything. A consumer keyed by the messageId would run what was
done again; `redrive.py` is for that. Here a task is started and watched, and nothing is decided.
Source: Amazon SQS Developer Guide, "Configure a dead-letter queue redrive".
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from idempotent_receiver.clock import Clock

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import ListMessageMoveTasksResultEntryTypeDef

MAX_RATE = 500
"""SQS's limit for MaxNumberOfMessagesPerSecond."""

UNFINISHED = ("RUNNING", "CANCELLING")
POLL_SECONDS = 2.0
MAX_POLLS = 36 * 60 * 60 // 2
"""SQS ends a task after 36 hours."""


def start(sqs: "SQSClient", dead_letter_queue_arn: str, queue_arn: str, rate: float | None) -> str:
    """Start moving everything from one queue to the other; returns the task's handle, with which to cancel it."""
    pace: Any = {} if rate is None else {"MaxNumberOfMessagesPerSecond": max(1, min(MAX_RATE, int(rate)))}
    started = sqs.start_message_move_task(SourceArn=dead_letter_queue_arn, DestinationArn=queue_arn, **pace)
    return started["TaskHandle"]


def watch(
    sqs: "SQSClient", dead_letter_queue_arn: str, clock: Clock
) -> "Iterator[ListMessageMoveTasksResultEntryTypeDef]":
    """The queue's latest task, again and again until it ends; empty where SQS knows of none. A task that nobody watches
    goes on.
    """
    for poll in range(MAX_POLLS + 1):
        if poll > 0:
            clock.sleep(POLL_SECONDS)
        results = sqs.list_message_move_tasks(SourceArn=dead_letter_queue_arn, MaxResults=1)["Results"]
        task: ListMessageMoveTasksResultEntryTypeDef = results[0] if results else {}
        yield task
        if task.get("Status") not in UNFINISHED:
            return
