"""What workers are invoked with: batches from the queue, some of which are given out again."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.chaos.settings import MESSAGES_A_BATCH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local.workload.stack_client import StackClient


@dataclass(frozen=True)
class Batch:
    """An event, and whether it was given out before."""

    event: dict[str, Any]
    again: bool = False
    due_seconds: float = 0.0
    taken: threading.Event = field(default_factory=threading.Event)

    @property
    def keys(self) -> list[str]:
        return [record["messageId"] for record in self.event["Records"]]


class Batches:
    """The queue's batches; threads may share them."""

    def __init__(self, client: StackClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._again: list[Batch] = []
        self._under_way = 0

    def next(self) -> Batch | None:
        """A batch that is due again, or else what the queue has. It is under way until it is `finished`."""
        with self._lock:
            due = next((batch for batch in self._again if batch.due_seconds <= time.monotonic()), None)
            if due is not None:
                self._again.remove(due)
                self._under_way += 1
                due.taken.set()
                return due
        batch = self._received()  # until its messages are deleted, the queue counts them as in flight
        if batch is not None:
            with self._lock:
                self._under_way += 1
        return batch

    def finished(self) -> None:
        with self._lock:
            self._under_way -= 1

    def give_out_again(self, batch: Batch) -> None:
        with self._lock:
            self._again.append(batch)

    @property
    def at_rest(self) -> bool:
        """Whether none is under way, or is to be given out again."""
        with self._lock:
            return not self._under_way and not self._again

    def delete(self, records: Sequence[dict[str, Any]]) -> None:
        entries: Any = [{"Id": str(n), "ReceiptHandle": record["receiptHandle"]} for n, record in enumerate(records)]
        if entries:
            self._client.sqs.delete_message_batch(QueueUrl=self._client.queue, Entries=entries)

    def _received(self) -> Batch | None:
        answer = self._client.sqs.receive_message(
            QueueUrl=self._client.queue, MaxNumberOfMessages=MESSAGES_A_BATCH, AttributeNames=["All"]
        )
        records = [
            {
                "messageId": message["MessageId"],
                "receiptHandle": message["ReceiptHandle"],
                "body": message["Body"],
                "attributes": message.get("Attributes", {}),
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": self._client.stack.outputs["QueueArn"],
            }
            for message in answer.get("Messages", [])
        ]
        return Batch({"Records": records}) if records else None
