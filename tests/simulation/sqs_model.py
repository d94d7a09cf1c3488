"""A model of an SQS queue and Lambda's poller: visibility, receive counts, dead letters, FIFO groups.

Source: SQS Developer Guide, "Visibility timeout", "Dead-letter queues", "FIFO delivery logic"; Lambda Developer Guide,
"Handling errors for an SQS event source".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from idempotent_receiver.sqs.dead_letter import STAMP
from local.history import DeadLettered, Event, Sent
from tests.simulation.world import FIFO, QUEUE, sqs_record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

MAX_RECEIVES = 5


def stamp_in(arguments: dict[str, Any]) -> dict[str, Any]:
    """The stamp of a dead letter that is sent."""
    stamp: dict[str, Any] = json.loads(arguments["MessageAttributes"][STAMP]["StringValue"])
    return stamp


@dataclass
class QueuedMessage:
    """A message in the queue."""

    id: str
    group: str | None
    visible_at: float
    key: str
    """The id of its record."""
    body: str = "{}"
    receives: int = 0
    deleted: bool = False
    dead_because: str | None = None
    """Why SQS itself has moved it to the dead-letter queue."""

    @property
    def gone(self) -> bool:
        """Whether the queue no longer has it."""
        return self.deleted or self.dead_because is not None

    @property
    def handle(self) -> str:
        """The receipt handle of its last receive."""
        return f"{self.id}/{self.receives}"


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
    messages: dict[str, QueuedMessage] = field(default_factory=dict)
    dead_letters: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The dead letters that consumers have sent: their stamps, by the messages' original ids."""
    history: list[Event] = field(default_factory=list)

    def send(self, id: str, group: str | None, at: float, key: str | None = None, body: str = "{}") -> None:
        """Send a message that becomes visible at that time."""
        message = self.messages[id] = QueuedMessage(id, group, at, id if key is None else key, body)
        self.history.append(Sent(at=at, message=id, key=message.key, payload=body, group=group))

    def payloads(self, key: str) -> set[str]:
        """The bodies of the messages with this key."""
        return {message.body for message in self.messages.values() if message.key == key}

    @property
    def empty(self) -> bool:
        """Whether everything is deleted or dead."""
        return all(message.gone for message in self.messages.values())

    def next_visible(self) -> float:
        """When the next message may be received."""
        present = [message for message in self.messages.values() if not message.gone]
        busy_until = self._busy_until(present)
        return min((max(message.visible_at, busy_until.get(message.group, 0.0)) for message in present), default=0.0)

    def _busy_until(self, present: Iterable[QueuedMessage]) -> dict[str | None, float]:
        """Until when each FIFO group is blocked by a message of its own that is in flight."""
        busy: dict[str | None, float] = {}
        for message in present if self.fifo else ():
            if message.receives:
                busy[message.group] = max(message.visible_at, busy.get(message.group, 0.0))
        return busy

    def receive(self, now: float, most: int) -> list[QueuedMessage]:
        """Receive visible messages. One that was received too often goes to the dead-letter queue instead."""
        received = []
        for message in self._offered(now):
            if message.receives >= self.most_receives:
                message.dead_because = f"received {message.receives} times"
                self.history.append(DeadLettered(at=now, message=message.id, worker=None))
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
        """Accept a dead letter from a consumer."""
        stamp = stamp_in(arguments)
        self.dead_letters[stamp["original_id"]] = stamp

    def record(self, message: QueuedMessage) -> dict[str, Any]:
        """A message as Lambda delivers it."""
        queue = FIFO if self.fifo else QUEUE
        made = sqs_record(message.id, message.body, receives=message.receives, queue=queue, group=message.group)
        made["receiptHandle"] = message.handle
        return made
