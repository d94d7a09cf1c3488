"""An exploration's results, and how they are printed."""

import textwrap
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from idempotent_receiver.testing.memory import TableItem

WIDTH = 80


@dataclass(frozen=True)
class Violation:
    """A guarantee that the handler breaks: the problem, its remedy, the story, and the schedule to replay."""

    what: str
    remedy: str
    story: tuple[str, ...]
    replay: str

    def __str__(self) -> str:
        lines = [f"  {number}. {line}" for number, line in enumerate(self.story, 1)]
        again = f'  Replay: explore(..., replay="{self.replay}")'
        remedy = textwrap.fill(f"  Remedy: {self.remedy}.", WIDTH, subsequent_indent="    ", break_on_hyphens=False)
        return "\n".join([self.what, *lines, remedy, again])


class Called(NamedTuple):
    """A fake's calls for one message: the most calls and the most keys in any schedule."""

    name: str
    message: str | None
    times: int
    keys: int


@dataclass
class Exploration:
    """The results of `explore`."""

    schedules: int = 0
    complete: bool = False
    """Whether all schedules that `faults` allows ran; False if `most_schedules`, `replay` or a third violation ended
    the search early.
    """
    violations: list[Violation] = field(default_factory=list)
    effects: dict[str, list[TableItem]] = field(default_factory=dict)
    """Each table's final items in the fault-free run."""
    acknowledged: dict[str, str] = field(default_factory=dict)
    """How each message ends in the fault-free run, by messageId: `completed`, `dead letter` or `failed for good`."""
    calls: list[Called] = field(default_factory=list)
    played: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many times each fault or delay occurred, such as `("commit", "crash-before")`."""
    notes: list[str] = field(default_factory=list)
    """Why messages failed for good in the fault-free run, and what this exploration does not show."""
    unstable: list[str] = field(default_factory=list)
    """Values that vary even between fault-free runs, and were not compared."""

    def check(self) -> None:
        """Raise AssertionError with the story of each violation, if any."""
        __tracebackhide__ = True
        if self.violations:
            raise AssertionError(str(self))

    def __str__(self) -> str:
        ends, found = Counter(self.acknowledged.values()), len(self.violations)
        lines = [f"{found} violation{'s' * (found > 1)}:\n", *(f"{one}\n" for one in self.violations)] if found else []
        lines.append(f"{self.schedules} schedules{'' if self.complete else ', but not all'}")
        lines += [f"messages {end}: {count}" for end, count in ends.items()]
        lines += [f"{name}: {len(items)} items" for name, items in self.effects.items()]
        lines += [f"{one.name} for {one.message}: {_times(one)}" for one in self.calls]
        if self.unstable:
            lines.append(f"not compared, because it varies between runs: {', '.join(self.unstable)}")
        return "\n".join([*lines, *self.notes])


def _times(called: Called) -> str:
    if called.times == 1:
        return "never more than once"
    keys = "without a key" if called.keys == 0 else "same key" if called.keys == 1 else f"{called.keys} keys"
    return f"at least once, at most {called.times} times, {keys}"
