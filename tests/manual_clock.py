"""A clock that a test controls: it advances only when code sleeps or the test changes it."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

START_MS = 1_800_000_000_000


class ManualClock:
    """A `Clock` with numbered versions and fixed jitter that records its sleeps."""

    _versions = count(1)
    """Shared, so that no two clocks draw the same version."""

    def __init__(self, fraction: float = 0.5) -> None:
        self.seconds = 0.0
        self.stepped_seconds = 0.0
        self.sleeps: list[float] = []
        self._fraction = fraction

    def epoch_ms(self) -> int:
        """The wall clock; it may have been stepped."""
        return START_MS + int((self.seconds + self.stepped_seconds) * 1000)

    def monotonic_seconds(self) -> float:
        """The clock that never steps."""
        return self.seconds

    def sleep(self, seconds: float) -> None:
        """Advance the clock at once."""
        self.sleeps.append(seconds)
        self.seconds += seconds

    def fraction(self) -> float:
        """Always the same."""
        return self._fraction

    def versions(self, wanted: int) -> Sequence[str]:
        """New numbers."""
        return [f"v{next(self._versions)}" for _ in range(wanted)]
