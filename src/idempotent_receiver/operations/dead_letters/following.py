"""Follows redriven messages through their records and the dead-letter queue."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from math import ceil
from typing import NamedTuple

from idempotent_receiver.operations.dead_letters.history import Act, ActOutcome, Verb
from idempotent_receiver.operations.dead_letters.queue import POLL_SECONDS, DeadLetterQueue
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.records import written_ms
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import Unknown

READS_A_SECOND = 1000
"""The limit on record reads while following. Each look costs one read unit per record."""


class ReturnedMessage(NamedTuple):
    """A message sent back to the consumer; `version` is its record's before the send, None if it had no record."""

    record_id: str
    key: str
    version: str | None


class Fate(StrEnum):
    """What became of a redriven message."""

    COMPLETED = "completed"
    DEAD = "dead again"
    FAILED = "failed again"
    WAITING = "waiting"


SETTLED = (Fate.COMPLETED, Fate.DEAD)
"""Final fates. A message that failed again may still be retried and succeed."""


def fate(before: ReturnedMessage, found: Record | Unknown | None, now_ms: int) -> Fate:
    """A message's fate according to its record. An unchanged record describes the earlier failure."""
    if not isinstance(found, Record) or found.expired(now_ms):
        return Fate.WAITING
    if found.status == Status.COMPLETED:
        return Fate.COMPLETED
    failed = found.status == Status.FAILED and found.version != before.version
    return Fate.FAILED if failed else Fate.WAITING


def became(act: Act, found: Record | Unknown | None, now_ms: int, retention_seconds: int, *, dead: bool) -> Fate | None:
    """What became of a message after an act in the history; None if the act sent nothing to the consumer.

    `dead` says whether a dead letter with its key has appeared since. A record written before the act describes the
    earlier failure; its write time is derived from its expiry.
    """
    if act.verb != Verb.MOVED or act.outcome == ActOutcome.REFUSED:
        return None
    if dead:
        return Fate.DEAD
    version = None
    if isinstance(found, Record):
        written = written_ms(found, now_ms, retention_seconds)
        version = found.version if written is None or written // 1000 < act.at_ms // 1000 else None
    return fate(ReturnedMessage(act.key, act.key, version), found, now_ms)


class Following:
    """Follows redriven messages in a session with the dead-letter queue.

    `returned` and `fates` are keyed by record id.
    """

    def __init__(self, session: Session, queue: DeadLetterQueue, returned: Collection[ReturnedMessage]) -> None:
        self._session, self._queue = session, queue
        self.returned = {each.record_id: each for each in returned}
        self.fates = dict.fromkeys(self.returned, Fate.WAITING)

    @property
    def counts(self) -> Counter[Fate]:
        """The number of messages per fate."""
        return Counter(self.fates.values())

    @property
    def completed(self) -> bool:
        """Whether all messages completed."""
        return all(each is Fate.COMPLETED for each in self.fates.values())

    @property
    def open(self) -> list[ReturnedMessage]:
        """The messages that have neither completed nor become dead letters again."""
        return [each for id, each in self.returned.items() if self.fates[id] not in SETTLED]

    def looks(self, seconds: float, stopped: Callable[[], bool] = lambda: False) -> Iterator[Counter[Fate]]:
        """Look until all fates are final, time is up or `stopped` returns true; yields the counts after each look."""
        queue, clock = self._queue, self._queue.clock
        until = clock.monotonic_seconds() + seconds
        # Held messages are invisible to others and to the alarm.
        queue.release()
        dead = queue.count()
        for _ in range(1 + ceil(seconds / POLL_SECONDS)):
            over = clock.monotonic_seconds() >= until or stopped()
            self._read_records()
            if (now_dead := queue.count()) > dead or over:
                self._look_for_the_dead()
            dead = now_dead
            yield self.counts
            if over or not self.open:
                return
            pause = max(POLL_SECONDS, len(self.open) / READS_A_SECOND)
            clock.sleep(min(pause, max(0.0, until - clock.monotonic_seconds())))

    def _read_records(self) -> None:
        now_ms = self._queue.clock.epoch_ms()
        for id, record in self._session.records(each.record_id for each in self.open).items():
            self.fates[id] = fate(self.returned[id], record, now_ms)

    def _look_for_the_dead(self) -> None:
        """Find messages that are back in the dead-letter queue, under a new messageId. A completed message stays
        completed, even if it has a copy there.
        """
        while taken := self._session.take():
            for id in (each.dead_letter.record_id for each in taken):
                if self.fates.get(id, Fate.COMPLETED) is not Fate.COMPLETED:
                    self.fates[id] = Fate.DEAD
        self._queue.release()
