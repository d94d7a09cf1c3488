"""A queue of the local cloud delivers a message again when its handler said."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import boto3
import pytest

from harness.cloud import embedded_cloud
from idempotent_receiver import MemoryStore, Message, RetryLater, sqs_consumer
from idempotent_receiver.sqs.received import lambda_record
from idempotent_receiver.testing import lambda_context
from idempotent_receiver.testing.worker import failed_ids
from tests.contract.test_queues import ACCESS

DELAYS = {"at once": 0, "soon": 2, "later": 3600, "within twelve hours": 43_200}


@pytest.mark.parametrize("fifo", [False, True])
def test_a_message_stays_hidden_for_as_long_as_its_handler_said(fifo: bool) -> None:
    """For twelve hours, too, which SQS counts from the receive. What follows in a FIFO group stays behind it."""
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if fifo else {}
    with (
        embedded_cloud() as cloud,
        closing(boto3.client("sqs", endpoint_url=cloud.endpoint_url, **ACCESS)) as sqs,
    ):
        url = sqs.create_queue(QueueName="delays" + (".fifo" if fifo else ""), Attributes=attributes)["QueueUrl"]  # type: ignore[arg-type]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        for body in (*DELAYS, "behind later"):
            group: Any = {"MessageGroupId": body.removeprefix("behind ")} if fifo else {}
            sqs.send_message(QueueUrl=url, MessageBody=body, **group)

        def receive(seconds: int) -> list[dict[str, Any]]:
            answer = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=seconds, AttributeNames=["All"]
            )
            return [lambda_record(message, arn) for message in answer.get("Messages", [])]

        @sqs_consumer(MemoryStore(), sqs=sqs)
        def handler(body: str, message: Message) -> None:
            if body in DELAYS:
                raise RetryLater(seconds=DELAYS[body])

        records = [record for _ in range(5) for record in receive(0)]
        assert sorted(record["body"] for record in records) == sorted([*DELAYS, "behind later"])
        failed = failed_ids(handler({"Records": records}, lambda_context()))
        assert len(failed) == len(DELAYS) + fifo
        for record in records:
            if record["messageId"] not in failed:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=record["receiptHandle"])

        assert [record["body"] for record in receive(0)] == ["at once"]
        assert [record["body"] for record in receive(10)] == ["soon"]
        assert receive(1) == []
