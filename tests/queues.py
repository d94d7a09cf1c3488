"""SQS in memory, for moving messages: ids, visibility, groups and deduplication as AWS documents them.

A test controls its clock, and may let the caller crash before or after any request takes effect.
"""
# ruff: noqa: N803  # the arguments' names are boto3's

from __future__ import annotations

import itertools
import json
import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from botocore.exceptions import ClientError

from idempotent_receiver.sqs.dead_letter import size_of
from tests.manual_clock import ManualClock

ENDPOINT = "https://sqs.us-east-1.amazonaws.com"
ACCOUNT = "123456789012"
DEDUPLICATION_SECONDS = 300
MOST_BYTES = 1024 * 1024
VISIBLE, IN_FLIGHT = "ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible"
OLDEST = "ApproximateAgeOfOldestMessage"
LEFT_OUT_RECEIVES = 3
"""A message of a standard queue that was received so often leaves the metric of the oldest message's age."""


class Crash(BaseException):
    """The process has crashed. Nothing may handle this."""


@dataclass
class Kept:
    """A message in a queue."""

    id: str
    sent: dict[str, Any]
    sent_seconds: float
    source: str | None = None
    visible_seconds: float = 0.0
    receives: int = 0
    receipt: str = ""
    moved_seconds: float | None = None
    """When SQS moved it to this queue, and how often it had been received until then."""
    moved_receives: int = 0

    @property
    def group(self) -> str | None:
        return self.sent.get("MessageGroupId")


@dataclass
class Queue:
    """A queue; `dead_letters` gets the messages that were received `most_receives` times."""

    name: str
    dead_letters: Queue | None = None
    most_receives: int = 5
    most_bytes: int = MOST_BYTES
    messages: list[Kept] = field(default_factory=list)
    sent_ids: dict[str, float] = field(default_factory=dict)
    receipts: dict[str, tuple[Kept, float]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"{ENDPOINT}/{ACCOUNT}/{self.name}"

    @property
    def arn(self) -> str:
        return f"arn:aws:sqs:us-east-1:{ACCOUNT}:{self.name}"

    @property
    def fifo(self) -> bool:
        return self.name.endswith(".fifo")

    @property
    def sent(self) -> list[dict[str, Any]]:
        """The arguments of each send that it keeps."""
        return [kept.sent for kept in self.messages]


class Queues:
    """An SQS client. `crash_at` is the number of the request at which the caller crashes, and when."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.meta = SimpleNamespace(endpoint_url=ENDPOINT)
        self.clock = ManualClock() if clock is None else clock
        self.queues: dict[str, Queue] = {}
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.crash_at: tuple[int, str] | None = None
        self.refused: set[str] = set()
        """Bodies that SQS will not take."""
        self.undeletable: set[str] = set()
        """URLs of queues, and bodies of messages, of which no delete is answered with a success."""
        self.throttled: set[str] = set()
        """Bodies of messages whose next delete is throttled."""
        self.broken: set[str] = set()
        """Requests that fail as a whole."""
        self.error: Exception | None = None
        """What these raise, if not that access is denied."""
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()

    def create(self, name: str, dead_letters: Queue | None = None) -> Queue:
        queue = Queue(name, dead_letters)
        self.queues[queue.url] = queue
        return queue

    # The API.

    def send_message(self, *, QueueUrl: str, **sent: Any) -> dict[str, Any]:
        return self.request("send_message", {"QueueUrl": QueueUrl}, lambda: {"MessageId": self._send(QueueUrl, sent)})

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        size = sum(size_of(entry["MessageBody"], entry.get("MessageAttributes", {})) for entry in Entries)
        if size > MOST_BYTES:
            raise _error("AWS.SimpleQueueService.BatchRequestTooLong", "SendMessageBatch")

        def one(entry: dict[str, Any]) -> dict[str, Any] | None:
            if entry["MessageBody"] in self.refused:
                return None
            if size_of(entry["MessageBody"], entry.get("MessageAttributes", {})) > self._queue(QueueUrl).most_bytes:
                return {"Code": "MessageTooLong", "SenderFault": True}
            sent = {name: value for name, value in entry.items() if name != "Id"}
            return {"MessageId": self._send(QueueUrl, sent)}

        return self._batch("send_message_batch", QueueUrl, Entries, one)

    def receive_message(self, *, QueueUrl: str, MaxNumberOfMessages: int = 1, **asked: Any) -> dict[str, Any]:
        assert MaxNumberOfMessages <= 10

        def receive() -> dict[str, Any]:
            queue = self.queues[QueueUrl]
            self._move_to_dead_letters(queue)
            seconds = asked.get("VisibilityTimeout", 30)
            found = [self._handed_out(queue, kept, seconds) for kept in self._next(queue, MaxNumberOfMessages)]
            return {"Messages": found} if found else {}

        return self.request("receive_message", {"QueueUrl": QueueUrl}, receive)

    def delete_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        def one(entry: dict[str, Any]) -> dict[str, Any] | None:
            queue = self.queues[QueueUrl]
            kept, until = queue.receipts[entry["ReceiptHandle"]]
            place = next((place for place, each in enumerate(queue.messages) if each is kept), None)
            body = "" if place is None else kept.sent["MessageBody"]
            if {QueueUrl, body} & self.undeletable or (queue.fifo and until <= self.clock.monotonic_seconds()):
                return None
            if body in self.throttled:
                self.throttled.remove(body)
                return {"Code": "ThrottlingException", "SenderFault": False}
            # A standard queue accepts an outdated receipt handle, and may keep the message.
            if place is not None and kept.receipt == entry["ReceiptHandle"]:
                del queue.messages[place]
                kept.receipt = ""
            return {}

        return self._batch("delete_message_batch", QueueUrl, Entries, one)

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        def one(entry: dict[str, Any]) -> dict[str, Any] | None:
            queue, now = self.queues[QueueUrl], self.clock.monotonic_seconds()
            kept, _ = queue.receipts[entry["ReceiptHandle"]]
            if kept.receipt != entry["ReceiptHandle"] or kept.visible_seconds <= now:
                return None
            kept.visible_seconds = now + entry["VisibilityTimeout"]
            queue.receipts[kept.receipt] = (kept, kept.visible_seconds)
            return {}

        return self._batch("change_message_visibility_batch", QueueUrl, Entries, one)

    def get_queue_attributes(self, *, QueueUrl: str, AttributeNames: list[str]) -> dict[str, Any]:
        queue, now = self._queue(QueueUrl), self.clock.monotonic_seconds()
        visible = sum(kept.visible_seconds <= now for kept in queue.messages)
        found = {
            "QueueArn": queue.arn,
            "MaximumMessageSize": str(queue.most_bytes),
            "ApproximateNumberOfMessages": str(visible),
            "ApproximateNumberOfMessagesNotVisible": str(len(queue.messages) - visible),
        }
        return {"Attributes": {name: value for name, value in found.items() if name in AttributeNames}}

    def hidden_seconds(self, event: dict[str, Any]) -> dict[str, int]:
        """For how long this client asked to hide messages of an event, wherever that has them from, by messageId."""
        asked = [each for name, each in self.calls if name == "change_message_visibility_batch"]
        seconds = {entry["ReceiptHandle"]: entry["VisibilityTimeout"] for each in asked for entry in each["Entries"]}
        records = [each for each in event["Records"] if each["receiptHandle"] in seconds]
        return {each["messageId"]: seconds[each["receiptHandle"]] for each in records}

    def metrics(self, queue: Queue) -> dict[str, float]:
        """What SQS tells CloudWatch of an active queue each minute, by the metrics' names.

        The age leaves out what was received three times, whether or not there is a redrive policy, but not on a FIFO
        queue; in a dead-letter queue it counts from the move. Nothing in flight is no value. Source: Amazon SQS
        Developer Guide, "Available CloudWatch metrics for Amazon SQS".
        """
        now = self.clock.monotonic_seconds()
        in_flight = sum(kept.visible_seconds > now for kept in queue.messages)
        ages = [
            now - (kept.sent_seconds if kept.moved_seconds is None else kept.moved_seconds)
            for kept in queue.messages
            if queue.fifo or kept.receives - kept.moved_receives < LEFT_OUT_RECEIVES
        ]
        found = {
            VISIBLE: len(queue.messages) - in_flight,
            IN_FLIGHT: in_flight or None,
            OLDEST: max(ages, default=None),
        }
        return {name: value for name, value in found.items() if value is not None}

    # Receiving.

    def move_natively(self, dead_letters: Queue, queue: Queue) -> None:
        """StartMessageMoveTask, run to its end. No emulator has it, so this FOLLOWS THE DOCUMENTATION.

        "All redriven messages are considered new messages with a new messageID and enqueueTime": the same body and
        attributes, the same group, a new id. Source: Amazon SQS Developer Guide, "Configure a dead-letter queue
        redrive".
        """
        moved, dead_letters.messages = dead_letters.messages, []
        for kept in moved:
            again = {name: value for name, value in kept.sent.items() if name != "MessageDeduplicationId"}
            self._put(queue, again)

    def _queue(self, url: str) -> Queue:
        if url not in self.queues:
            raise _error("AWS.SimpleQueueService.NonExistentQueue", "any")
        return self.queues[url]

    def _send(self, url: str, sent: dict[str, Any]) -> str:
        queue, now = self._queue(url), self.clock.monotonic_seconds()
        assert len(sent.get("MessageAttributes", {})) <= 10
        if queue.fifo:
            assert sent["MessageGroupId"], "a FIFO queue wants a group"
            id = sent["MessageDeduplicationId"]
            if now - queue.sent_ids.get(id, -DEDUPLICATION_SECONDS) < DEDUPLICATION_SECONDS:
                return "accepted, and swallowed"
            queue.sent_ids[id] = now
        else:
            assert "MessageDeduplicationId" not in sent, "a standard queue refuses one"
        return self._put(queue, sent).id

    def _put(self, queue: Queue, sent: dict[str, Any]) -> Kept:
        kept = Kept(f"{next(self._numbers):08x}-0000-4000-8000-000000000000", sent, self.clock.monotonic_seconds())
        queue.messages.append(kept)
        return kept

    def _move_to_dead_letters(self, queue: Queue) -> None:
        """SQS's own move to a dead-letter queue: the messageId stays, but on FIFO queues the sent time changes."""
        now = self.clock.monotonic_seconds()
        if queue.dead_letters is None:
            return
        for kept in list(queue.messages):
            if kept.receives >= queue.most_receives and kept.visible_seconds <= now:
                queue.messages.remove(kept)
                kept.receipt = ""
                sent = now if queue.fifo else kept.sent_seconds
                moved = Kept(kept.id, {**kept.sent}, sent, source=queue.arn, receives=kept.receives)
                moved.moved_seconds, moved.moved_receives = now, kept.receives
                queue.dead_letters.messages.append(moved)

    def _next(self, queue: Queue, most: int) -> list[Kept]:
        now = self.clock.monotonic_seconds()
        held = {kept.group for kept in queue.messages if kept.visible_seconds > now} if queue.fifo else set()
        free = (kept for kept in queue.messages if kept.visible_seconds <= now)
        # One receive may return several messages of a group, in order; while they are in flight the group is blocked.
        return list(itertools.islice((kept for kept in free if not (queue.fifo and kept.group in held)), most))

    def _handed_out(self, queue: Queue, kept: Kept, seconds: float) -> dict[str, Any]:
        kept.receives += 1
        kept.receipt = f"receipt-{next(self._numbers)}"
        kept.visible_seconds = self.clock.monotonic_seconds() + seconds
        queue.receipts[kept.receipt] = (kept, kept.visible_seconds)
        sent_ms = self.clock.epoch_ms() - int((self.clock.monotonic_seconds() - kept.sent_seconds) * 1000)
        attributes = {"ApproximateReceiveCount": str(kept.receives), "SentTimestamp": str(sent_ms)}
        attributes |= {"MessageGroupId": kept.group} if kept.group else {}
        attributes |= {"SequenceNumber": f"{10**19 + int(kept.id[:8], 16)}"} if queue.fifo else {}
        if "MessageSystemAttributes" in kept.sent:
            attributes["AWSTraceHeader"] = kept.sent["MessageSystemAttributes"]["AWSTraceHeader"]["StringValue"]
        attributes |= {"DeadLetterQueueSourceArn": kept.source} if kept.source else {}
        return {
            "MessageId": kept.id,
            "ReceiptHandle": kept.receipt,
            "Body": kept.sent["MessageBody"],
            "Attributes": attributes,
            "MessageAttributes": kept.sent.get("MessageAttributes", {}),
        }

    def _batch(self, name: str, url: str, entries: list[dict[str, Any]], one: Any) -> dict[str, Any]:
        assert 0 < len(entries) <= 10
        assert len({entry["Id"] for entry in entries}) == len(entries)

        def each() -> dict[str, Any]:
            answers = [(entry["Id"], one(entry)) for entry in entries]
            refused = {"Code": "ReceiptHandleIsInvalid", "SenderFault": True}
            told = [{"Id": id, **(refused if answer is None else answer)} for id, answer in answers]
            sent, failed = ([each for each in told if ("Code" in each) is failed] for failed in (False, True))
            # AWS leaves out a list of none.
            return {name: each for name, each in (("Successful", sent), ("Failed", failed)) if each}

        return self.request(name, {"QueueUrl": url, "Entries": entries}, each)

    def request(self, name: str, asked: dict[str, Any], take_effect: Any) -> Any:
        """A request, of SQS or of what a test counts beside it: it may crash or fail as any. Safe in threads."""
        with self._lock:
            number = len(self.calls)
            self.calls.append((name, asked))
            if self.crash_at == (number, "before"):
                raise Crash
            if name in self.broken:
                raise self.error or _error("AccessDenied", name)
            answer = take_effect()
            if self.crash_at == (number, "after"):
                raise Crash
        return json.loads(json.dumps(answer, default=repr)) if name != "receive_message" else answer


def _error(code: str, operation: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, operation)
