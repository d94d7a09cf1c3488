"""What becomes of the messages that a run has sent back, as their records and the dead-letter queue tell."""

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
"""Records; a look at many takes its time, because each is a read unit."""


class ReturnedMessage(NamedTuple):
    """A message that was sent back to the consumer; `version` is that of its record before, None without one."""

    record_id: str
    key: str
    version: str | None


class Fate(StrEnum):
    """What became of a message that was sent back."""

    COMPLETED = "completed"
    DEAD = "dead again"
    FAILED = "failed again"
    WAITING = "waiting"


SETTLED = (Fate.COMPLETED, Fate.DEAD)
"""What does not change any more. What failed again may still be tried, and succeed."""


def fate(before: ReturnedMessage, found: Record | Unknown | None, now_ms: int) -> Fate:
    """What its record tells now. A record that has not changed is that of the failure before."""
    if not isinstance(found, Record) or found.expired(now_ms):
        return Fate.WAITING
    if found.status == Status.COMPLETED:
        return Fate.COMPLETED
    failed = found.status == Status.FAILED and found.version != before.version
    return Fate.FAILED if failed else Fate.WAITING


def became(act: Act, found: Record | Unknown | None, now_ms: int, retention_seconds: int, *, dead: bool) -> Fate | None:
    """What became of a message by an act of the history; None if that moved nothing to the consumer.

    `dead` tells that its key has had a dead letter since. A record that was written before the act is that of the
    failure before; when that was is reckoned from its expiry.
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
    """Looks at what becomes of returned messages, in a session with the dead-letter queue.

    `returned` and `fates` are by record id.
    """

    def __init__(self, session: Session, queue: DeadLetterQueue, returned: Collection[ReturnedMessage]) -> None:
        self._session, self._queue = session, queue
        self.returned = {each.record_id: each for each in returned}
        self.fates = dict.fromkeys(self.returned, Fate.WAITING)

    @property
    def counts(self) -> Counter[Fate]:
        """How many have which fate."""
        return Counter(self.fates.values())

    @property
    def completed(self) -> bool:
        """Whether all are."""
        return all(each is Fate.COMPLETED for each in self.fates.values())

    @property
    def open(self) -> list[ReturnedMessage]:
        """Those that are neither completed nor dead again."""
        return [each for id, each in self.returned.items() if self.fates[id] not in SETTLED]

    def looks(self, seconds: float, stopped: Callable[[], bool] = lambda: False) -> Iterator[Counter[Fate]]:
        """Look again and again until all is settled, that time is over, or it is `stopped`; the counts at each look."""
        queue, clock = self._queue, self._queue.clock
        until = clock.monotonic_seconds() + seconds
        # Nobody else sees what is held, the alarm neither.
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
        """Those that are in the dead-letter queue under a new messageId. What is completed may have a copy there."""
        while taken := self._session.take():
            for id in (each.dead_letter.record_id for each in taken):
                if self.fates.get(id, Fate.COMPLETED) is not Fate.COMPLETED:
                    self.fates[id] = Fate.DEAD
        self._queue.release()
