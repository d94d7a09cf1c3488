"""The fault-free run, with which every other run is compared, and the values that vary too much to compare."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.testing.calls import Call
from idempotent_receiver.testing.explored_run import ExploredRun
from idempotent_receiver.testing.memory import TableItem
from idempotent_receiver.testing.varying import places

TICK_SECONDS = 1.1
"""Longer than any clock's resolution."""


class Baseline:
    """The fault-free run: one worker handles each message once, in sequence. `run_again` repeats the run.

    `unstable` holds the places that vary between runs. `unrepeatable` says why runs cannot be compared, or is None.
    """

    def __init__(self, run_again: Callable[[], ExploredRun]) -> None:
        self._run_again = run_again
        self._looked_again = False
        self.unrepeatable: str | None = None
        self.unstable: frozenset[str] = frozenset()
        self.run = run_again()
        self._compare(run_again())

    def look_again(self) -> bool:
        """Run once more, a second later. Returns False, without running, if it was called before."""
        if self._looked_again:
            return False
        self._looked_again = True
        SystemClock().sleep(TICK_SECONDS)
        self._compare(self._run_again())
        return True

    def _compare(self, other: ExploredRun) -> None:
        """Exclude values that vary. A value that differs only in the first run depends on earlier runs."""
        self.unrepeatable = _difference(self.run, other)
        if self.unrepeatable is not None:
            return
        names = _varying(self.run, other)
        varying = _varying(other, self._run_again()) if names else names
        if names - varying:
            SystemClock().sleep(TICK_SECONDS)
            varying |= _varying(other, self._run_again())
        if names - varying:
            self.unrepeatable = f"{', '.join(sorted(names - varying))} is correct only the first time"
        self.unstable |= names


def _difference(one: ExploredRun, other: ExploredRun) -> str | None:
    """How two fault-free runs differ, ignoring values."""
    if one.ends != other.ends:
        return f"the messages end as {one.ends} in one run, as {other.ends} in the next"
    for table in sorted(one.tables.keys() | other.tables.keys()):
        here, there = (len(run.tables.get(table, [])) for run in (one, other))
        if here != there:
            return f"the table {table} holds {here} items after one run, {there} after the next"
    first, then = ([call.name for call in run.calls] for run in (one, other))
    if first != then:
        return f"one run calls {', '.join(first) or 'nothing'}; the next calls {', '.join(then) or 'nothing'}"
    return None


def _varying(one: ExploredRun, other: ExploredRun) -> frozenset[str]:
    """The places in tables, state, results and calls that differ."""
    return frozenset().union(
        *(
            places(here, there, name)
            for table in one.tables
            for name, here, there in _rows(table, one.tables[table], other.tables[table])
        ),
        *(places(one.state[name], other.state[name], name) for name in one.state),
        *(places(one.results[id], other.results[id], result_of(id)) for id in one.results),
        *(
            places(here.given, there.given, arguments_of(here))
            for here, there in zip(one.calls, other.calls, strict=False)
        ),
    )


def _rows(
    table: str, here: Sequence[TableItem], there: Sequence[TableItem]
) -> Iterator[tuple[str, TableItem, TableItem]]:
    """Pairs of items that differ between two versions of a table."""
    pairs = zip(subtracted(here, there), subtracted(there, here), strict=True)
    return ((table, *pair) for pair in pairs)


def arguments_of(call: Call) -> str:
    """The path prefix of a call's arguments."""
    return f"{call.name}("


def result_of(id: str) -> str:
    """The place of the handler's result for a message."""
    return f"result of {id}"


def subtracted(some: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The elements of `some`, less one for each equal element of `others`. Elements need not be hashable."""
    left = list(some)
    for other in others:
        if other in left:
            left.remove(other)
    return left
