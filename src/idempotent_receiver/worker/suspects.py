"""Messages that were running when a process died: one of them may have ended it. Each runs with no other beside it,
until its run has ended or its time is over.
"""

from idempotent_receiver.clock import Clock

SUSPECTED_LEASES = 2
"""For how many leases a message is suspected beyond its backoff: it comes again within one, and runs in the next."""


class Suspects:
    """The suspects that a supervisor or a process knows. One thread at a time may change them, and any may ask."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def keep(self, id: str, seconds: float) -> None:
        """Suspect this message for so long from now on; no more with 0."""
        now = self._clock.monotonic_seconds()
        known = {other: until for other, until in self._until.items() if until > now}
        self._until = {**known, id: now + seconds}

    def left(self) -> dict[str, float]:
        """For how many seconds each still is one."""
        now = self._clock.monotonic_seconds()
        return {id: until - now for id, until in self._until.items() if until > now}

    def __contains__(self, id: object) -> bool:
        """Whether this message is one."""
        return id in self.left()

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.left())
