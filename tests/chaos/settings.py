"""What all processes of one run agree on: names, and times that are short enough to see leases end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

RECORDS, ACCOUNTS, ENTRIES = "records", "accounts", "entries"
TRANSFERS, COPIES = "transfers", "copies"
PREFIXES = {TRANSFERS: "", COPIES: f"{COPIES}#"}
"""The consumers that share the table, by their queues' names, and what their records' ids begin with."""
RECEIPTS = "receipts"
"""The queue that what was posted sends its receipt to, and the table in which the next consumer counts them."""
REDRIVER = "redriver"
"""What a worker calls itself while it redrives, so that this is not counted as what messages cost."""

TIMEOUT_SECONDS = 3.0
"""The function's time-out: a worker that has not answered by then is killed, as Lambda does."""
STOP_MARGIN_SECONDS = 1.0
LEASE_MARGIN_SECONDS = 1.5
VISIBILITY_SECONDS = 6
"""Longer than a lease, which ends at the time-out and its margin: what a killed worker had is then free."""
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


class Cast(StrEnum):
    """Which way messages come."""

    STANDARD = "standard"
    FIFO = "fifo"
    """Messages have groups, whose order must be kept. Nothing is delivered twice at once: there, SQS does not do so."""

    WORKFLOW = "workflow"
    """Messages are requests, each of which starts an execution. There is no queue."""

    @property
    def most_receives(self) -> int:
        """Then the queue moves a message by itself. Behind a failure of its group it is received in vain."""
        return 12 if self is Cast.FIFO else 8

    @property
    def suffix(self) -> str:
        return ".fifo" if self is Cast.FIFO else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    port: int
    """Of the proxy, behind which it finds the cloud."""
    log: str
    outputs: Mapping[str, str]
    """What its consumer's stack says: its queues, its namespace or its state machine."""
    protected: bool
    effects: Effects = Effects.ANY
    cast: Cast = Cast.STANDARD
    coroutine: bool = False
    worker: str = ""

    @property
    def namespace(self) -> str | None:
        return self.outputs["Namespace"] or None

    @property
    def receipts(self) -> str | None:
        """The URL of the queue for receipts; None where nobody sends any."""
        return self.outputs.get("ReceiptsQueueUrl")

    def of(self, outputs: Mapping[str, str], port: int) -> Settings:
        """Those of the consumer whose stack has these outputs; its queues, too, are behind the proxy."""
        seen = {name: text.replace(f":{port}/", f":{self.port}/") for name, text in outputs.items()}
        return replace(self, outputs=seen)
