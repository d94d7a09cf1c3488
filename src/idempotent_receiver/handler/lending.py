"""A run inside its store's own database transaction, which also writes its record.

Such a store lends the handler a database session. There is no claim: the database's own lock keeps other workers from
the key. The store calls the handler itself, between its two writes of the record.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from idempotent_receiver.clock import Deadline
from idempotent_receiver.handler.attempt import Attempt, Handle, Handled, Raised, Returned
from idempotent_receiver.protocol.answers import Refusal, SettleResult
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.protocol.transitions import Claim, Settlement, Unclaimed

Inside = Callable[[Attempt, Handle], object]
"""Calls the handler with what the store lends, and returns its result."""


@dataclass(frozen=True, slots=True)
class LentRun:
    """One message, as a batch hands it to its store.

    `run` makes an attempt on this basis, within `inside`, and never raises; `complete` and `fail` are its settlements.
    `failed` is the end of a run whose transaction failed after its handler had returned. `may_start` says whether there
    is time for another run.
    """

    claim: Claim
    deadline: Deadline
    run: Callable[[Unclaimed, Inside], Handled]
    complete: Callable[[Unclaimed, Returned], Settlement]
    fail: Callable[[Unclaimed, Raised], Settlement]
    failed: Callable[[BaseException], Raised]
    may_start: Callable[[], bool]


class NotRun(NamedTuple):
    """The handler did not run: its record, or the store's failure, says why."""

    answer: Refusal | Unknown


class Ran(NamedTuple):
    """The handler ran, and how its end was recorded."""

    handled: Handled
    answer: SettleResult | Unknown


@runtime_checkable
class LendingStore(RecordStore, Protocol):
    """A store that runs a handler in a transaction of its own."""

    def lends(self, kind: type) -> bool:
        """Whether a parameter of this class gets what the store lends. Raises TypeError, with the reason, for a class
        that it cannot lend.
        """

    def require_concurrency(self, concurrency: int) -> None:
        """Raise ValueError if that many handlers at once are too many for the store."""

    def run(self, lent: LentRun) -> Ran | NotRun:
        """Run a message's handler, and write its record, in one transaction. Called on the handler's thread."""
