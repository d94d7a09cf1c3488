"""SQS queues in memory: the operations of workers that poll, on standard queues.

Like the tables, they are too fast to affect the measurement: an emulator answers some 160 receives a second. A contract
holds them, and an emulator, to SQS's behaviour. An unknown argument is refused, never ignored.
Nothing here knows HTTP, and time is an argument.
"""

from __future__ import annotations

import hashlib
import struct
import uuid
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from botocore import xform_name

from harness.dynamodb.writes import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from harness.dynamodb.tables import Bill

    Request = Mapping[str, Any]

MOST_ENTRIES = 10
LONGEST_WAIT_SECONDS = 20
LONGEST_VISIBILITY_SECONDS = 12 * 60 * 60
ACCOUNT = "123456789012"

_OPERATIONS = {
    "CreateQueue": {"QueueName", "Attributes"},
    "DeleteQueue": {"QueueUrl"},
    "GetQueueUrl": {"QueueName"},
    "GetQueueAttributes": {"QueueUrl", "AttributeNames"},
    "SendMessage": {"QueueUrl", "MessageBody"},
    "SendMessageBatch": {"QueueUrl", "Entries"},
    "ReceiveMessage": {
        "QueueUrl",
        "AttributeNames",
        "MessageSystemAttributeNames",
        "MessageAttributeNames",
        "MaxNumberOfMessages",
        "VisibilityTimeout",
        "WaitTimeSeconds",
    },
    "DeleteMessage": {"QueueUrl", "ReceiptHandle"},
    "DeleteMessageBatch": {"QueueUrl", "Entries"},
    "ChangeMessageVisibilityBatch": {"QueueUrl", "Entries"},
}
"""The operations, each with its supported arguments."""


@dataclass(slots=True)
class Message:
    """A message, when it becomes visible, and its receives."""

    id: str
    body: str
    sent: float
    visible_from: float
    receives: int = 0
    first_received: float = 0.0

    @property
    def handle(self) -> str:
        """The newest receipt handle."""
        return f"{self.id}/{self.receives}"


@dataclass(slots=True)
class Drain:
    """How messages that were put into a queue together leave it: once all are deleted, the seconds since the first was
    received, and the requests since they were put.
    """

    requests_before: int
    began: float = 0.0
    seconds: float | None = None
    requests: int | None = None


@dataclass(slots=True)
class Queue:
    """One queue: its messages that are not deleted, in sending order."""

    url: str
    name: str
    visibility_seconds: float
    messages: dict[str, Message] = field(default_factory=dict)
    drain: Drain | None = None

    def send(self, body: str, now: float) -> Message:
        """Add a message."""
        message = Message(str(uuid.uuid4()), body, now, now)
        self.messages[message.id] = message
        return message


class Queues:
    """All queues of one endpoint. Every request is atomic, because nothing in `execute` waits."""

    def __init__(self, bill: Bill, origin: str) -> None:
        self._bill = bill
        self._origin = origin
        self._queues: dict[str, Queue] = {}

    def execute(self, operation: str, request: Request, now: float, waited: float = 0.0) -> dict[str, Any] | None:
        """Answer a request that has waited this many seconds, or raise `Refused`. None if it is a receive that
        continues to wait. It is billed when it is answered.
        """
        if operation not in _OPERATIONS:
            raise Refused("UnsupportedOperation", f"{operation} is not supported here")
        if unknown := request.keys() - _OPERATIONS[operation]:
            raise Refused("InvalidParameterValue", f"not supported here: {', '.join(sorted(unknown))}")
        if operation == "ReceiveMessage":
            answer = self._receive_message(request, now, waited)
        else:
            answer = getattr(self, f"_{xform_name(operation)}")(request, now)
        if answer is not None:
            self._bill.requests[operation] += 1
            self._note_the_end(now)
        return answer

    def put(self, name: str, bodies: Iterable[str], now: float) -> None:
        """Send messages to a queue all at once, and record from now on how they leave it."""
        queue = self._queue({"QueueUrl": self._url(name)})
        for body in bodies:
            queue.send(body, now)
        queue.drain = Drain(self._bill.requests.total())

    def drained(self, name: str) -> dict[str, Any]:
        """How messages that were put into this queue left it; None for what is unknown until the last has."""
        queue = self._queue({"QueueUrl": self._url(name)})
        drain = queue.drain
        return {"seconds": drain and drain.seconds, "requests": drain and drain.requests, "left": len(queue.messages)}

    def _note_the_end(self, now: float) -> None:
        for queue in self._queues.values():
            drain = queue.drain
            if drain is not None and drain.seconds is None and not queue.messages:
                drain.seconds, drain.requests = now - drain.began, self._bill.requests.total() - drain.requests_before

    def _create_queue(self, request: Request, now: float) -> dict[str, Any]:
        name, attributes = request["QueueName"], request.get("Attributes", {})
        url = self._url(name)
        self._queues[url] = Queue(url, name, float(attributes.get("VisibilityTimeout", 30)))
        return {"QueueUrl": url}

    def _delete_queue(self, request: Request, now: float) -> dict[str, Any]:
        del self._queues[self._queue(request).url]
        return {}

    def _get_queue_url(self, request: Request, now: float) -> dict[str, Any]:
        return {"QueueUrl": self._queue({"QueueUrl": self._url(request["QueueName"])}).url}

    def _get_queue_attributes(self, request: Request, now: float) -> dict[str, Any]:
        queue, names = self._queue(request), request.get("AttributeNames", ())
        hidden = sum(message.visible_from > now for message in queue.messages.values())
        attributes = {
            "QueueArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:{queue.name}",
            "VisibilityTimeout": f"{queue.visibility_seconds:.0f}",
            "ApproximateNumberOfMessages": str(len(queue.messages) - hidden),
            "ApproximateNumberOfMessagesNotVisible": str(hidden),
        }
        return {"Attributes": _wanted(attributes, names)}

    def _send_message(self, request: Request, now: float) -> dict[str, Any]:
        message = self._queue(request).send(request["MessageBody"], now)
        return {"MessageId": message.id, "MD5OfMessageBody": _md5(message.body)}

    def _send_message_batch(self, request: Request, now: float) -> dict[str, Any]:
        """Attributes are accepted, but not kept."""
        return _each(_send, self._queue(request), request["Entries"], now)

    def _receive_message(self, request: Request, now: float, waited: float) -> dict[str, Any] | None:
        queue = self._queue(request)
        most = _within(request, "MaxNumberOfMessages", 1, MOST_ENTRIES, otherwise=1)
        wait = _within(request, "WaitTimeSeconds", 0, LONGEST_WAIT_SECONDS, otherwise=0)
        hidden = _within(
            request, "VisibilityTimeout", 0, LONGEST_VISIBILITY_SECONDS, otherwise=queue.visibility_seconds
        )
        visible = (message for message in queue.messages.values() if message.visible_from <= now)
        received = list(islice(visible, int(most)))
        if not received:
            return None if waited < wait else {}
        if queue.drain is not None and not queue.drain.began:
            queue.drain.began = now
        names = {*request.get("AttributeNames", ()), *request.get("MessageSystemAttributeNames", ())}
        return {"Messages": [_received(message, now, now + hidden, names) for message in received]}

    def _delete_message(self, request: Request, now: float) -> dict[str, Any]:
        _delete(self._queue(request), request, now)
        return {}

    def _delete_message_batch(self, request: Request, now: float) -> dict[str, Any]:
        return _each(_delete, self._queue(request), request["Entries"], now)

    def _change_message_visibility_batch(self, request: Request, now: float) -> dict[str, Any]:
        return _each(_change_visibility, self._queue(request), request["Entries"], now)

    def _url(self, name: str) -> str:
        return f"{self._origin}/{ACCOUNT}/{name}"

    def _queue(self, request: Request) -> Queue:
        if request["QueueUrl"] not in self._queues:
            raise Refused("QueueDoesNotExist", "The specified queue does not exist.")
        return self._queues[request["QueueUrl"]]


def _received(message: Message, now: float, visible_from: float, names: Iterable[str]) -> dict[str, Any]:
    """A message as ReceiveMessage returns it, with the attributes of these names."""
    message.receives += 1
    message.first_received = message.first_received or now
    message.visible_from = visible_from
    attributes = {
        "SenderId": ACCOUNT,
        "SentTimestamp": f"{message.sent * 1000:.0f}",
        "ApproximateReceiveCount": str(message.receives),
        "ApproximateFirstReceiveTimestamp": f"{message.first_received * 1000:.0f}",
    }
    wanted = _wanted(attributes, names)
    return {
        "MessageId": message.id,
        "ReceiptHandle": message.handle,
        "MD5OfBody": _md5(message.body),
        "Body": message.body,
        **({"Attributes": wanted} if wanted else {}),
    }


def _send(queue: Queue, entry: Request, now: float) -> dict[str, str]:
    message, attributes = queue.send(entry["MessageBody"], now), entry.get("MessageAttributes")
    digests = {"MD5OfMessageBody": _md5(message.body)}
    digests |= {"MD5OfMessageAttributes": _md5_of(attributes)} if attributes else {}
    return {"MessageId": message.id, **digests}


def _delete(queue: Queue, entry: Request, now: float) -> dict[str, str]:
    """Delete by a handle. An old one has no effect, as may happen on SQS, and gets the same answer."""
    message = _of_handle(queue, entry["ReceiptHandle"])
    if message is not None and message.handle == entry["ReceiptHandle"]:
        del queue.messages[message.id]
    return {}


def _change_visibility(queue: Queue, entry: Request, now: float) -> dict[str, str]:
    seconds = _within(entry, "VisibilityTimeout", 0, LONGEST_VISIBILITY_SECONDS, otherwise=queue.visibility_seconds)
    message = _of_handle(queue, entry["ReceiptHandle"])
    if message is None:
        raise Refused("InvalidParameterValue", "The message does not exist or is not available for visibility change.")
    if message.visible_from <= now:
        raise Refused("MessageNotInflight", "The message is not in flight.")
    message.visible_from = now + seconds
    return {}


def _of_handle(queue: Queue, handle: str) -> Message | None:
    """The message that was received with this handle, unless it is deleted."""
    id, slash, receive = handle.partition("/")
    if not slash or not receive.isdecimal():
        raise Refused("ReceiptHandleIsInvalid", f"The input receipt handle is invalid: {handle}")
    return queue.messages.get(id)


def _each(
    change: Callable[[Queue, Request, float], dict[str, str]], queue: Queue, entries: Sequence[Request], now: float
) -> dict[str, Any]:
    """Change a queue by each entry of a batch, and say which were refused, and what is told of the others."""
    if not entries:
        raise Refused("EmptyBatchRequest", "There should be at least one entry in the request.")
    if len(entries) > MOST_ENTRIES:
        raise Refused("TooManyEntriesInBatchRequest", f"Maximum number of entries per request are {MOST_ENTRIES}.")
    if len({entry["Id"] for entry in entries}) < len(entries):
        raise Refused("BatchEntryIdsNotDistinct", "Two or more batch entries have the same Id.")
    successful, failed = [], []
    for entry in entries:
        try:
            told = change(queue, entry, now)
        except Refused as refused:
            failed.append({"Id": entry["Id"], "SenderFault": True, "Code": refused.code, "Message": str(refused)})
        else:
            successful.append({"Id": entry["Id"], **told})
    return {"Successful": successful, "Failed": failed}


def _wanted(attributes: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    names = set(names)
    return {name: value for name, value in attributes.items() if names & {name, "All"}}


def _within(request: Request, name: str, least: float, most: float, *, otherwise: float) -> float:
    value = float(request.get(name, otherwise))
    if not least <= value <= most:
        reason = f"Must be >= {least} and <= {most}, if provided."
        raise Refused("InvalidParameterValue", f"Value {value:g} for parameter {name} is invalid. Reason: {reason}")
    return value


def _md5_of(attributes: Mapping[str, Mapping[str, str]]) -> str:
    """SQS's digest of text attributes: each name, type and value after its length, in order of name."""
    digest = hashlib.md5(usedforsecurity=False)
    for name, attribute in sorted(attributes.items()):
        for part in (name, attribute["DataType"]):
            digest.update(struct.pack("!I", len(part.encode())) + part.encode())
        value = attribute["StringValue"].encode()
        digest.update(b"\x01" + struct.pack("!I", len(value)) + value)
    return digest.hexdigest()


def _md5(body: str) -> str:
    return hashlib.md5(body.encode(), usedforsecurity=False).hexdigest()
