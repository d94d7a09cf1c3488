"""The two consumers of one table. Their messages come in pairs: what one is sent, the other is sent under the same key.

The second has its own queues, its own namespace, and its own effects: its transfers' ids end with that namespace.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from harness.workload.stack_client import Backlog, StackClient
from harness.workload.transfers import Workload
from idempotent_receiver.sqs.dead_letter import stamped
from tests.chaos.event_source_mapping import Batches
from tests.chaos.settings import COPIES, PREFIXES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.workload.evidence import DeadLetter, Line
    from harness.workload.transfers import TransferMessage
    from tests.chaos.settings import Settings


def in_pairs(workload: Workload) -> Workload:
    """Each message twice: for the first consumer, and then, the same to the byte, for the second."""
    pairs = [
        (each, replace(each, name=f"{each.name}.{COPIES}", garbage=each.body, group=each.group and f"{each.group}.2"))
        for each in workload.messages
    ]
    opening = {account: 2 * balance for account, balance in workload.opening.items()}
    return Workload(messages=tuple(each for pair in pairs for each in pair), opening=opening)


@dataclass(frozen=True, kw_only=True)
class TwoConsumers(StackClient):
    """Both, from outside."""

    second: StackClient
    record_ids: dict[str, str] = field(default_factory=dict)
    """The ids of the second's records, by those of its messages."""

    def sources(self, common: Settings, port: int) -> list[Batches]:
        return [Batches(each, common.of(each.stack.outputs, port)) for each in (self, self.second)]

    def told(self, lines: Sequence[Any], sent: Mapping[str, str]) -> list[Line]:
        """The log, in which the second's messages have their records' ids, as the first's have."""
        ids = self.record_ids
        return [replace(line, name=ids[line.name]) if getattr(line, "name", None) in ids else line for line in lines]

    def send(self, messages: Sequence[TransferMessage], attributes: Sequence[object] = ()) -> dict[str, str]:
        firsts, copies = messages[::2], messages[1::2]
        keys = super().send(firsts)
        sent = self.second.send(copies, [stamped(keys[each.name]) for each in firsts])
        for first, copy in zip(firsts, copies, strict=True):
            self.record_ids[sent[copy.name]] = keys[copy.name] = PREFIXES[COPIES] + keys[first.name]
        return keys

    def backlog(self, queue: str) -> Backlog:
        others = {self.queue: self.second.queue, self.dead_letter_queue: self.second.dead_letter_queue}
        if (other := others.get(queue)) is None:
            return super().backlog(queue)
        both = super().backlog(queue), self.second.backlog(other)
        return Backlog(waiting=sum(each.waiting for each in both), in_flight=sum(each.in_flight for each in both))

    def dead_letters(self) -> list[DeadLetter]:
        copies = [replace(each, message_id=PREFIXES[COPIES] + each.message_id) for each in self.second.dead_letters()]
        return [*super().dead_letters(), *copies]
