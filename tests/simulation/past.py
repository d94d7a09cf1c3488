"""Every history of a worker that was ever needed, each played once.

A worker is a function of what it has been told, so what it waits for after a history is remembered and never played
again. A worker that stands at the end of a history is kept for whoever goes on from there, as long as there is room;
for another one it is told everything from the start.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from tests.simulation.held import Event, Held, Setup

if TYPE_CHECKING:
    from tests.simulation.held import Call

MOST_KEPT = 500


class Past:
    """A worker's history, and what the worker waits for after it."""

    __slots__ = (
        "calls",
        "event",
        "local",
        "next",
        "number",
        "opened",
        "parent",
        "receives",
        "replies",
        "response",
        "timeout",
        "woken",
    )

    def __init__(self, number: int, parent: Past | None, event: Event, held: Held) -> None:
        self.number = number
        self.receives = held.receives
        self.parent = parent
        self.event = event
        self.next: dict[Event, Past] = {}
        self.calls: dict[int, Call] = dict(held.calls)
        before = parent.calls if parent is not None else {}
        self.opened = [number for number in self.calls if number not in before]
        """The calls that were not there before."""
        self.woken = held.woken
        self.timeout = held.timeout
        self.local = held.local
        self.response = held.response
        self.replies = held.replies

    def events(self) -> list[Event]:
        """What the worker was told, from the start."""
        told, past = [], self
        while past is not None:
            told.append(past.event)
            past = past.parent
        return told[::-1]


class Pasts:
    """The histories of a setup's workers."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.count = 0
        self.replayed = 0
        """How many workers had to be told everything from the start."""
        self._first: dict[tuple[int, Event], Past] = {}
        self._kept: OrderedDict[Past, Held] = OrderedDict()

    def begun(self, receives: int, event: Event) -> Past:
        """A worker that has only been started."""
        first = (receives, event)
        if first not in self._first:
            self._first[first] = self._played(Held(self.setup, receives), None, event)
        return self._first[first]

    def told(self, past: Past, event: Event) -> Past:
        """The worker after one more event."""
        after = past.next.get(event)
        if after is None:
            held = self._kept.pop(past, None) or self._replayed(past)
            after = past.next[event] = self._played(held, past, event)
        return after

    def _played(self, held: Held, parent: Past | None, event: Event) -> Past:
        held.tell(event)
        self.count += 1
        past = Past(self.count, parent, event, held)
        if past.response is None:
            self._kept[past] = held
            if len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)[1].close()
        return past

    def _replayed(self, past: Past) -> Held:
        self.replayed += 1
        held = Held(self.setup, past.receives)
        for event in past.events():
            held.tell(event)
        return held

    def close(self) -> None:
        """End the workers that were kept."""
        while self._kept:
            self._kept.popitem()[1].close()
