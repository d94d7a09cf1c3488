"""A model of an SQS queue and of Lambda's poller in front of it: visibility, receive counts, dead letters, FIFO groups.

Source: SQS Developer Guide, "Visibility timeout", "Dead-letter queues", "FIFO delivery logic"; Lambda Developer Guide,
"Handling errors for an SQS event source".
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from idempotent_receiver.sqs.dead_letter import STAMP
from tests.simulation.world import FIFO, QUEUE, sqs_record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

MAX_RECEIVES = 5


@dataclass
class Mail:
    """A message in the queue."""

    id: str
    group: str | None
    visible_at: float
    receives: int = 0
    deleted: bool = False
    dead_because: str | None = None
    """Why it is in the dead-letter queue by SQS's own doing."""

    @property
    def gone(self) -> bool:
        """Whether the queue no longer has it."""
        return self.deleted or self.dead_because is not None

    @property
    def handle(self) -> str:
        """The receipt handle of its last receive."""
        return f"{self.id}/{self.receives}"


@dataclass
class Queue:
    """A standard or FIFO queue. `duplicates`: how often a standard queue delivers what is already under way.

    AWS wants a `visibility_seconds` of six times the function's time-out; a shorter one delivers what is still at work.
    """

    random: Random
    fifo: bool
    visibility_seconds: float
    duplicates: float = 0.0
    mails: dict[str, Mail] = field(default_factory=dict)
    letters: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The dead letters that consumers have sent: their stamps, by the messages' original ids."""

    def send(self, id: str, group: str | None, at: float) -> None:
        """A producer's message, visible from then on."""
        self.mails[id] = Mail(id, group, at)

    @property
    def empty(self) -> bool:
        """Whether everything is deleted or dead."""
        return all(mail.gone for mail in self.mails.values())

    def next_visible(self) -> float:
        """When the next message may be received."""
        there = [mail for mail in self.mails.values() if not mail.gone]
        busy_until = self._busy_until(there)
        return min((max(mail.visible_at, busy_until.get(mail.group, 0.0)) for mail in there), default=0.0)

    def _busy_until(self, there: Iterable[Mail]) -> dict[str | None, float]:
        """While one of its messages is under way, a FIFO group stands still: until when each does."""
        busy: dict[str | None, float] = {}
        for mail in there if self.fifo else ():
            if mail.receives:
                busy[mail.group] = max(mail.visible_at, busy.get(mail.group, 0.0))
        return busy

    def receive(self, now: float, most: int) -> list[Mail]:
        """Some of what is visible. What was received too often goes to the dead-letter queue instead."""
        taken = []
        for mail in self._offered(now):
            if mail.receives >= MAX_RECEIVES:
                mail.dead_because = f"received {mail.receives} times"
                continue
            mail.receives += 1
            mail.visible_at = now + self.visibility_seconds
            taken.append(mail)
            if len(taken) == most:
                break
        return taken

    def _offered(self, now: float) -> Iterable[Mail]:
        there = [mail for mail in self.mails.values() if not mail.gone]
        if not self.fifo:
            offered = [mail for mail in there if mail.visible_at <= now or self._twice(mail, now)]
            self.random.shuffle(offered)
            return offered
        busy_until = self._busy_until(there)
        return [mail for mail in there if max(mail.visible_at, busy_until.get(mail.group, 0.0)) <= now]

    def _twice(self, mail: Mail, now: float) -> bool:
        return mail.receives > 0 and self.random.random() < self.duplicates

    def delete(self, handles: Iterable[str]) -> None:
        """The poller deletes what an answer acknowledges; an older handle deletes too, on a standard queue."""
        for handle in handles:
            self.mails[handle.partition("/")[0]].deleted = True

    def show_again(self, handle: str, at: float) -> None:
        """Change a visibility, if this receive is the last one."""
        mail = self.mails[handle.partition("/")[0]]
        if handle == mail.handle and not mail.gone:
            mail.visible_at = at

    def bury(self, arguments: dict[str, Any]) -> None:
        """Take a dead letter that a consumer sends."""
        stamp = json.loads(arguments["MessageAttributes"][STAMP]["StringValue"])
        self.letters[stamp["original_id"]] = stamp

    def record(self, mail: Mail) -> dict[str, Any]:
        """A message as Lambda hands it over."""
        queue = FIFO if self.fifo else QUEUE
        made = sqs_record(mail.id, receives=mail.receives, queue=queue, group=mail.group)
        made["receiptHandle"] = mail.handle
        return made
