"""What a worker process has received and not answered yet: waiting for its handler, or running."""

import threading
from collections.abc import Sequence
from typing import Any

from idempotent_receiver.clock import Clock


class InFlight:
    """The messages of one process, by id. Safe to use from several threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._handles: dict[str, str] = {}
        self._waiting: set[str] = set()
        self._began: dict[str, float] = {}
        self.last_run_seconds = 0.0

    def hold(self, records: Sequence[dict[str, Any]]) -> None:
        """These were received."""
        with self._changed:
            self._handles |= {record["messageId"]: record["receiptHandle"] for record in records}
            self._waiting |= {record["messageId"] for record in records}

    def started(self, id: str) -> None:
        """The handler of this one runs."""
        with self._changed:
            self._waiting.discard(id)
            self._began[id] = self._clock.monotonic_seconds()
            self._changed.notify_all()

    def returned(self, id: str) -> None:
        """The handler of this one has ended, and its record is being written."""
        with self._changed:
            self.last_run_seconds = self._clock.monotonic_seconds() - self._began.pop(id)
            self._changed.notify_all()

    def answered(self, ids: Sequence[str]) -> None:
        """These are SQS's again."""
        with self._changed:
            for id in ids:
                self._handles.pop(id, None)
                self._waiting.discard(id)
                self._began.pop(id, None)
            self._changed.notify_all()

    @property
    def handles(self) -> list[str]:
        """The receipt handles of all."""
        with self._changed:
            return list(self._handles.values())

    def room(self, concurrency: int, wait_seconds: float) -> int:
        """How many handlers could start; none as long as any message waits for its own. Waits a while for that."""
        with self._changed:
            self._changed.wait_for(lambda: self._room(concurrency) > 0, wait_seconds)
            return self._room(concurrency)

    def emptied(self, wait_seconds: float) -> bool:
        """Whether nothing is left; waits a while for it."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._handles, wait_seconds)

    def _room(self, concurrency: int) -> int:
        return 0 if self._waiting else concurrency - len(self._began)
