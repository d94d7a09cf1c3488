"""Uploads to a bucket of the local cloud reach a consumer once each, and the test event does no harm."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

import boto3
import pytest

from harness.cloud import embedded_cloud
from idempotent_receiver import MemoryStore, event_id, sqs_consumer
from idempotent_receiver.sqs.received import lambda_record
from idempotent_receiver.testing import lambda_context
from idempotent_receiver.testing.worker import failed_ids
from tests.contract.test_queues import ACCESS

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with embedded_cloud() as cloud:
        yield cloud.endpoint_url


def connected(endpoint: str, service: Any) -> Any:
    return closing(boto3.client(service, endpoint_url=endpoint, **ACCESS))


@pytest.mark.parametrize("through", ["sqs", "sns"])
def test_every_upload_is_handled_once_and_the_test_event_not_at_all(endpoint: str, through: str) -> None:
    """However often they are delivered."""
    store, uploads = MemoryStore("uploads"), list[str]()

    @sqs_consumer(store, key=event_id, envelope="Message")
    def handler(event: dict) -> None:
        uploads.extend(unquote_plus(record["s3"]["object"]["key"]) for record in event["Records"])

    with connected(endpoint, "s3") as s3, connected(endpoint, "sqs") as sqs, connected(endpoint, "sns") as sns:
        url = sqs.create_queue(QueueName=f"uploads-{through}")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        configuration: dict[str, Any] = {"QueueConfigurations": [{"QueueArn": arn, "Events": ["s3:ObjectCreated:*"]}]}
        if through == "sns":
            topic = sns.create_topic(Name="uploads")["TopicArn"]
            sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
            configuration = {"TopicConfigurations": [{"TopicArn": topic, "Events": ["s3:ObjectCreated:*"]}]}
        s3.create_bucket(Bucket=f"uploads-{through}")
        s3.put_bucket_notification_configuration(Bucket=f"uploads-{through}", NotificationConfiguration=configuration)
        for key in ("red flower.json", "red flower.json", "another.json"):
            s3.put_object(Bucket=f"uploads-{through}", Key=key, Body=b"{}")

        records: dict[str, dict[str, Any]] = {}
        while len(records) < 4:
            answer = sqs.receive_message(
                QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=10, AttributeNames=["All"]
            )
            assert "Messages" in answer, "a notification is missing"
            records |= {message["MessageId"]: lambda_record(message, arn) for message in answer["Messages"]}

    assert sum("s3:TestEvent" in record["body"] for record in records.values()) == 1, json.dumps(records)
    for again in ("", "-again"):
        copies = [{**record, "messageId": record["messageId"] + again} for record in records.values()]
        assert failed_ids(handler({"Records": copies}, lambda_context())) == []
    assert sorted(uploads) == ["another.json", "red flower.json", "red flower.json"]
