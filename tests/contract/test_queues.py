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
from harness.cloud import embedded_cloud

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCESS: Any = {"region_name": "us-east-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}


def connected(url: str) -> Any:
    config = Config(retries={"total_max_attempts": 1}, inject_host_prefix=False)
    return boto3.client("sqs", endpoint_url=url, config=config, **ACCESS)


@pytest.fixture(scope="module", params=["ministack", "loopback"])
def sqs(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "ministack":
        with embedded_cloud() as cloud, closing(connected(cloud.endpoint_url)) as client:
            yield client
    else:
        with running_endpoint() as endpoint, closing(connected(endpoint.url)) as client:
            yield client


@pytest.fixture
def url(sqs: Any) -> Iterator[str]:
    url = str(sqs.create_queue(QueueName=f"queue-{uuid4().hex[:8]}")["QueueUrl"])
    yield url
    sqs.delete_queue(QueueUrl=url)


def send(sqs: Any, url: str, *bodies: str) -> list[str]:
    return [sqs.send_message(QueueUrl=url, MessageBody=body)["MessageId"] for body in bodies]


def receive(sqs: Any, url: str, **options: Any) -> list[Any]:
    return list(sqs.receive_message(QueueUrl=url, **{"MaxNumberOfMessages": 10, **options}).get("Messages", []))


def ids(messages: list[Any]) -> list[str]:
    return sorted(message["MessageId"] for message in messages)


def entries(messages: list[Any], **more: Any) -> list[Any]:
    return [{"Id": str(at), "ReceiptHandle": one["ReceiptHandle"], **more} for at, one in enumerate(messages)]


NO_HANDLE = {"Id": "wrong", "ReceiptHandle": "no handle"}


def only_the_wrong_one_failed(answer: Any, successful: int) -> bool:
    failed = [(one["Id"], one["Code"], one["SenderFault"]) for one in answer["Failed"]]
    return failed == [("wrong", "ReceiptHandleIsInvalid", True)] and len(answer["Successful"]) == successful


def test_a_message_comes_with_its_digest_and_what_was_asked_of_it(sqs: Any, url: str) -> None:
    """Clients compare the digest with the body; the consumer reads the counts and times."""
    before = time.time()
    (id,) = send(sqs, url, "çirka €5")

    (plain,) = receive(sqs, url, VisibilityTimeout=0)
    (counted,) = receive(sqs, url, VisibilityTimeout=0, AttributeNames=["ApproximateReceiveCount"])
    (message,) = receive(sqs, url, AttributeNames=["All"], MessageAttributeNames=["All"])

    assert ids([plain, message]) == [id, id]
    assert (message["Body"], message["MD5OfBody"]) == ("çirka €5", hashlib.md5("çirka €5".encode()).hexdigest())
    assert ("Attributes" in plain, counted["Attributes"]) == (False, {"ApproximateReceiveCount": "2"})
    assert {"SenderId", "ApproximateFirstReceiveTimestamp"} <= message["Attributes"].keys()
    assert before - 1 <= int(message["Attributes"]["SentTimestamp"]) / 1000 <= time.time() + 1


def test_a_batch_is_sent_with_the_digests_that_clients_check(sqs: Any, url: str) -> None:
    """As the consumer sends what its transactions have to: up to ten messages, each with its key in an attribute."""
    texts = {"key": {"DataType": "String", "StringValue": "çirka"}, "n": {"DataType": "Number", "StringValue": "5"}}
    bodies = [f"{number} €" for number in range(10)]

    answer = sqs.send_message_batch(
        QueueUrl=url,
        Entries=[
            {"Id": f"{number}", "MessageBody": body, "MessageAttributes": texts} for number, body in enumerate(bodies)
        ],
    )

    assert answer.get("Failed", []) == []
    told = {one["Id"]: one["MD5OfMessageBody"] for one in answer["Successful"]}
    assert told == {f"{number}": hashlib.md5(body.encode()).hexdigest() for number, body in enumerate(bodies)}
    assert len({one["MD5OfMessageAttributes"] for one in answer["Successful"]}) == 1
    assert ids(receive(sqs, url)) == sorted(one["MessageId"] for one in answer["Successful"])


def test_a_receive_hides_up_to_ten_and_one_unless_told(sqs: Any, url: str) -> None:
    sent = send(sqs, url, *map(str, range(12)))

    received = [sqs.receive_message(QueueUrl=url)["Messages"], *(receive(sqs, url) for _ in range(3))]

    assert list(map(len, received)) == [1, 10, 1, 0]
    assert ids([one for some in received for one in some]) == sorted(sent)


def test_a_message_comes_again_when_its_visibility_ends(sqs: Any, url: str) -> None:
    send(sqs, url, "a")
    began = time.monotonic()
    first = receive(sqs, url, VisibilityTimeout=1)

    assert ids(receive(sqs, url, WaitTimeSeconds=5)) == ids(first)
    assert 0.9 <= time.monotonic() - began < 4


def test_a_receive_waits_for_a_message_and_no_longer(sqs: Any, url: str) -> None:
    began = time.monotonic()
    assert receive(sqs, url, WaitTimeSeconds=1) == []
    assert time.monotonic() - began > 0.8
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(receive, sqs, url, WaitTimeSeconds=10)
        time.sleep(0.3)
        assert not waiting.done()
        send(sqs, url, "a")
        assert len(waiting.result()) == 1
        assert time.monotonic() - began < 6


def test_messages_are_deleted_alone_or_in_batches_whose_entries_are_refused_one_by_one(sqs: Any, url: str) -> None:
    send(sqs, url, *"abcd")
    kept, alone, *deleted = receive(sqs, url, VisibilityTimeout=2)

    sqs.delete_message(QueueUrl=url, ReceiptHandle=alone["ReceiptHandle"])
    answer = sqs.delete_message_batch(QueueUrl=url, Entries=[*entries(deleted), NO_HANDLE])

    assert only_the_wrong_one_failed(answer, 2)
    assert ids(receive(sqs, url, WaitTimeSeconds=5)) == ids([kept])


def test_visibility_is_changed_in_batches(sqs: Any, url: str) -> None:
    """At zero, a message can be received at once."""
    send(sqs, url, "a", "b")
    messages = receive(sqs, url)
    soon, later = entries(messages, VisibilityTimeout=0)[0], entries(messages, VisibilityTimeout=60)[1]
    wanted = [soon, later, {**NO_HANDLE, "VisibilityTimeout": 60}]

    assert only_the_wrong_one_failed(sqs.change_message_visibility_batch(QueueUrl=url, Entries=wanted), 2)
    assert ids(receive(sqs, url, WaitTimeSeconds=1)) == ids(messages[:1])


def test_a_batch_has_one_to_ten_entries_with_different_ids_or_is_refused_whole(sqs: Any, url: str) -> None:
    eleven = entries([{"ReceiptHandle": "x"}] * 11)
    for wrong, error in (
        (eleven, sqs.exceptions.TooManyEntriesInBatchRequest),
        ([], sqs.exceptions.EmptyBatchRequest),
        ([eleven[0], eleven[0]], sqs.exceptions.BatchEntryIdsNotDistinct),
    ):
        with pytest.raises(error):
            sqs.delete_message_batch(QueueUrl=url, Entries=wrong)


def test_a_standard_queue_takes_a_group_which_names_a_tenant_and_holds_nothing_back() -> None:
    """Fair queues. The messages that follow one in flight are given out."""
    with embedded_cloud() as cloud, closing(connected(cloud.endpoint_url)) as sqs:
        url = sqs.create_queue(QueueName="fair")["QueueUrl"]
        for body in "ab":
            sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="tenant")

        found = [receive(sqs, url, MaxNumberOfMessages=1, AttributeNames=["All"]) for _ in range(2)]

        assert sorted(one["Body"] for some in found for one in some) == ["a", "b"]
        assert [one["Attributes"]["MessageGroupId"] for some in found for one in some] == ["tenant", "tenant"]


def test_a_queue_is_found_by_its_name_and_tells_its_arn(sqs: Any, url: str) -> None:
    name = url.rpartition("/")[2]
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    (arn,) = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"].values()
    assert (arn.rpartition(":")[2], arn.startswith("arn:aws:sqs:us-east-1:")) == (name, True)
    for ask_for_it in (sqs.get_queue_url, lambda QueueName: receive(sqs, f"{url}-{QueueName}")):  # noqa: N803
        with pytest.raises(sqs.exceptions.QueueDoesNotExist):
            ask_for_it(QueueName="nowhere")


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
            sqs.delete_message_batch(QueueUrl=url, Entries=entries(received[start : start + 6]))
        receive(sqs, url)

        told = ask(endpoint.port, "Drained", QueueName="queue")
        assert (told["requests"], told["seconds"] > 0) == (2 + 1 + 2, True)
