"""Messages that were running when a process died: one of them may have killed it. Each runs alone until its handler
ends or its time as a suspect is up.
"""

from idempotent_receiver.clock import Clock

SUSPECTED_LEASES = 2
"""How many leases a message stays a suspect after its backoff: it is redelivered within one, and runs within the next.
"""


class Suspects:
    """The suspects known to a supervisor or a process. Only one thread at a time may change them; any may read them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}

    def keep(self, id: str, seconds: float) -> None:
        """Suspect this message for `seconds` from now; zero ends the suspicion."""
        now = self._clock.monotonic_seconds()
        known = {other: until for other, until in self._until.items() if until > now}
        self._until = {**known, id: now + seconds}

    def left(self) -> dict[str, float]:
        """The seconds remaining for each suspect."""
        now = self._clock.monotonic_seconds()
        return {id: until - now for id, until in self._until.items() if until > now}

    def __contains__(self, id: object) -> bool:
        """Whether this message is a suspect."""
        return id in self.left()

    def __bool__(self) -> bool:
        """Whether there are any suspects."""
        return bool(self.left())
