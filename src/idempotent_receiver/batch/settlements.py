"""Group commit: settlements that end close together share a request."""

from collections.abc import Callable
from typing import NamedTuple

from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, Operation, Operations, SettleAnswer, StartExchange
from idempotent_receiver.protocol.store import WRITES_A_CALL
from idempotent_receiver.protocol.transitions import Settlement

LONGEST_WAIT_SECONDS = 0.002
"""How long a settlement may wait for company: less than a round trip, and short against a crash."""


class Waiting(NamedTuple):
    """A settlement that has not been sent, and what is called with its answer."""

    settlement: Settlement
    on_answer: Callable[[SettleAnswer], None]


class Settlements:
    """The settlements that wait for a flush: at 25, 2 ms after the oldest, or in a hurry."""

    def __init__(self, start_exchange: StartExchange) -> None:
        self._start_exchange = start_exchange
        self.waiting: list[Waiting] = []
        self._oldest_seconds: float | None = None

    def add(self, settlement: Settlement, on_answer: Callable[[SettleAnswer], None]) -> None:
        """Let a settlement wait."""
        self.waiting.append(Waiting(settlement, on_answer))

    def flush(self, elapsed_seconds: float, *, hurry: bool) -> None:
        """Send the requests whose time has come; everything in a `hurry`: nothing that could join is under way."""
        oldest = elapsed_seconds if self._oldest_seconds is None else self._oldest_seconds
        overdue = elapsed_seconds - oldest >= LONGEST_WAIT_SECONDS
        while self.waiting and (hurry or overdue or len(self.waiting) >= WRITES_A_CALL):
            taken, self.waiting = self.waiting[:WRITES_A_CALL], self.waiting[WRITES_A_CALL:]
            operations = [Operation(one.settlement, one.settlement.held, one.on_answer) for one in taken]
            self._start_exchange(operations, _answered, SETTLE_RETRIES)
            oldest = elapsed_seconds
        self._oldest_seconds = oldest if self.waiting else None

    def due_in_seconds(self, elapsed_seconds: float) -> float | None:
        """How long after `elapsed_seconds`, when the last flush was, the next must leave; None while nothing waits."""
        oldest = self._oldest_seconds
        return None if oldest is None else oldest + LONGEST_WAIT_SECONDS - elapsed_seconds


def _answered(operations: Operations) -> None:
    for operation in operations:
        operation.context(operation.answer)
