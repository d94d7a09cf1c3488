"""The places that the seeds of a long simulation must reach, or else their number means little.

A place is named "where: what". Whoever can bring one about declares it, so that one that was never reached has a name:

    declare("faults", ["claim: throttled", "claim: crash"], excluded={"claim: crash": "here nothing crashes"})

and marks it when it happens: `mark("claim: throttled")`. To mark an undeclared place is an error, and so is to reach an
excluded one: then the reason is wrong. A world asks `wanted("claim")` what it should bring about there more often.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

GROUPS: dict[str, list[str]] = {}
"""The places of each group, in the order of their declaration."""
EXCLUDED: dict[str, str] = {}
"""The places that cannot be reached, and why."""
HINTS: dict[str, tuple[str, str]] = {}
"""What brings about places that are no points, and what worlds have reached in which that may happen."""
_here: set[str] = set()
"""The places that this world has reached."""


class Steer(NamedTuple):
    """What a world is steered by: a place that it is to reach more often, and the seed whose plan it has instead of its
    own, because a world with that plan has been there.
    """

    towards: str | None = None
    like: int | None = None


FREE = Steer()
_steer, _where, _what = FREE, "", ""
"""What this world is steered by, and the parts of its place's name."""


def declare(group: str, places: Iterable[str] = (), *, excluded: Mapping[str, str] | None = None) -> None:
    """Add places that must be reached, and some that cannot be, with the reasons."""
    GROUPS.setdefault(group, []).extend(places)
    EXCLUDED.update(excluded or {})
    unknown = set(excluded or {}) - {place for places in GROUPS.values() for place in places}
    assert not unknown, f"excluded, but not declared: {unknown}"


def mark(place: str) -> None:
    _here.add(place)


def mark_at(wheres: Iterable[str], what: str) -> None:
    """The same thing happens at several points at once."""
    _here.update([f"{where}: {what}" for where in wheres])


def wanted(wheres: Collection[str]) -> str | None:
    """What this world is to bring about more often at one of these points, if anything."""
    return _what if _what and _where in wheres else None


def steered() -> bool:
    """Whether this world is to bring something about more often."""
    return _steer.towards is not None


def planned(seed: int) -> int:
    """The seed of which this world's plan is drawn: its own, unless it is to be like another."""
    return seed if _steer.like is None else _steer.like


@contextmanager
def world(steer: Steer = FREE) -> Iterator[set[str]]:
    """Play one world. What is yielded are the places that it reaches."""
    global _steer, _where, _what  # one world at a time plays in a process
    _here.clear()
    _steer, (_where, _, _what) = steer, (steer.towards or "").rpartition(": ")
    try:
        yield _here
    finally:
        _steer, _where, _what = FREE, "", ""


def declared() -> list[str]:
    return [place for places in GROUPS.values() for place in places if place not in EXCLUDED]


@dataclass
class Reached:
    """How many worlds have reached each place, and the last that did, by its seed and what it was steered by."""

    worlds: Counter[str] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)

    def add(self, places: Iterable[str], seed: int) -> None:
        """Add a world that has reached these places; `seed` is the one that its plan was drawn from."""
        for place in places:
            self.worlds[place] += 1
            self.last[place] = seed

    def merge(self, other: Reached) -> None:
        self.worlds.update(other.worlds)
        self.last |= other.last

    def never(self) -> list[str]:
        return [place for place in declared() if place not in self.worlds]

    def wrong(self) -> list[str]:
        """The excluded and the undeclared places that were reached."""
        return sorted(set(self.worlds) - set(declared()))

    def steer(self, seed: int) -> Steer:
        """What to steer a world by: every second one by its seed alone, the others towards one of the rarest places."""
        places = declared()
        if seed % 2 == 0 or not places:
            return FREE
        places.sort(key=lambda place: (self.worlds[place], place))
        place = Random(f"steered {seed}").choice(places[: 1 + len(places) // 4])
        towards, like = HINTS.get(place, (place, place))
        return Steer(towards, self.last.get(place, self.last.get(like, self._near(place))))

    def _near(self, place: str) -> int | None:
        """A world that was at the same point, and met something else there."""
        where = place.rpartition(": ")[0]
        near = min((one for one in self.last if one.startswith(f"{where}: ")), default=None)
        return None if near is None else self.last[near]

    def report(self) -> list[str]:
        """What was reached, by group, and the names of what never was."""
        lines, never = [], self.never()
        for group, places in GROUPS.items():
            must = [place for place in places if place not in EXCLUDED]
            there = [place for place in must if place in self.worlds]
            rarest = min(there, key=self.worlds.__getitem__, default=None)
            of = f"; the rarest in {self.worlds[rarest]:,} worlds ({rarest})" if rarest is not None else ""
            lines.append(f"  {group}: {len(there)} of {len(must)}{of}")
        lines += [f"  never reached: {place}" for place in never]
        lines += [f"  reached, but {EXCLUDED.get(place, 'not declared')}: {place}" for place in self.wrong()]
        return [f"reached {len(declared()) - len(never)} of {len(declared())} places:", *lines]
