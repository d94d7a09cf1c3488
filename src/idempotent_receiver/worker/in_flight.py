"""Messages that a worker process has received but not acknowledged: waiting for a key or a handler, or running."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from idempotent_receiver.batch.keys import MOST_KEYING
from idempotent_receiver.batch.settings import AHEAD_SECONDS
from idempotent_receiver.clock import Clock


class InFlight:
    """One process's messages, by receipt handle. A message redelivered while still running here appears twice.
    Thread-safe.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._ids: dict[str, str] = {}
        self._waiting: set[str] = set()
        self._keying: dict[str, float] = {}
        """When messages began to wait for keys that the user's own code makes."""
        self._began: dict[str, float] = {}
        self.run_seconds: float | None = None
        """The longest recent run; it decays by a quarter with each run that ends. None before the first run ends."""

    def hold(self, records: Sequence[dict[str, Any]]) -> None:
        """Add received messages."""
        with self._changed:
            received = {record["receiptHandle"]: record["messageId"] for record in records}
            self._ids |= received
            self._waiting |= received.keys()

    def keying(self, receipts: Sequence[str]) -> None:
        """Note that these messages' keys are still to be made."""
        with self._changed:
            self._waiting -= set(receipts)
            self._keying |= dict.fromkeys(receipts, self._clock.monotonic_seconds())

    def keyed(self, receipts: Sequence[str]) -> None:
        """Note that these messages have keys, and wait for a handler."""
        with self._changed:
            self._waiting |= {receipt for receipt in receipts if self._keying.pop(receipt, None) is not None}

    def started(self, receipt: str) -> None:
        """Note that this message's handler is running."""
        with self._changed:
            self._waiting.discard(receipt)
            self._began[receipt] = self._clock.monotonic_seconds()
            self._tell()

    def returned(self, receipt: str) -> None:
        """Note that this message's handler has ended and its record is being written."""
        with self._changed:
            now = self._clock.monotonic_seconds()
            self.run_seconds = max(now - self._began.pop(receipt, now), (self.run_seconds or 0.0) * 3 / 4)
            self._tell()

    def answered(self, receipts: Sequence[str], give: Callable[[], None] | None = None) -> list[str]:
        """Remove messages, and call `give` to acknowledge them to SQS. Once `give` has begun, `handles` no longer lists
        them. Returns the ids of messages whose handlers are still running.
        """
        with self._changed:
            if give is not None:
                give()
            running = [self._ids[receipt] for receipt in receipts if receipt in self._began]
            for receipt in receipts:
                self._ids.pop(receipt, None)
                self._waiting.discard(receipt)
                self._keying.pop(receipt, None)
                self._began.pop(receipt, None)
            self._changed.notify_all()
            return running

    @property
    def handles(self) -> list[str]:
        """The receipt handles of all messages."""
        with self._changed:
            return list(self._ids)

    def room(self, concurrency: int, wait_seconds: float) -> int:
        """How many handlers could start; zero while any message waits for one, or has just begun to wait for its key,
        or many wait for keys. Waits up to `wait_seconds` for room.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._room(concurrency) > 0, wait_seconds)
            return self._room(concurrency)

    def emptied(self, wait_seconds: float, *, but: int = 0) -> bool:
        """Whether at most `but` messages are left, after waiting up to `wait_seconds` for that."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._ids) <= but, wait_seconds)

    def overdue(self, longest_seconds: float) -> list[str]:
        """The ids of messages whose handlers have run for longer than `longest_seconds`."""
        with self._changed:
            latest = self._clock.monotonic_seconds() - longest_seconds
            return [self._ids[receipt] for receipt, began in self._began.items() if began < latest]

    def _tell(self) -> None:
        """Wake those who wait, unless no handler could start anyway: each waking costs a switch of threads."""
        if not self._waiting:
            self._changed.notify_all()

    def _room(self, concurrency: int) -> int:
        latest = self._clock.monotonic_seconds() - AHEAD_SECONDS
        if self._waiting or len(self._keying) >= MOST_KEYING or any(began > latest for began in self._keying.values()):
            return 0
        return concurrency - len(self._began)
