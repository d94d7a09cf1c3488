"""The undisturbed course: what a trial is compared with, and what cannot be compared because it is never the same."""

from collections.abc import Callable, Sequence
from typing import Any

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.testing.calls import Call
from idempotent_receiver.testing.memory import Item
from idempotent_receiver.testing.trial import Trial

TICK_SECONDS = 1.1
"""Longer than what a clock counts in."""


class Baseline:
    """One worker, each message once, one after the other, as `play` plays it each time.

    `unstable` names what differs from one time to the next: an attribute of a table (`orders.created_at`), a container
    of the state, or the arguments of a fake (`charge(...)`). `unrepeatable` says why nothing can be compared, if so.
    """

    def __init__(self, play: Callable[[], Trial]) -> None:
        self._play = play
        self._looked_again = False
        self.unrepeatable: str | None = None
        self.unstable: frozenset[str] = frozenset()
        self.trial = play()
        self._compare(play())

    def look_again(self) -> bool:
        """Play it again a second later, once. Whether it may have changed what is compared."""
        if self._looked_again:
            return False
        self._looked_again = True
        SystemClock().sleep(TICK_SECONDS)
        self._compare(self._play())
        return True

    def _compare(self, other: Trial) -> None:
        """Leave out what varies by itself. What only differs from the first time depends on what was played before."""
        self.unrepeatable = _difference(self.trial, other)
        if self.unrepeatable is not None:
            return
        names = _varying(self.trial, other)
        varying = _varying(other, self._play()) if names else names
        if names - varying:
            SystemClock().sleep(TICK_SECONDS)
            varying |= _varying(other, self._play())
        if names - varying:
            self.unrepeatable = f"{', '.join(sorted(names - varying))} is as it should be only the first time"
        self.unstable |= names


def _difference(one: Trial, other: Trial) -> str | None:
    """What two undisturbed courses differ in other than values."""
    if one.ends != other.ends:
        return f"the messages end as {one.ends} first, and then as {other.ends}"
    for table in sorted(one.tables.keys() | other.tables.keys()):
        here, there = (len(trial.tables.get(table, [])) for trial in (one, other))
        if here != there:
            return f"the table {table} holds {here} items first, and then {there}"
    first, then = ([call.name for call in trial.calls] for trial in (one, other))
    if first != then:
        return f"it calls {', '.join(first) or 'nothing'} first, and then {', '.join(then) or 'nothing'}"
    return None


def _varying(one: Trial, other: Trial) -> frozenset[str]:
    """The attributes, calls and containers whose values differ."""
    attributes = {
        f"{table}.{name}"
        for table, here in one.tables.items()
        for name in {name for item in (*here, *other.tables[table]) for name in item}
        if without(_column(here, name), _column(other.tables[table], name))
    }
    both = zip(one.calls, other.calls, strict=False)
    calls = {arguments_of(here) for here, there in both if here.given != there.given}
    return frozenset(attributes | calls | {name for name in one.state if one.state[name] != other.state[name]})


def arguments_of(call: Call) -> str:
    """What a call's arguments are called where they differ from run to run."""
    return f"{call.name}(...)"


def _column(items: Sequence[Item], name: str) -> list[Any]:
    return [item.get(name) for item in items]


def without(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """What is in `some` more often than in `others`; for what cannot be hashed."""
    left = list(some)
    for other in others:
        if other in left:
            left.remove(other)
    return left
