"""The histories of the workers: each is played once, and its result is cached.

A worker is a function of its history, so what it waits for after a history is recorded and never played again. The
worker itself is kept at the end of its history, as long as there is room. To extend the history of a worker that is no
longer there, a new one replays it from the start.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from tests.simulation.controlled_worker import ControlledWorker, Event
from tests.simulation.setups import Setup

if TYPE_CHECKING:
    from tests.simulation.controlled_worker import Call

MOST_KEPT = 500


class History:
    """A worker's history, and what the worker waits for after it."""

    def __init__(self, number: int, parent: History | None, event: Event, worker: ControlledWorker) -> None:
        self.number = number
        self.receives = worker.receives
        self.variant = worker.variant
        self.parent = parent
        self.event = event
        self.next: dict[Event, History] = {}
        self.calls: dict[int, Call] = dict(worker.calls)
        before = parent.calls if parent is not None else {}
        self.opened = [number for number in self.calls if number not in before]
        """The calls that were not there before."""
        self.woken = worker.woken
        self.timeout = worker.timeout
        self.local = worker.local
        self.response = worker.response
        self.replies = worker.replies
        self.killed_at = worker.killed_at
        self.lost = worker.lost
        self.may_renew = worker.may_renew

    def events(self) -> list[Event]:
        """The events that the worker has received, from the start."""
        events, history = [], self
        while history is not None:
            events.append(history.event)
            history = history.parent
        return events[::-1]


class Histories:
    """The histories of a setup's workers."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.count = 0
        self._first: dict[tuple[int, int, Event], History] = {}
        self._kept: OrderedDict[History, ControlledWorker] = OrderedDict()

    def started(self, receives: int, variant: int, event: Event) -> History:
        first = (receives, variant, event)
        if first not in self._first:
            self._first[first] = self._played(ControlledWorker(self.setup, receives, variant), None, event)
        return self._first[first]

    def extended(self, history: History, event: Event) -> History:
        after = history.next.get(event)
        if after is None:
            worker = self._kept.pop(history, None) or self._replayed(history)
            after = history.next[event] = self._played(worker, history, event)
        return after

    def _played(self, worker: ControlledWorker, parent: History | None, event: Event) -> History:
        worker.resume(event)
        self.count += 1
        history = History(self.count, parent, event, worker)
        if history.response is None and history.lost is None:
            self._kept[history] = worker
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)[1].close()
        return history

    def _replayed(self, history: History) -> ControlledWorker:
        worker = ControlledWorker(self.setup, history.receives, history.variant)
        for event in history.events():
            worker.resume(event)
        return worker

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[1].close()
