"""What all processes of one run agree on: names, and times that are short enough to see leases end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

RECORDS, ACCOUNTS, ENTRIES = "records", "accounts", "entries"

TIMEOUT_SECONDS = 3.0
"""The function's time-out: a worker that has not answered by then is killed, as Lambda does."""
STOP_MARGIN_SECONDS = 1.0
LEASE_MARGIN_SECONDS = 1.5
VISIBILITY_SECONDS = 6
"""Longer than a lease, which ends at the time-out and its margin: what a killed worker had is then free."""
MOST_RECEIVES = 8
"""Then the queue moves a message to the dead-letter queue by itself."""
MESSAGES_A_BATCH = 10
CONCURRENCY = 4
"""Handlers that a worker runs at once."""


class Effects(StrEnum):
    """What the workers' consumers declare; with MIXED every other one claims."""

    ANY = "any"
    TRANSACTION = "transaction"
    MIXED = "mixed"

    def of_worker(self, number: int) -> Effects:
        if self is not Effects.MIXED:
            return self
        return Effects.ANY if number % 2 else Effects.TRANSACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    port: int
    """Of the proxy, behind which it finds the cloud."""
    log: str
    dead_letter_queue_url: str
    protected: bool
    effects: Effects = Effects.ANY
    worker: str = ""
