"""What messages leave in a stack's buckets, queues and topics is compared as tables are."""

from __future__ import annotations

import hashlib
import json
from io import BytesIO
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.local.content import StackContent, messages
from idempotent_receiver.local.effects import ContentByTable, Step, TableContent, referred

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

KEY, OTHER_KEY = "a" * 64, "b" * 64
KEYS = {KEY: "key of one.json", OTHER_KEY: "key of two.json"}


def sent(body: Any, id: str = "1", **attributes: str) -> dict[str, Any]:
    """A message as SQS gives it."""
    text = body if isinstance(body, str) else json.dumps(body)
    return {
        "MessageId": id,
        "Body": text,
        "MessageAttributes": {name: {"StringValue": value} for name, value in attributes.items()},
    }


def notification(message: str, **more: Any) -> dict[str, Any]:
    random = {"MessageId": "random", "Timestamp": "now", "Signature": "random"}
    return sent({"Type": "Notification", "TopicArn": "arn", "Message": message, **random, **more})


def stamped(key: str) -> dict[str, str]:
    return {"idempotent-receiver": json.dumps({"key": key, "original_id": key})}


def published(key: str) -> dict[str, Any]:
    return {"MessageAttributes": {"key": {"Type": "String", "Value": key}}}


@pytest.mark.parametrize(
    ("arrived", "count"),
    [
        ([sent("hello"), sent("hello")], 2),
        ([sent("hello", **stamped(f"{KEY}-0")), sent("hello", **stamped(f"{KEY}-0"))], 1),
        ([sent("hello", **stamped(f"{KEY}-0")), sent("hello", **stamped(f"{KEY}-1"))], 2),
        ([sent("hello", **stamped("order-1")), sent("hello", **stamped("order-1"))], 1),
        ([sent("hello", key=KEY), sent("hello", key=KEY)], 1),
        ([sent("hello", key=KEY), sent("hello", key=OTHER_KEY)], 2),
        ([sent("hello", key=f"{KEY}-0"), sent("hello", key=f"{KEY}-1")], 2),
        ([sent({"key": KEY}), sent({"key": KEY})], 1),
        ([sent("hello", key="c" * 64), sent("hello", key="c" * 64)], 2),
        ([{**sent("hello"), "key": "order-1"}, {**sent("hello"), "key": "order-1"}], 1),
        ([notification("hello", **published(KEY)), notification("hello", **published(KEY))], 1),
        ([notification("hello"), notification("hello")], 2),
    ],
)
def test_a_message_counts_once_for_each_key(arrived: list[dict[str, Any]], count: int) -> None:
    """A key is what its consumer deduplicates by. A message without one counts each time that it arrives."""
    assert len([*messages(arrived, KEYS)]) == count


def test_a_message_has_what_was_sent_and_nothing_that_another_run_would_not_have() -> None:
    """Neither a notification's own id and time, nor the stamp; an idempotency key goes by the name of its message."""
    arrived = [
        notification(json.dumps({"cents": 5, "paid": None}), Subject="Order"),
        sent("hello", key=KEY, **stamped("k")),
    ]
    assert [*messages(arrived, KEYS)] == [
        {
            "body": {"M": {"cents": {"N": "5"}, "paid": {"NULL": None}}},
            "attributes": {"M": {"Subject": {"S": "Order"}}},
        },
        {"body": {"S": "hello"}, "attributes": {"M": {"key": {"S": "key of one.json"}}}},
    ]


def test_every_key_in_a_text_goes_by_its_name_and_binary_attributes_are_compared() -> None:
    (both,) = messages([sent(f"{KEY} after {OTHER_KEY}")], KEYS)
    assert both["body"] == {"S": "key of one.json after key of two.json"}
    one, other = (
        [*messages([{**sent("hello"), "MessageAttributes": {"photo": {"BinaryValue": data}}}], KEYS)]
        for data in (b"a", b"b")
    )
    assert one != other


class Clients:
    """A stack with a table, a bucket, a topic and queues, which hold what they are told to."""

    def __init__(self, objects: Mapping[str, bytes], queues: Mapping[str, Iterable[dict[str, Any]]]) -> None:
        self.objects = objects
        self.queues = {url: [*held] for url, held in queues.items()}
        self.subscribed: list[str] = []

    def client(self, service: str) -> Any:
        return self

    def describe_stack_resources(self, **asked: str) -> Any:
        made = [
            *(("Bucket", "AWS::S3::Bucket", "bucket"), ("Mail", "AWS::SNS::Topic", "arn:mail")),
            ("Orders", "AWS::SNS::Topic", "arn:orders.fifo"),
        ]
        queues = [(url.title(), "AWS::SQS::Queue", url) for url in self.queues if not url.startswith("topic-")]
        names = ("LogicalResourceId", "ResourceType", "PhysicalResourceId")
        return {"StackResources": [dict(zip(names, each, strict=True)) for each in (*made, *queues)]}

    def get_paginator(self, operation: str) -> Any:
        pages = [{"Contents": [{"Key": key}]} for key in self.objects]
        return SimpleNamespace(paginate=lambda **asked: [*pages, {}])

    def get_object(self, *, Bucket: str, Key: str) -> Any:  # noqa: N803
        return {"Body": BytesIO(self.objects[Key])}

    def get_queue_attributes(self, *, QueueUrl: str, **asked: Any) -> Any:  # noqa: N803
        target = {"own": "arn:dead", "parcels": "arn:lost"}.get(QueueUrl)
        policy = {} if target is None else {"RedrivePolicy": json.dumps({"deadLetterTargetArn": target})}
        return {"Attributes": {"QueueArn": f"arn:{QueueUrl}", **policy}}

    def create_queue(self, *, QueueName: str, Attributes: Any) -> Any:  # noqa: N803
        self.queues[QueueName] = [notification("hello")]
        return {"QueueUrl": QueueName}

    def set_queue_attributes(self, **asked: Any) -> None:
        pass

    def subscribe(self, *, TopicArn: str, **asked: Any) -> None:  # noqa: N803
        self.subscribed.append(TopicArn)

    def receive_message(self, *, QueueUrl: str, **asked: Any) -> Any:  # noqa: N803
        return {"Messages": self.queues[QueueUrl][:1]}

    def delete_message(self, *, QueueUrl: str, ReceiptHandle: str) -> None:  # noqa: N803
        self.queues[QueueUrl] = [each for each in self.queues[QueueUrl] if each["ReceiptHandle"] != ReceiptHandle]


def content(objects: Mapping[str, bytes], **queues: Iterable[dict[str, Any]]) -> StackContent:
    held = {url: [{**each, "ReceiptHandle": each["MessageId"]} for each in some] for url, some in queues.items()}
    clients: Any = Clients(objects, {"own": [sent("mine")], "dead": [sent("failed")], **held})
    clients.created = []
    clients.create_queue = lambda **asked: (
        clients.created.append(asked)
        or (
            clients.queues.setdefault(asked["QueueName"], [{**notification("hello"), "ReceiptHandle": "1"}])
            and {"QueueUrl": asked["QueueName"]}
        )
    )
    stack: Any = SimpleNamespace(name="trial")
    return StackContent(clients, stack, "http://other/own", frozenset({"http://other/refunds"}))


def test_objects_and_messages_of_the_stack_are_its_content() -> None:
    """Not what is in its own queue and in dead-letter queues. What was taken from a queue stays known."""
    objects = {"o/1.json": b'{"cents": 5}', f"{KEY}.txt": b"hello", "raw": b"\xff\xfe", "long": b"x" * 500}
    stack = content(objects, parcels=[sent("a", "1"), sent("b", "2")], refunds=[], lost=[sent("c", "3")])
    stack.subscribe()
    delivered = [("refunds", sent("r", "3")), ("refunds", sent("r", "3")), ("elsewhere", sent("e", "4"))]
    for given in (delivered, delivered[:1]):
        found = stack.read(apart=(), keys=KEYS, delivered=given)
        assert {*found} == {"Bucket", "Mail", "Orders", "Parcels", "Refunds"}
        assert [item["body"]["S"] for item in found["Parcels"].items] == ["a", "b"]
        assert [item["body"]["S"] for item in found["Refunds"].items] == ["r"]
        assert [item["body"]["S"] for item in found["Mail"].items] == ["hello"]
        assert found["Bucket"] == TableContent(
            ("Key",),
            [
                {"Key": {"S": "o/1.json"}, "content": {"M": {"cents": {"N": "5"}}}},
                {"Key": {"S": "key of one.json.txt"}, "content": {"S": "hello"}},
                {"Key": {"S": "raw"}, "content": {"S": hashlib.sha256(b"\xff\xfe").hexdigest()}},
                {"Key": {"S": "long"}, "content": {"S": hashlib.sha256(b"x" * 500).hexdigest()}},
            ],
        )
    clients: Any = stack.cloud
    assert clients.subscribed == ["arn:mail", "arn:orders.fifo"]
    fifo = [(each["QueueName"].endswith(".fifo"), each["Attributes"]) for each in clients.created]
    assert fifo == [(False, {}), (True, {"FifoQueue": "true"})]


# How it is compared.


def mails(*to: str, **more: str) -> ContentByTable:
    items = [{"to": {"S": each}, **{name: {"S": f"{value}-{each}"} for name, value in more.items()}} for each in to]
    return {"Mail": TableContent((), items)}


def test_a_second_message_is_blamed_on_who_sent_the_first() -> None:
    steps = [Step(["one"], mails(), mails("alice")), Step(["two"], mails("alice"), mails("alice", "bob"))]
    reference = referred(steps, mails("bob", "alice"))
    assert reference.differences(mails("bob", "alice")) == []
    (difference,) = reference.differences(mails("alice", "bob", "alice"))
    assert str(difference) == "Mail to=alice: 2 items, but 1 in fault-free runs"
    assert [difference.place in reference.changes[name] for name in ("one", "two")] == [True, False]


def test_what_differs_between_runs_without_faults_is_left_out_of_a_messages_place() -> None:
    steps = [Step(["one"], mails(), mails("alice", at="1"))]
    reference = referred(steps, mails("alice", at="2"))
    assert [str(each) for each in reference.incomparable] == ["Mail.at"]
    assert reference.differences(mails("alice", at="3")) == []
    (difference,) = reference.differences(mails("alice", "alice", at="3"))
    assert difference.place in reference.changes["one"]


def receipts(**content: str) -> ContentByTable:
    items = [{"Key": {"S": key}, "content": {"S": text}} for key, text in content.items()]
    return {"Receipts": TableContent(("Key",), items)}


def test_the_same_object_put_twice_is_once_and_under_another_key_is_twice() -> None:
    reference = referred([Step(["one"], receipts(), receipts(order="paid"))], receipts(order="paid"))
    assert reference.differences(receipts(order="paid")) == []
    (changed,) = reference.differences(receipts(order="paid paid"))
    assert str(changed) == "Receipts Key=order: content is paid paid, but paid in fault-free runs"
    random = referred([Step(["one"], receipts(), receipts(r1="paid"))], receipts(r2="paid"))
    (second,) = random.differences(receipts(r3="paid", r4="paid"))
    assert str(second) == "Receipts: 2 items, but 1 in fault-free runs"
