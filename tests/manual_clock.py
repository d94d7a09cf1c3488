"""A clock that a test holds in its hand: it moves only when somebody sleeps, or when the test says so."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

START_MS = 1_800_000_000_000


class ManualClock:
    """A `Clock` whose versions are counted, whose jitter is fixed, and whose sleeps are recorded."""

    _versions = count(1)
    """Shared by all: no two clocks draw the same."""

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
        """Let that much time pass at once."""
        self.sleeps.append(seconds)
        self.seconds += seconds

    def fraction(self) -> float:
        """Always the same."""
        return self._fraction

    def versions(self, wanted: int) -> Sequence[str]:
        """Numbers that nobody ever drew before."""
        return [f"v{next(self._versions)}" for _ in range(wanted)]
