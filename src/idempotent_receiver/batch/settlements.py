"""Group commit: settlements that end close together share a request."""

from collections.abc import Callable
from typing import NamedTuple

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, Exchange, Operation, Operations, SettleAnswer
from idempotent_receiver.protocol.store import WRITES_A_CALL
from idempotent_receiver.protocol.transitions import Settlement

LONGEST_WAIT_SECONDS = 0.002
"""How long a settlement may wait for company: less than a round trip, and short against a crash."""


class Waiting(NamedTuple):
    """A settlement that has not been sent, and what is called with its answer."""

    settlement: Settlement
    on_answer: Callable[[SettleAnswer], None]


class Settlements:
    """The settlements that wait for a flush: at 25, 2 ms after the oldest, or when told to hurry."""

    def __init__(self, exchange: Exchange, deadline: Deadline) -> None:
        self._exchange = exchange
        self._deadline = deadline
        self.waiting: list[Waiting] = []
        self._oldest_seconds = 0.0

    def add(self, settlement: Settlement, on_answer: Callable[[SettleAnswer], None]) -> None:
        """Let a settlement wait."""
        if not self.waiting:
            self._oldest_seconds = self._deadline.elapsed_seconds
        self.waiting.append(Waiting(settlement, on_answer))

    def due_in_seconds(self, elapsed_seconds: float) -> float:
        """How long, from `elapsed_seconds` on, until the next flush must leave."""
        if len(self.waiting) >= WRITES_A_CALL:
            return 0.0
        return max(0.0, self._oldest_seconds + LONGEST_WAIT_SECONDS - elapsed_seconds)

    def flush(self, elapsed_seconds: float, *, hurry: bool) -> None:
        """Send the requests whose time has come; everything in a `hurry`: nothing that could join is under way."""
        while self.waiting and (hurry or self.due_in_seconds(elapsed_seconds) == 0):
            taken, self.waiting = self.waiting[:WRITES_A_CALL], self.waiting[WRITES_A_CALL:]
            operations = [Operation(one.settlement, one.settlement.held, one.on_answer) for one in taken]
            self._exchange(operations, self._answered, SETTLE_RETRIES)

    def _answered(self, operations: Operations) -> None:
        for operation in operations:
            operation.context(operation.answer)
