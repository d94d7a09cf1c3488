"""One session with a dead-letter queue: take dead letters, decide about each, and at the end release what is left."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.queue import MAX_A_ROUND, DeadLetterQueue
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, triage
from idempotent_receiver.operations.records import read_all
from idempotent_receiver.protocol.store import RecordStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What dead letters are taken, read and decided with. Leaving it releases all that it holds."""

    queue: DeadLetterQueue
    reader: Reader
    store: RecordStore
    rules: Rules

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.release()

    def take(self, most: int = MAX_A_ROUND, stopped: Callable[[], bool] = lambda: False) -> list[Decision]:
        """Decisions about up to about `most` dead letters that were not taken before."""
        received = self.queue.take(most, stopped)
        now_ms = self.queue.clock.epoch_ms()
        taken = [self.reader.read(raw, now_ms) for raw in received]
        found = read_all(self.store, list(dict.fromkeys(each.record_id for each in taken if each.unkeyed is None)))
        return [triage(each, found.get(each.record_id), now_ms, self.rules) for each in taken]
