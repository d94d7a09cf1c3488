"""Schedules: where a run departs from the undisturbed one, and how. A handler's calls are numbered as they come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

SLOW, DEALT = "slow", "dealt"
"""What costs no fault: a call that takes so long that the others go first, and each worker with messages of its own."""

LATE_AFTER = (2, 3, 4)
"""Before which of the later requests a write arrives that was under way when its worker died."""

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
"""Once, or each time until its message is redriven."""


class Point(NamedTuple):
    """A place where something may happen. `kind` is what it is the place of: `insert`, `commit`, `call charge`."""

    kind: str
    label: str
    options: Sequence[str]


class Schedule(tuple[tuple[int, str], ...]):
    """What happens at which point, in order."""

    __slots__ = ()

    def __str__(self) -> str:
        return ",".join(f"{at}:{what}" for at, what in self)

    @classmethod
    def parsed(cls, text: str) -> "Schedule":
        """The schedule that `str` has written. Raises ValueError."""
        parts = [part.partition(":") for part in str(text).split(",") if part]
        if not all(at.isdigit() and what for at, _, what in parts):
            raise ValueError(f"replay is what a story ends with, such as replay='3:crash-after'; it is {text!r}")
        return cls((int(at), what) for at, _, what in parts)

    def extended(self, points: Sequence[Point], faults: int, delays: int) -> Iterator["Schedule"]:
        """Every schedule that goes on as this one does, and departs once more, later."""
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
    """A schedule under way: the points that were reached, and what is decided at each."""

    schedule: Schedule
    points: list[Point] = field(default_factory=list)
    quiet: bool = False
    """Whether nothing goes wrong any more, and no point counts."""

    def __post_init__(self) -> None:
        self._wanted = dict(self.schedule)
        self._delays = 0
        self._refused = False

    def choose(self, kind: str, label: str, offered: Sequence[str]) -> str | None:
        """What happens here; None for what happens where nothing goes wrong."""
        if self.quiet:
            return None
        at = len(self.points)
        self.points.append(Point(kind, label, offered))
        chosen = self._wanted.get(at)
        if chosen is None or chosen in offered:
            return chosen
        # Raised here it would only be a failure of the handler, or of the store.
        self._refused = True
        return None

    def delay(self) -> float:
        """How many seconds the next slow call takes: longer each time, so that who waits last goes on last."""
        self._delays += 1
        return float(2 ** (self._delays - 1))

    @property
    def diverged(self) -> bool:
        """Whether the handler did not come to the points that it came to before."""
        return self._refused or any(at >= len(self.points) for at in self._wanted)
