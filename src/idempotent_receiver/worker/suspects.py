"""Messages that were running when a process died: one of them may have ended it. Each runs alone until its run ends or
its time is up.
"""

from idempotent_receiver.clock import Clock

SUSPECTED_LEASES = 2
"""How many leases a message remains a suspect beyond its backoff: it comes again within one, and runs in the next."""


class Suspects:
    """The suspects that a supervisor or a process knows. Only one thread at a time may change them; any may read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def keep(self, id: str, seconds: float) -> None:
        """Suspect this message for that long from now; zero ends this."""
        now = self._clock.monotonic_seconds()
        known = {other: until for other, until in self._until.items() if until > now}
        self._until = {**known, id: now + seconds}

    def left(self) -> dict[str, float]:
        """The remaining seconds of each suspect."""
        now = self._clock.monotonic_seconds()
        return {id: until - now for id, until in self._until.items() if until > now}

    def __contains__(self, id: object) -> bool:
        """Whether this message is a suspect."""
        return id in self.left()

    def __bool__(self) -> bool:
        """Whether there are any suspects."""
        return bool(self.left())
