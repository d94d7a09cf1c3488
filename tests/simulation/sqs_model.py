"""A model of an SQS queue and Lambda's poller: visibility, receive counts, dead letters, FIFO groups.

Source: SQS Developer Guide, "Visibility timeout", "Dead-letter queues", "FIFO delivery logic"; Lambda Developer Guide,
"Handling errors for an SQS event source".
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from harness.history import DeadLettered, Event, Sent
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.transaction.outbox import STAMP
from tests.simulation.world import QUEUE, sqs_record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

MAX_RECEIVES = 5
SENT = "https://sqs.us-east-1.amazonaws.com/123456789012/sent"
"""The queue to which handlers send."""
COPY = "copy"
"""The attribute that tells a message from the others that were sent for the same original."""


def stamp_in(arguments: dict[str, Any]) -> dict[str, Any]:
    stamp: dict[str, Any] = json.loads(arguments["MessageAttributes"][STAMP]["StringValue"])
    return stamp


def audit_namespace(namespace: str | None) -> str:
    return "audit" if namespace is None else f"{namespace}.audit"


ENDS = ("deleted", "dead", "deleted, dead-lettered", "dead, dead-lettered")
"""Deleted by Lambda, because it was acknowledged, or moved by SQS; and whether a consumer has sent its dead letter."""


@dataclass
class QueuedMessage:
    """A message in the queue."""

    id: str
    group: str | None
    visible_at: float
    key: str
    """The id of its record."""
    queue: QueueModel = field(repr=False)
    body: str = "{}"
    attributes: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    """What its handler returns."""
    usable: bool = True
    """Whether it has a usable key. One that has none has no record either."""
    sent_at: float = 0.0
    original: str = ""
    """The id of the message that this one is a copy of, or its own."""
    receives: int = 0
    deleted: bool = False
    dead_because: str | None = None
    """Why SQS itself has moved it to the dead-letter queue."""

    @property
    def audit_key(self) -> str:
        """The id of the record of the function that its handler calls."""
        return f"{audit_namespace(self.queue.namespace)}#{self.plain_key}"

    @property
    def name(self) -> str:
        """Its id, and its queue: two queues may have messages of one id."""
        return f"{self.queue.name}/{self.id}"

    @property
    def plain_key(self) -> str:
        """Its key, without the namespace."""
        return self.key.partition("#")[2] or self.key

    @property
    def gone(self) -> bool:
        return self.deleted or self.dead_because is not None

    @property
    def dead_lettered(self) -> bool:
        return self.id in self.queue.dead_letters

    @property
    def end(self) -> str:
        """How it has ended: one of `ENDS`."""
        gone = ("dead" if self.dead_because is not None else "deleted", *["dead-lettered"] * self.dead_lettered)
        return ", ".join(gone)

    @property
    def handle(self) -> str:
        return f"{self.id}/{self.receives}"


def is_audit(id: str) -> bool:
    return "audit#" in id


def copy_in(arguments: dict[str, Any]) -> str:
    """The id of the message that a dead letter is of."""
    return str(arguments["MessageAttributes"].get(COPY, {}).get("StringValue"))


@dataclass
class QueueModel:
    """A standard or FIFO queue. `duplicates` is the probability that a standard queue delivers a message twice.

    AWS recommends a `visibility_seconds` of six times the function's time-out. With a shorter one the queue delivers a
    message again while it is still being processed.
    """

    random: Random
    fifo: bool
    visibility_seconds: float
    duplicates: float = 0.0
    most_receives: int = MAX_RECEIVES
    name: str = "transfers"
    namespace: str | None = None
    """Of the consumer that it belongs to."""
    messages: dict[str, QueuedMessage] = field(default_factory=dict)
    """In the order in which they were sent."""
    dead_letters: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The dead letters that consumers have sent: the arguments of each, by the ids of the messages that failed."""
    history: list[Event] = field(default_factory=list)
    redriven: set[str] = field(default_factory=set)
    """The dead letters that were sent back."""

    def send(self, id: str, group: str | None, at: float, key: str | None = None, **more: Any) -> QueuedMessage:
        """Send a message that becomes visible at that time."""
        more.setdefault("original", id)
        more["attributes"] = {**more.get("attributes", {}), COPY: {"dataType": "String", "stringValue": id}}
        message = QueuedMessage(id, group, at, id if key is None else key, self, sent_at=at, **more)
        line = group and f"{self.name} {group}"
        self.history.append(Sent(at=at, message=message.name, key=message.key, payload=message.body, group=line))
        self.messages = dict(sorted([*self.messages.items(), (id, message)], key=lambda one: one[1].sent_at))
        return message

    def redrive(self, message: QueuedMessage, at: float, *, stamped: bool) -> QueuedMessage:
        """Send a dead letter back: with our stamp, or as SQS itself does, which keeps what is there. Both have new ids.

        What SQS has moved to the dead-letter queue has no stamp, so without one its key is only known if it is in its
        body.
        """
        id = f"{message.id}r"
        sent, attributes, key = self.dead_letters.get(message.id), dict(message.attributes), message.key
        if stamped:
            stamp = Stamp(key=message.plain_key if message.usable else message.original, original_id=message.original)
            attributes[STAMP] = {"dataType": "String", "stringValue": stamp.to_json()}
        elif sent is not None:
            attributes[STAMP] = {"dataType": "String", "stringValue": sent["MessageAttributes"][STAMP]["StringValue"]}
        elif STAMP not in attributes and message.plain_key == message.id:
            key = key.removesuffix(message.id) + id
        original = message.original if STAMP in attributes else id
        self.redriven.add(message.id)
        more = {"body": message.body, "attributes": attributes, "result": message.result, "usable": message.usable}
        return self.send(id, message.group, at, key, original=original, **more)

    @property
    def empty(self) -> bool:
        return all(message.gone for message in self.messages.values())

    def next_visible(self) -> float:
        present = [message for message in self.messages.values() if not message.gone]
        busy_until = self._busy_until(present)
        return min((max(message.visible_at, busy_until.get(message.group, 0.0)) for message in present), default=inf)

    def _busy_until(self, present: Iterable[QueuedMessage]) -> dict[str | None, float]:
        """Until when each FIFO group is blocked by a message of its own that is in flight."""
        busy: dict[str | None, float] = {}
        for message in present if self.fifo else ():
            if message.receives:
                busy[message.group] = max(message.visible_at, busy.get(message.group, 0.0))
        return busy

    def receive(self, now: float, most: int) -> list[QueuedMessage]:
        """Receive visible messages. One that was received too many times goes to the dead-letter queue instead."""
        received = []
        for message in self._offered(now):
            if message.receives >= self.most_receives:
                message.dead_because = f"received {message.receives} times"
                self.history.append(DeadLettered(at=now, message=message.name, worker=None))
                continue
            message.receives += 1
            message.visible_at = now + self.visibility_seconds
            received.append(message)
            if len(received) == most:
                break
        return received

    def _offered(self, now: float) -> Iterable[QueuedMessage]:
        present = [message for message in self.messages.values() if not message.gone]
        if not self.fifo:
            offered = [message for message in present if message.visible_at <= now or self._duplicated(message, now)]
            self.random.shuffle(offered)
            return offered
        busy_until = self._busy_until(present)
        return [message for message in present if max(message.visible_at, busy_until.get(message.group, 0.0)) <= now]

    def _duplicated(self, message: QueuedMessage, now: float) -> bool:
        return message.receives > 0 and self.random.random() < self.duplicates

    def delete(self, handles: Iterable[str]) -> None:
        """Delete messages as the poller does. On a standard queue an older receipt handle deletes too."""
        for handle in handles:
            self.messages[handle.partition("/")[0]].deleted = True

    def change_visibility(self, handle: str, at: float) -> None:
        """Change a message's visibility if this receive is its latest."""
        message = self.messages[handle.partition("/")[0]]
        if handle == message.handle and not message.gone:
            message.visible_at = at

    def add_dead_letter(self, arguments: dict[str, Any]) -> None:
        self.dead_letters[copy_in(arguments)] = arguments

    def record(self, message: QueuedMessage) -> dict[str, Any]:
        made = sqs_record(
            message.id,
            message.body,
            receives=message.receives,
            queue=self.arn,
            group=message.group,
            attributes=deepcopy(message.attributes),
        )
        made["receiptHandle"] = message.handle
        return made

    @property
    def arn(self) -> str:
        return QUEUE.removesuffix("transfers") + self.name + (".fifo" if self.fifo else "")
