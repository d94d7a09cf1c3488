"""The consumer of what the others' messages send: the shipped one, in this process, undisturbed.

Like SQS, its queue delivers some batches twice, and forgets some deletions.
"""

from __future__ import annotations

import threading
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer
from idempotent_receiver.sqs.received import lambda_record
from idempotent_receiver.testing import lambda_context
from tests.chaos.settings import RECEIPTS

if TYPE_CHECKING:
    from harness.cloud import Cloud

COUNTED = "counted"
"""The table of its records."""
AGAIN_IN = 10
"""One of this many batches is delivered twice."""
PAUSE_SECONDS = 0.1


def create_receipts(cloud: Cloud) -> dict[str, str]:
    """Make its tables and its queue; the outputs that name the queue."""
    for table, key in (RECEIPTS, "transfer_id"), (COUNTED, "id"):
        cloud.client("dynamodb").create_table(
            TableName=table,
            KeySchema=[{"AttributeName": key, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    attributes: Any = {"VisibilityTimeout": "30"}
    return {"ReceiptsQueueUrl": cloud.client("sqs").create_queue(QueueName=RECEIPTS, Attributes=attributes)["QueueUrl"]}


class NextConsumer:
    """It works while its block lasts, if there is a queue for it."""

    def __init__(self, cloud: Cloud) -> None:
        self._sqs = cloud.client("sqs")
        store = DynamoDBStore(COUNTED, client=cloud.client("dynamodb"))
        self._consumer = sqs_consumer(store, sqs=self._sqs)(counts)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.failure: Exception | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        if self.failure is not None:
            raise self.failure

    def _work(self) -> None:
        try:
            self._receive()
        except Exception as error:  # noqa: BLE001  # told when the block ends
            self.failure = error

    def _receive(self) -> None:
        try:
            url = self._sqs.get_queue_url(QueueName=RECEIPTS)["QueueUrl"]
        except self._sqs.exceptions.QueueDoesNotExist:
            return
        arn = self._sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        for number in count(1):
            if self._over.wait(PAUSE_SECONDS):
                return
            answer = self._sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
            )
            event = {"Records": [lambda_record(each, arn) for each in answer.get("Messages", [])]}
            for _ in range(2 if number % AGAIN_IN == 0 else 1):
                told = self._consumer(event, lambda_context())
            failed = {each["itemIdentifier"] for each in told["batchItemFailures"]}
            entries: Any = [
                {"Id": str(place), "ReceiptHandle": each["receiptHandle"]}
                for place, each in enumerate(event["Records"])
                if each["messageId"] not in failed
            ]
            if entries:
                self._sqs.delete_message_batch(QueueUrl=url, Entries=entries)


def counts(receipt: dict[str, str], tx: Transaction) -> None:
    """Count one receipt."""
    key = {"transfer_id": receipt["transfer_id"]}
    expression, values = "ADD times :one", {":one": 1}
    tx.update(TableName=RECEIPTS, Key=key, UpdateExpression=expression, ExpressionAttributeValues=values)
