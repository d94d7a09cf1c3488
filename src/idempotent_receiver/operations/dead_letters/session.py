"""A session with a dead-letter queue or its archive: dead letters are taken, read, judged, and held until it ends."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, Self

from idempotent_receiver.clock import Clock
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.queue import MAX_A_ROUND, Raw, chunks
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, Verdict, triage
from idempotent_receiver.operations.dead_letters.workers import RequestFailed, Workers
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import READS_A_CALL, RecordStore, Unknown


class Source(Protocol):
    """Where dead letters come from: a queue, which holds what is taken, or an archive, which no consumer reads."""

    clock: Clock
    workers: Workers
    seen: set[str]
    """The ids of everything taken."""
    refills: bool
    """Whether a redriven message that fails again reappears in this source."""

    @property
    def more(self) -> bool:
        """Whether there may be more messages behind those taken."""

    def take(self, most: int = ..., stopped: Callable[[], bool] = ...) -> list[Raw]:
        """Messages that have not been taken yet: roughly `most` of them at most."""

    def unseen(self) -> int:
        """The approximate number of messages not yet taken."""

    def still_held(self, ids: Sequence[str]) -> set[str]:
        """The ids that are certainly still held."""

    def delete(self, ids: Sequence[str]) -> dict[str, str | RequestFailed]:
        """Delete messages. For each that may still exist, returns AWS's code or the failure of the whole call."""

    def release(self) -> None:
        """Release everything held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Takes, reads and judges dead letters. Exiting the session releases everything it holds.

    `gone` says of another queue's ARN whether that queue no longer exists.
    """

    source: Source
    reader: Reader
    store: RecordStore
    rules: Rules
    gone: Callable[[str], bool] = lambda arn: False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.source.release()

    def take(self, most: int = MAX_A_ROUND, stopped: Callable[[], bool] = lambda: False) -> list[Decision]:
        """Take dead letters not yet taken, roughly `most` of them at most, and decide on each."""
        received = self.source.take(most, stopped)
        now_ms = self.source.clock.epoch_ms()
        taken = [self.reader.read(raw, now_ms) for raw in received]
        found = self.records(dict.fromkeys(each.record_id for each in taken if each.unkeyed is None))
        return [self._placed(triage(each, found.get(each.record_id), now_ms, self.rules)) for each in taken]

    def _placed(self, decision: Decision) -> Decision:
        """The decision, which says of another queue's dead letter whether that queue is gone."""
        if decision.verdict is not Verdict.OTHER_QUEUE or not self.gone(str(decision.dead_letter.source)):
            return decision
        return replace(decision, orphaned=True, why=f"{decision.why}, which no longer exists")

    def records(self, ids: Iterable[str]) -> Mapping[str, Record | Unknown | None]:
        """The records with these ids, which must be distinct."""
        asked = list(ids)
        reads = self.source.workers.results(self.store.read, chunks(asked, READS_A_CALL))
        return dict(zip(asked, (record for read in reads for record in read), strict=True))
