"""A session with a dead-letter queue, or its archive: dead letters are taken, read and decided about, and held until it
ends.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from idempotent_receiver.clock import Clock
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.queue import MAX_A_ROUND, Raw, chunks
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, triage
from idempotent_receiver.operations.dead_letters.workers import RequestFailed, Workers
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import READS_A_CALL, RecordStore, Unknown


class Source(Protocol):
    """Where dead letters are taken from: a queue, which holds them meanwhile, or an archive, from which nobody else
    takes.
    """

    clock: Clock
    workers: Workers
    seen: set[str]
    """The ids of all that was taken."""
    refills: bool
    """Whether what was sent back to the consumer, and failed again, comes up in it."""

    @property
    def more(self) -> bool:
        """Whether there may be more behind what was taken."""

    def take(self, most: int = ..., stopped: Callable[[], bool] = ...) -> list[Raw]:
        """Up to about `most` messages that were not taken before."""

    def unseen(self) -> int:
        """About how many were never taken."""

    def still_held(self, ids: Sequence[str]) -> set[str]:
        """Which of the ids nobody else can have taken since."""

    def delete(self, ids: Sequence[str]) -> dict[str, str | RequestFailed]:
        """Delete messages. Returns for those that may be there still AWS's code, or the failure of the whole call."""

    def release(self) -> None:
        """Give back what is held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What dead letters are taken, read and decided with. Leaving it releases all that it holds."""

    source: Source
    reader: Reader
    store: RecordStore
    rules: Rules

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.release()

    def take(self, most: int = MAX_A_ROUND, stopped: Callable[[], bool] = lambda: False) -> list[Decision]:
        """Decisions about up to about `most` dead letters that were not taken before."""
        received = self.source.take(most, stopped)
        now_ms = self.source.clock.epoch_ms()
        taken = [self.reader.read(raw, now_ms) for raw in received]
        found = self.records(dict.fromkeys(each.record_id for each in taken if each.unkeyed is None))
        return [triage(each, found.get(each.record_id), now_ms, self.rules) for each in taken]

    def records(self, ids: Iterable[str]) -> Mapping[str, Record | Unknown | None]:
        """The records with these ids, each of which is given once."""
        asked = list(ids)
        reads = self.source.workers.results(self.store.read, chunks(asked, READS_A_CALL))
        return dict(zip(asked, (record for read in reads for record in read), strict=True))
