"""Reads what messages have left in a stack: items in its tables, objects in its buckets, messages in its other queues
and topics.

All of it takes a table's form, so that effects.py compares it by one rule. An object is its key and content. A message
is its body and attributes, and counts once for each key; a message without a key counts each time that it arrives.
"""

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from idempotent_receiver.local.cloud import Cloud
from idempotent_receiver.local.deployment import Stack, resources_of
from idempotent_receiver.local.effects import ContentByTable, TableContent, TypedItem
from idempotent_receiver.transaction.outbox import STAMP

MOST_QUEUE_RECEIVES = 100
LONGEST_TEXT = 200
"""Longer text that is not JSON is compared by its hash."""


@dataclass
class StackContent:
    """A stack's content, apart from `own_queue` and dead-letter queues. `consumed` are queues that other functions
    empty: what arrives there is given to `read`.
    """

    cloud: Cloud
    stack: Stack
    own_queue: str
    consumed: frozenset[str] = frozenset()
    _topics: dict[str, str] = field(default_factory=dict)
    """For each topic, by logical id, the URL of its queue."""
    _arrived: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)

    def subscribe(self) -> None:
        """Give every topic a queue that receives all its messages."""
        sqs = self.cloud.client("sqs")
        for id, arn in self._of_type("AWS::SNS::Topic"):
            ending = ".fifo" if arn.endswith(".fifo") else ""
            name = f"topic-{hashlib.sha256(arn.encode()).hexdigest()[:32]}{ending}"
            url = sqs.create_queue(QueueName=name, Attributes={"FifoQueue": "true"} if ending else {})["QueueUrl"]
            queue = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
            allow = {"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": queue}
            policy = json.dumps({"Version": "2012-10-17", "Statement": [allow]})
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
            self.cloud.client("sns").subscribe(TopicArn=arn, Protocol="sqs", Endpoint=queue)
            self._topics[id] = url

    def read(
        self, *, apart: Iterable[str], keys: Mapping[str, str], delivered: Iterable[tuple[str, Mapping[str, Any]]] = ()
    ) -> ContentByTable:
        """The content, except the tables named in `apart`. `keys` has a name for each idempotency key, the same in
        every run. `delivered` are messages that other functions received, each with its queue's URL.
        """
        found = {id: self._items(name) for id, name in self._of_type("AWS::DynamoDB::Table") if name not in apart}
        for id, name in self._of_type("AWS::S3::Bucket"):
            found[id] = TableContent(("Key",), [*self._objects(name, keys)])
        for id, url in (*self._queues, *self._topics.items()):
            if _name(url) not in map(_name, self.consumed):
                self._receive(id, url)
            else:
                self._arrived.setdefault(id, {}).update(
                    (each["MessageId"], each) for queue, each in delivered if _name(queue) == _name(url)
                )
            found[id] = TableContent((), [*messages(self._arrived.get(id, {}).values(), keys)])
        return found

    @cached_property
    def _resources(self) -> list[Mapping[str, str]]:
        return [*resources_of(self.cloud, self.stack.name)]

    def _of_type(self, kind: str) -> list[tuple[str, str]]:
        """The logical and physical ids of the stack's resources of a type."""
        made = (each for each in self._resources if each["ResourceType"] == kind)
        return [(each["LogicalResourceId"], each["PhysicalResourceId"]) for each in made]

    def _items(self, table: str) -> TableContent:
        pages = self.cloud.client("dynamodb").get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return TableContent(self._keys_of_table(table), [item for page in pages for item in page["Items"]])

    def _keys_of_table(self, table: str) -> tuple[str, ...]:
        described = self.cloud.client("dynamodb").describe_table(TableName=table)["Table"]
        return tuple(each["AttributeName"] for each in described["KeySchema"])

    def _objects(self, bucket: str, keys: Mapping[str, str]) -> Iterator[TypedItem]:
        s3 = self.cloud.client("s3")
        for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket):
            for each in page.get("Contents", []):
                content = s3.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
                yield {"Key": {"S": _named(each["Key"], keys)}, "content": _typed_text(content, keys)}

    @cached_property
    def _queues(self) -> list[tuple[str, str]]:
        """The stack's queues, except its own and dead-letter queues."""
        sqs, found = self.cloud.client("sqs"), {}
        for id, url in self._of_type("AWS::SQS::Queue"):
            found[id, url] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        policies = [json.loads(each.get("RedrivePolicy", "{}")) for each in found.values()]
        dead = {each.get("deadLetterTargetArn") for each in policies}
        return [
            pair
            for pair, each in found.items()
            if _name(pair[1]) != _name(self.own_queue) and each["QueueArn"] not in dead
        ]

    def _receive(self, id: str, url: str) -> None:
        """Take the messages from a queue that nobody else empties."""
        sqs, arrived = self.cloud.client("sqs"), self._arrived.setdefault(id, {})
        for _ in range(MOST_QUEUE_RECEIVES):
            asked = {"QueueUrl": url, "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"]}
            taken = sqs.receive_message(**asked).get("Messages", [])
            for each in taken:
                arrived[each["MessageId"]] = each
                sqs.delete_message(QueueUrl=url, ReceiptHandle=each["ReceiptHandle"])
            if not taken:
                return


def messages(arrived: Iterable[Mapping[str, Any]], keys: Mapping[str, str]) -> Iterator[TypedItem]:
    """Messages as items, one for each key. `arrived` are in SQS's form, with a `key` if their consumer has one."""
    seen = set[str]()
    for each in arrived:
        body, attributes = _unpacked(each)
        key = each.get("key") or _key_in(body, attributes, keys)
        if key is None or key not in seen:
            seen.update([] if key is None else [key])
            named = {name: {"S": _named(text, keys)} for name, text in attributes.items() if name != STAMP}
            yield {"body": _typed_text(body.encode(), keys), "attributes": {"M": named}}


def _name(queue_url: str) -> str:
    """A queue's name: the local cloud's URLs of one queue may have different hosts."""
    return queue_url.rpartition("/")[2]


def _unpacked(message: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
    """A message's body and attributes; for a notification, those that were published."""
    body, attributes = message["Body"], message.get("MessageAttributes") or {}
    with contextlib.suppress(ValueError):
        found = json.loads(body)
        if isinstance(found, dict) and found.get("Type") == "Notification" and "TopicArn" in found:
            given = {name: str(each["Value"]) for name, each in found.get("MessageAttributes", {}).items()}
            subject = {"Subject": found["Subject"]} if found.get("Subject") else {}
            return found["Message"], given | subject
    texts = {name: each.get("StringValue", each.get("BinaryValue")) for name, each in attributes.items()}
    return body, {name: str(text) for name, text in texts.items()}


def _key_in(body: str, attributes: Mapping[str, str], keys: Mapping[str, str]) -> str | None:
    """The key in the message's stamp, or else the idempotency key that its attributes or body pass on, if any."""
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return str(json.loads(attributes[STAMP])["key"])
    for text in (*attributes.values(), body):
        for each in keys:
            if found := re.search(rf"{re.escape(each)}(-\d+)?", text):
                return found.group()
    return None


def _named(text: str, keys: Mapping[str, str]) -> str:
    """The text with a name for each idempotency key, which is another one in each run."""
    for key, name in keys.items():
        text = text.replace(key, name)
    return text


def _typed_text(content: bytes, keys: Mapping[str, str]) -> Mapping[str, Any]:
    try:
        text = _named(content.decode(), keys)
    except ValueError:
        return {"S": hashlib.sha256(content).hexdigest()}
    try:
        return _typed(json.loads(text, parse_float=Decimal, parse_constant=str))
    except (ValueError, RecursionError):
        return {"S": text if len(text) <= LONGEST_TEXT else hashlib.sha256(text.encode()).hexdigest()}


def _typed(value: Any) -> dict[str, Any]:
    """A JSON value in DynamoDB's form."""
    if isinstance(value, dict):
        return {"M": {name: _typed(each) for name, each in value.items()}}
    if isinstance(value, list):
        return {"L": [_typed(each) for each in value]}
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return {"N": str(value)}
    return {"S": value} if isinstance(value, str) else {"NULL" if value is None else "BOOL": value}
