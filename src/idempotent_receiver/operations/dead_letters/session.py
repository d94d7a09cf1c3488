"""A session with a dead-letter queue, or its archive: dead letters are taken, read and decided about, and held until it
ends.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from idempotent_receiver.operations.dead_letters.archive import Archive
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.queue import MAX_A_ROUND, DeadLetterQueue, chunks
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, triage
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import RecordStore, Unknown

READS_A_CALL = 100
"""BatchGetItem's limit."""

Source = TypeVar("Source", DeadLetterQueue, Archive)


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(Generic[Source]):
    """What dead letters are taken, read and decided with. Leaving it releases all that it holds."""

    queue: Source
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
        found = self.records(dict.fromkeys(each.record_id for each in taken if each.unkeyed is None))
        return [triage(each, found.get(each.record_id), now_ms, self.rules) for each in taken]

    def records(self, ids: Iterable[str]) -> Mapping[str, Record | Unknown | None]:
        """The records with these ids, each of which is given once."""
        asked = list(ids)
        reads = self.queue.workers.results(self.store.read, chunks(asked, READS_A_CALL))
        return dict(zip(asked, (record for read in reads for record in read), strict=True))
