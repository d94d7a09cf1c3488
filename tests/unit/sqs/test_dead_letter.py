"""Dead letters say why they failed, and stay within SQS's limits."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from idempotent_receiver.errors import Failure
from idempotent_receiver.sqs.dead_letter import (
    MOST_BYTES,
    STAMP,
    NoRoom,
    OwnQueue,
    Stamp,
    copy_of,
    send,
    stamp_of,
    stamped,
)
from idempotent_receiver.sqs.keys import message_id
from idempotent_receiver.sqs.message import Message

FAILURE = Failure(type="Overdrawn", at="app.post:7", text="account closed", permanent=True)
FIRST_RECEIVED = {"ApproximateFirstReceiveTimestamp": "1800000000000"}


def message(body: str = "{}", **changes: Any) -> Message:
    return Message(id="1", body=body, raw_body=body, **{"key": "k"} | changes)


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """boto3's SQS client with moto."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    with mock_aws():
        client = boto3.client("sqs", region_name="us-east-1")
        yield client
        client.close()


def queue(sqs: Any, name: str = "dead", **attributes: str) -> str:
    return str(sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])


def received(sqs: Any, url: str) -> list[dict[str, Any]]:
    answer = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], AttributeNames=["All"]
    )
    return list(answer.get("Messages", []))


def stamp_in(letter: dict[str, Any]) -> dict[str, Any]:
    return dict(json.loads(letter["MessageAttributes"][STAMP]["StringValue"]))


def test_a_dead_letter_is_a_copy_with_its_reason(sqs: Any) -> None:
    """Body and attributes as they came, and one attribute more."""
    url = queue(sqs)
    attributes = {
        "text": {"stringValue": "é", "dataType": "String"},
        "number": {"stringValue": "7", "dataType": "Number"},
        "bytes": {"binaryValue": "AAH/", "dataType": "Binary"},
    }

    arn = "arn:aws:sqs:us-east-1:123456789012:q"
    sent = message('{"a": 1}', message_attributes=attributes, attributes=FIRST_RECEIVED, queue_arn=arn)
    send(sqs, url, sent, FAILURE, "consumer")

    (letter,) = received(sqs, url)
    assert letter["Body"] == '{"a": 1}'
    assert letter["MessageAttributes"]["text"]["StringValue"] == "é"
    assert letter["MessageAttributes"]["number"]["DataType"] == "Number"
    assert letter["MessageAttributes"]["bytes"]["BinaryValue"] == b"\x00\x01\xff"
    assert stamp_in(letter) == {
        "key": "k",
        "original_id": "1",
        "function": "consumer",
        "queue": "arn:aws:sqs:us-east-1:123456789012:q",
        "reason": "account closed",
        "error_type": "Overdrawn",
        "at": "app.post:7",
        "first_received": "2027-01-15T08:00:00+00:00",
    }


def test_a_message_that_fails_for_good_again_keeps_its_first_identity(sqs: Any) -> None:
    """Its original key and id, and the time of its first receive."""
    url = queue(sqs)
    before = {"key": "first", "original_id": "0", "reason": "then", "first_received": "2026-01-01T00:00:00+00:00"}
    carried = {STAMP: {"stringValue": json.dumps(before), "dataType": "String"}}

    send(sqs, url, message(key="first", message_attributes=carried, attributes=FIRST_RECEIVED), FAILURE, "f")

    told = {"reason": "account closed", "error_type": "Overdrawn", "at": "app.post:7", "function": "f"}
    assert stamp_in(received(sqs, url)[0]) == {**before, **told}


def test_on_a_fifo_queue_each_send_counts_for_itself(sqs: Any) -> None:
    """In its group; SQS would drop a second message with the same deduplication id."""
    url = queue(sqs, "dead.fifo", FifoQueue="true")
    for receives in ("1", "2"):
        attributes = {"MessageGroupId": "g", "ApproximateReceiveCount": receives, "MessageDeduplicationId": "old"}
        send(sqs, url, message(attributes=attributes), FAILURE, "f")

    letters = [letter["Attributes"] for letter in received(sqs, url)]
    assert [letter["MessageDeduplicationId"] for letter in letters] == ["1-1", "1-2"]
    assert {letter["MessageGroupId"] for letter in letters} == {"g"}


def test_a_tenant_of_a_fair_queue_is_one_in_its_dead_letter_queue_too(sqs: Any) -> None:
    """A standard queue takes a group, and no deduplication id."""
    url = queue(sqs)

    send(sqs, url, message(attributes={"MessageGroupId": "tenant"}), FAILURE, "f")

    attributes = received(sqs, url)[0]["Attributes"]
    assert attributes.get("MessageGroupId") == "tenant"
    assert "MessageDeduplicationId" not in attributes


def test_the_trace_goes_along(sqs: Any) -> None:
    """X-Ray then shows the dead letter in the trace."""
    url = queue(sqs)

    send(sqs, url, message(attributes={"AWSTraceHeader": "Root=1-2-3"}), FAILURE, "f")

    assert received(sqs, url)[0]["Attributes"]["AWSTraceHeader"] == "Root=1-2-3"


def test_ten_attributes_leave_no_room_and_nine_do(sqs: Any) -> None:
    """SQS's limit is ten."""
    url = queue(sqs)
    ten = {f"a{place}": {"stringValue": "v", "dataType": "String"} for place in range(10)}

    with pytest.raises(NoRoom, match="10 attributes"):
        send(sqs, url, message(message_attributes=ten), FAILURE, "f")
    del ten["a0"]
    send(sqs, url, message(message_attributes=ten), FAILURE, "f")
    restamped = ten | {STAMP: {"stringValue": "{}", "dataType": "String"}}
    send(sqs, url, message(message_attributes=restamped), FAILURE, "f")
    assert len(received(sqs, url)) == 2


@pytest.mark.parametrize("character", ["é", "\ud800"])
def test_a_body_that_leaves_no_room_is_not_sent(character: str) -> None:
    """The limit is in bytes: the stamp counts, and so does each name, type and value of an attribute."""
    attributes = {"bytes": {"binaryValue": "AAH/", "dataType": "Binary"}}
    stamp = Stamp(key="k", original_id="1")
    others = len("bytes" + "Binary" + "123" + STAMP + "String" + stamp.to_json()) + len(
        character.encode("utf-8", "surrogatepass")
    )
    most = "x" * (MOST_BYTES - others) + character

    assert copy_of(message(most, message_attributes=attributes), stamp, None)["MessageBody"] == most
    with pytest.raises(NoRoom, match="1 MiB"):
        copy_of(message(most + "x", message_attributes=attributes), stamp, None)


def test_what_sqs_does_not_confirm_raises(sqs: Any) -> None:
    """Here the queue does not exist."""
    with pytest.raises(ClientError):
        send(sqs, "https://sqs.us-east-1.amazonaws.com/123456789012/gone", message(), FAILURE, "f")


@pytest.mark.slow
@pytest.mark.parametrize("key", ["\x00", "😀", '"', "\n", "\x7f"])
def test_any_key_can_be_carried_and_read_again(sqs: Any, key: str) -> None:
    """As JSON."""
    url = queue(sqs)
    send(sqs, url, message(key=key), FAILURE, "f")

    letter = received(sqs, url)[0]["MessageAttributes"][STAMP]
    found = stamp_of({STAMP: {"stringValue": letter["StringValue"]}})
    assert found is not None
    assert found.key == key


@pytest.mark.parametrize(
    "attribute",
    [
        None,
        "text",
        {},
        {"stringValue": None},
        {"stringValue": 7},
        {"stringValue": "[" * 100_000},
        {"binaryValue": "e30="},
    ],
)
def test_an_attribute_that_is_no_stamp_is_ignored(attribute: Any) -> None:
    """A producer may use the attribute's name for anything."""
    assert stamp_of({STAMP: attribute}) is None


def test_parts_of_a_stamp_that_are_no_strings_are_left_out() -> None:
    """The library did not write it."""
    found = stamp_of({STAMP: {"stringValue": '{"key":"k","original_id":"1","reason":{},"surplus":1}'}})

    assert found is not None
    assert (found.key, found.reason) == ("k", None)


def test_what_a_producer_sends_twice_with_one_stamp_has_one_key(sqs: Any) -> None:
    url = queue(sqs)
    for _ in range(2):
        sqs.send_message(QueueUrl=url, MessageBody="{}", MessageAttributes=stamped("order-1"))
    keys = set()
    for each in received(sqs, url):
        (attribute,) = each["MessageAttributes"].values()
        given = {STAMP: {"stringValue": attribute["StringValue"], "dataType": attribute["DataType"]}}
        keys.add((message_id(message(message_attributes=given)), each["MessageId"]))
    assert {key for key, _ in keys} == {"order-1"}
    assert len(keys) == 2


@pytest.mark.parametrize("name", ["orders", "orders.fifo"])
@pytest.mark.parametrize("host", ["https://sqs.us-east-1.amazonaws.com", "http://localhost:4566", "https://queue.aws"])
def test_a_dead_letter_is_never_sent_to_the_queue_that_it_came_from(host: str, name: str) -> None:
    """It would be delivered again at once, with a receive count of one."""
    sent: list[Any] = []
    sqs: Any = type("Sqs", (), {"send_message": lambda self, **given: sent.append(given)})()
    came = message(queue_arn=f"arn:aws:sqs:us-east-1:123456789012:{name}")

    with pytest.raises(OwnQueue, match="it is the queue that the message came from, which would deliver it again"):
        send(sqs, f"{host}/123456789012/{name}", came, FAILURE, "f")
    for other in (f"123456789012/dead-{name}", f"210987654321/{name}"):
        send(sqs, f"{host}/{other}", came, FAILURE, "f")
    assert len(sent) == 2


@pytest.mark.parametrize("charged", [-1, "3", 2.5, True, None, 10**12, [3]])
def test_a_count_that_nobody_can_have_written_is_none(charged: Any) -> None:
    """Anyone can write a stamp."""
    text = json.dumps({"key": "k", "original_id": "k", "charged": charged, "exhausted": "yes"})
    stamp = stamp_of({STAMP: {"stringValue": text}})
    assert stamp == Stamp(key="k", original_id="k")
