"""Group commit: settlements that end close together share a request."""

from collections.abc import Callable
from typing import NamedTuple

from idempotent_receiver.clock import Clock
from idempotent_receiver.protocol.exchange import SETTLE_PATIENCE, Ask, Operation, Operations, Unavailable
from idempotent_receiver.protocol.store import WRITES_A_CALL
from idempotent_receiver.protocol.transitions import ClaimLost, Settled, Settlement

LONGEST_WAIT_SECONDS = 0.002
"""How long a settlement may wait for company: less than a round trip, and short against a crash."""

Answer = Settled | ClaimLost | Unavailable
Then = Callable[[Answer], None]


class Waiting(NamedTuple):
    """A settlement that has not been sent, and who wants its answer."""

    settlement: Settlement
    then: Then


class Settling:
    """The settlements that wait for a flush: at 25, 2 ms after the oldest, or when told to hurry."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock
        self._waiting: list[Waiting] = []
        self._oldest_seconds = 0.0
        self._asking = 0

    @property
    def busy(self) -> bool:
        """Whether settlements wait, or answers are on their way."""
        return self._asking > 0 or len(self._waiting) > 0

    def add(self, settlement: Settlement, then: Then) -> None:
        """Let a settlement wait."""
        if not self._waiting:
            self._oldest_seconds = self._clock.monotonic_seconds()
        self._waiting.append(Waiting(settlement, then))

    def due_in_seconds(self) -> float | None:
        """How long until the next flush must leave; None while nothing waits."""
        if not self._waiting:
            return None
        if len(self._waiting) >= WRITES_A_CALL:
            return 0.0
        return max(0.0, self._oldest_seconds + LONGEST_WAIT_SECONDS - self._clock.monotonic_seconds())

    def flush(self, *, hurry: bool) -> None:
        """Send the requests whose time has come; everything in a `hurry`: nothing that could join is under way."""
        while (due := self.due_in_seconds()) is not None and (hurry or due == 0):
            taken, self._waiting = self._waiting[:WRITES_A_CALL], self._waiting[WRITES_A_CALL:]
            courses = [Operation(one.settlement, one.settlement.held, one.then) for one in taken]
            self._asking += len(courses)
            self._ask(courses, self._tell, SETTLE_PATIENCE)

    def _tell(self, courses: Operations) -> None:
        self._asking -= len(courses)
        for course in courses:
            course.about(course.answer)
