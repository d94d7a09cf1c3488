"""How batches are received: what a consumer has decided once for all of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import Outcome
from idempotent_receiver.handler.results import Results
from idempotent_receiver.protocol.store import RecordStore
from idempotent_receiver.protocol.transitions import Claimed

AHEAD_SECONDS = 1.0
"""How much work a host receives ahead, and how long that waits behind handlers that take longer than expected."""


class Host(Protocol):
    """Who runs batches outside Lambda: keeps their leases alive, hears of each end at once, and may ask for an early
    one. It is called on the batch's own thread, except for `free_slot`.
    """

    def claiming(self, ids: Sequence[str]) -> None:
        """Claims of these records are about to be sent."""

    def claimed(self, claimed: Claimed) -> Claimed:
        """A claim is made. Returns it with what its settlement must know of renewals."""

    def not_claimed(self, id: str) -> None:
        """A claim was not made, or its answer is not known: its handler does not run."""

    def settling(self, claimed: Claimed) -> Claimed:
        """A claim is about to be settled: from now on its lease is not renewed. Returns what stands now."""

    def ended(self, index: int, outcome: Outcome) -> None:
        """A work has its outcome."""

    def draining(self) -> bool:
        """Whether nothing more shall start."""

    def take_slot(self) -> bool:
        """Whether one more handler may start, of all batches that run beside each other. Its slot must be freed."""

    def free_slot(self) -> None:
        """A slot is free again."""

    def releases(self, index: int) -> bool:
        """Whether a work that waits for its handler goes back to the queue instead: for `AHEAD_SECONDS` none
        has started, since as many run as may.
        """


SendDeadLetter = Callable[[int, Failure], bool]
"""Sends a dead letter for the work of an index, and says whether it is confirmed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`stop_margin_seconds` is the time kept for settling and answering. Results that would make a record larger than
    `largest_record_bytes` go to `results`, or are dropped for a marker. `asynchronous` says that the handlers are
    coroutine functions. `unclaimed` says that they run without a claim: each record is written once, together with its
    handler's effects. Outside Lambda, `host` takes part.
    """

    store: RecordStore
    executor: Executor
    concurrency: int = 1
    asynchronous: bool = False
    unclaimed: bool = False
    send_dead_letter: SendDeadLetter | None = None
    stop_margin_seconds: float = 1.0
    largest_record_bytes: int = 1024
    results: Results | None = None
    host: Host | None = None
    error_texts: bool = False
