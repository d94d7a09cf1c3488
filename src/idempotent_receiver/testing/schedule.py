"""Schedules: where and how a run departs from the fault-free one. The points where a run can depart are numbered."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SLOW, DEALT = "slow", "dealt"
"""Departures that are not faults: a call so slow that others go first, and different messages for each worker."""

LATE_AFTER = (2, 3, 4)
"""A late write arrives just before the second, third or fourth request after it."""

WRITE = (
    "crash-before",
    "crash-after",
    *(f"crash-late-{number}" for number in LATE_AFTER),
    "lost",
    *(f"late-{number}" for number in LATE_AFTER[:2]),
    "refused",
    "timeout",
)
READ = ("crash-before", "timeout")
SEND = ("crash-before", "crash-after", "lost", "refused")
CALL = ("crash-after",)
ANSWERED_CALL = ("crash-after", "lost")
REFUSED = ("refused",)
REFUSABLE_CALL = (*REFUSED, "refused-each-time")
RAISES = ("raises",)
HANDLER_ENDS = (*RAISES, "fails")
"""The handler raises once, or every time until its message is redriven."""


class Point(NamedTuple):
    """A point where a run can depart from the fault-free one. `kind` names the request or call: `insert`, `commit`,
    `call charge`.
    """

    kind: str
    label: str
    options: Sequence[str]


class Schedule(tuple[tuple[int, str], ...]):
    """Departures in order, each with the number of its point."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(f"{at}:{what}" for at, what in self)

    @classmethod
    def parsed(cls, text: str) -> "Schedule":
        """The schedule from its `str`. Raises ValueError."""
        parts = [part.partition(":") for part in str(text).split(",") if part]
        if not all(at.isdigit() and what for at, _, what in parts):
            raise ValueError(f"replay must be copied from a finding, such as replay='3:crash-after'; it is {text!r}")
        return cls((int(at), what) for at, _, what in parts)

    def extended(self, points: Sequence[Point], faults: int, delays: int) -> Iterator["Schedule"]:
        """Every schedule that adds one later departure to this schedule."""
        spent = [what for _, what in self]
        slow = spent.count(SLOW)
        failed = len(spent) - slow - spent.count(DEALT)
        first = self[-1][0] + 1 if self else 0
        for at in range(first, len(points)):
            for what in points[at].options:
                if what == DEALT or (slow < delays if what == SLOW else failed < faults):
                    yield Schedule((*self, (at, what)))


@dataclass
class Decisions:
    """A schedule in progress: the points reached, and the decision at each."""

    schedule: Schedule
    points: list[Point] = field(default_factory=list)
    quiet: bool = False
    """Whether to choose no more departures and count no more points."""

    def __post_init__(self) -> None:
        self._wanted = dict(self.schedule)
        self._delays = 0
        self._refused = False

    def choose(self, kind: str, label: str, offered: Sequence[str]) -> str | None:
        """The departure at this point, or None."""
        if self.quiet:
            return None
        at = len(self.points)
        self.points.append(Point(kind, label, offered))
        chosen = self._wanted.get(at)
        if chosen is None or chosen in offered:
            return chosen
        # An exception here would look like a failure of the handler or the store.
        self._refused = True
        return None

    def delay(self) -> float:
        """Seconds that the next slow call takes, doubled each time so that the last call to wait resumes last."""
        self._delays += 1
        return float(2 ** (self._delays - 1))

    @property
    def diverged(self) -> bool:
        """Whether the handler did not reach the same points as before."""
        return self._refused or any(at >= len(self.points) for at in self._wanted)
