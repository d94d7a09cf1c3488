"""Queues as workers see them: what holds of the emulator's holds of the benchmark's own, which count the requests."""

from __future__ import annotations

import hashlib
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config

from benchmarks.endpoint import ask, running_endpoint
from local.cloud import embedded_cloud

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_sqs import SQSClient

ACCESS = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}


def connected(url: str) -> SQSClient:
    config = Config(retries={"total_max_attempts": 1}, inject_host_prefix=False)
    client: SQSClient = boto3.client("sqs", endpoint_url=url, config=config, **ACCESS)  # type: ignore[call-overload]
    return client


@pytest.fixture(scope="module", params=["ministack", "loopback"])
def sqs(request: pytest.FixtureRequest) -> Iterator[SQSClient]:
    if request.param == "ministack":
        with embedded_cloud() as cloud, closing(connected(cloud.endpoint_url)) as client:
            yield client
    else:
        with running_endpoint() as endpoint, closing(connected(endpoint.url)) as client:
            yield client


@pytest.fixture
def url(sqs: SQSClient) -> Iterator[str]:
    url = sqs.create_queue(QueueName=f"queue-{uuid4().hex[:8]}")["QueueUrl"]
    yield url
    sqs.delete_queue(QueueUrl=url)


def send(sqs: SQSClient, url: str, *bodies: str) -> list[str]:
    return [sqs.send_message(QueueUrl=url, MessageBody=body)["MessageId"] for body in bodies]


def receive(sqs: SQSClient, url: str, most: int = 10, **options: Any) -> list[Any]:
    return list(sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=most, **options).get("Messages", []))


def test_a_message_comes_with_its_digest_and_what_was_asked_of_it(sqs: SQSClient, url: str) -> None:
    """Clients compare the digest with the body; the consumer reads the counts and times."""
    before = time.time()
    (id,) = send(sqs, url, "çirka €5")

    (plain,) = receive(sqs, url, VisibilityTimeout=0)
    (message,) = receive(sqs, url, AttributeNames=["All"], MessageAttributeNames=["All"])

    assert plain["MessageId"] == message["MessageId"] == id
    assert message["Body"] == "çirka €5"
    assert message["MD5OfBody"] == hashlib.md5("çirka €5".encode()).hexdigest()
    assert "Attributes" not in plain
    attributes = message["Attributes"]
    assert attributes["ApproximateReceiveCount"] == "2"
    assert {"SenderId", "SentTimestamp", "ApproximateFirstReceiveTimestamp"} <= attributes.keys()
    assert before - 1 <= int(attributes["SentTimestamp"]) / 1000 <= time.time() + 1
    assert "MessageAttributes" not in message


def test_only_the_attributes_that_are_named_come(sqs: SQSClient, url: str) -> None:
    send(sqs, url, "a")

    (message,) = receive(sqs, url, AttributeNames=["ApproximateReceiveCount"])

    assert message["Attributes"] == {"ApproximateReceiveCount": "1"}


def test_a_receive_hides_up_to_ten_and_one_unless_told(sqs: SQSClient, url: str) -> None:
    sent = send(sqs, url, *map(str, range(12)))

    one = sqs.receive_message(QueueUrl=url)["Messages"]
    ten, rest, none = receive(sqs, url), receive(sqs, url), receive(sqs, url)

    assert [len(one), len(ten), len(rest), len(none)] == [1, 10, 1, 0]
    assert sorted(message["MessageId"] for message in [*one, *ten, *rest]) == sorted(sent)


def test_a_message_comes_again_when_its_visibility_ends(sqs: SQSClient, url: str) -> None:
    send(sqs, url, "a")
    began = time.monotonic()
    (first,) = receive(sqs, url, VisibilityTimeout=1)

    (again,) = receive(sqs, url, WaitTimeSeconds=5)

    assert again["MessageId"] == first["MessageId"]
    assert 0.9 <= time.monotonic() - began < 4


def test_a_receive_waits_for_a_message_and_no_longer(sqs: SQSClient, url: str) -> None:
    with ThreadPoolExecutor() as pool:
        began = time.monotonic()
        waiting = pool.submit(receive, sqs, url, WaitTimeSeconds=10)
        time.sleep(0.3)
        assert not waiting.done()
        send(sqs, url, "a")
        assert len(waiting.result()) == 1
        assert time.monotonic() - began < 5


def test_a_receive_that_waited_in_vain_is_answered_with_nothing(sqs: SQSClient, url: str) -> None:
    began = time.monotonic()

    assert receive(sqs, url, WaitTimeSeconds=1) == []

    assert time.monotonic() - began > 0.8


def test_entries_of_a_batch_are_deleted_or_refused_one_by_one(sqs: SQSClient, url: str) -> None:
    send(sqs, url, "a", "b", "c")
    kept, *deleted = receive(sqs, url, VisibilityTimeout=2)
    handles = [message["ReceiptHandle"] for message in deleted]
    entries = [{"Id": str(place), "ReceiptHandle": handle} for place, handle in enumerate([*handles, "no handle"])]

    answer = sqs.delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]

    assert sorted(one["Id"] for one in answer["Successful"]) == ["0", "1"]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]] == [
        ("2", "ReceiptHandleIsInvalid", True)
    ]
    assert [message["MessageId"] for message in receive(sqs, url, WaitTimeSeconds=5)] == [kept["MessageId"]]


def test_one_message_is_deleted_alone(sqs: SQSClient, url: str) -> None:
    send(sqs, url, "a")
    (message,) = receive(sqs, url, VisibilityTimeout=1)

    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])

    assert receive(sqs, url, WaitTimeSeconds=2) == []


def test_visibility_is_changed_in_batches(sqs: SQSClient, url: str) -> None:
    """At zero, a message can be received at once."""
    send(sqs, url, "a", "b")
    soon, later = receive(sqs, url)
    entries = [
        {"Id": "soon", "ReceiptHandle": soon["ReceiptHandle"], "VisibilityTimeout": 0},
        {"Id": "later", "ReceiptHandle": later["ReceiptHandle"], "VisibilityTimeout": 60},
        {"Id": "wrong", "ReceiptHandle": "no handle", "VisibilityTimeout": 60},
    ]

    answer = sqs.change_message_visibility_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]

    assert sorted(one["Id"] for one in answer["Successful"]) == ["later", "soon"]
    assert [(one["Id"], one["Code"]) for one in answer["Failed"]] == [("wrong", "ReceiptHandleIsInvalid")]
    assert [message["MessageId"] for message in receive(sqs, url, WaitTimeSeconds=1)] == [soon["MessageId"]]


def test_a_batch_has_one_to_ten_entries_with_different_ids(sqs: SQSClient, url: str) -> None:
    """Or it is refused as a whole."""
    entries = [{"Id": str(place), "ReceiptHandle": "x"} for place in range(11)]

    with pytest.raises(sqs.exceptions.TooManyEntriesInBatchRequest):
        sqs.delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]
    with pytest.raises(sqs.exceptions.EmptyBatchRequest):
        sqs.delete_message_batch(QueueUrl=url, Entries=[])
    with pytest.raises(sqs.exceptions.BatchEntryIdsNotDistinct):
        sqs.delete_message_batch(QueueUrl=url, Entries=[entries[0], entries[0]])  # type: ignore[list-item]


def test_a_queue_is_found_by_its_name_and_tells_its_arn(sqs: SQSClient, url: str) -> None:
    name = url.rpartition("/")[2]

    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    assert attributes.keys() == {"QueueArn"}
    assert attributes["QueueArn"].startswith("arn:aws:sqs:us-east-1:")
    assert attributes["QueueArn"].endswith(f":{name}")


def test_a_queue_that_is_not_there_is_refused(sqs: SQSClient, url: str) -> None:
    for ask_for_it in (
        lambda: sqs.get_queue_url(QueueName="nowhere"),
        lambda: sqs.receive_message(QueueUrl=f"{url}-gone"),
    ):
        with pytest.raises(sqs.exceptions.QueueDoesNotExist):
            ask_for_it()


def test_requests_are_counted_until_the_last_message_is_deleted() -> None:
    """To both services: the receives that were waiting when the messages came, and none after the last deletion."""
    with running_endpoint() as endpoint, closing(connected(endpoint.url)) as sqs, ThreadPoolExecutor() as pool:
        url = endpoint.create_queue("queue")
        waiting = pool.submit(receive, sqs, url, WaitTimeSeconds=10)
        deadline = time.monotonic() + 5
        while not ask(endpoint.port, "Drained", QueueName="queue")["waiting"]:
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.01)

        ask(endpoint.port, "Put", QueueName="queue", Bodies=[str(number) for number in range(12)])
        received = [*waiting.result(), *receive(sqs, url)]
        endpoint.create_table("records", "id")
        for start in (0, 6):
            assert ask(endpoint.port, "Drained", QueueName="queue")["seconds"] is None
            chunk = received[start : start + 6]
            entries = [{"Id": one["MessageId"], "ReceiptHandle": one["ReceiptHandle"]} for one in chunk]
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)  # type: ignore[arg-type]
        receive(sqs, url)

        told = ask(endpoint.port, "Drained", QueueName="queue")
        assert told["requests"] == 2 + 1 + 2
        assert told["seconds"] > 0
