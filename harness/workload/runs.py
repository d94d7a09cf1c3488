"""Runs of the handler, and deliveries, according to the log of a run. Pure.

A run holds its key from its start until its lease ends or its claim is settled. The settlement time is when DynamoDB
was asked for the applied write, if a proxy watched the writes; otherwise it is the end of the handler's transaction. A
worker frozen beyond its lease may still start what it had decided to; only the fence keeps it from doing harm, so its
late start is counted. `harness/checker.py` judges whether all this is allowed.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from harness.workload.evidence import Delivery, End, Freeze, Start, Write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from harness.workload.evidence import Line

Key = TypeVar("Key")
Kept = TypeVar("Kept")


def grouped(pairs: Iterable[tuple[Key, Kept]]) -> dict[Key, list[Kept]]:
    """The values by key, in order."""
    found: dict[Key, list[Kept]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The log, and what follows from it. `slack_ms`: how far the clocks of the handlers' log and the consumer may
    differ.
    """

    log: Sequence[Line]
    names: Mapping[str, str]
    """The messages' names by key."""
    protected: bool
    slack_ms: int

    def name_of(self, key: str) -> str:
        """The message's name, by its key or by its name."""
        return self.names.get(key, key)

    def all(self, kind: type[Kept]) -> list[Kept]:
        return [line for line in self.log if isinstance(line, kind)]

    @cached_property
    def starts(self) -> dict[str, list[Start]]:
        return grouped((self.name_of(start.name), start) for start in self.all(Start))

    @cached_property
    def late_starts(self) -> frozenset[Start]:
        """Runs that a frozen worker began after its own lease."""
        frozen = {line.worker for line in self.all(Freeze)}
        return frozenset(s for s in self.all(Start) if s.at_ms >= s.lease_until_ms and s.worker in frozen)

    @cached_property
    def _settled(self) -> dict[tuple[str, str], list[int]]:
        """When a worker's claim of a message was settled."""
        writes = self.all(Write) if self.protected else []
        settled = [line for line in writes if line.move != "claim"] if writes else self.all(End)
        return grouped(((line.worker, self.name_of(line.name)), line.at_ms) for line in settled)

    def _held_until_ms(self, start: Start) -> int:
        settled = self._settled.get((start.worker, self.name_of(start.name)), [])
        return min([start.lease_until_ms - self.slack_ms, *(at_ms for at_ms in settled if at_ms >= start.at_ms)])

    @cached_property
    def taken_over(self) -> int:
        """Runs of messages that another worker had begun and never settled, after its lease ended."""
        return sum(
            before.worker != start.worker
            and start.at_ms >= self._held_until_ms(before) == before.lease_until_ms - self.slack_ms
            for before, start in self._pairs()
        )

    @cached_property
    def retried(self) -> int:
        failed = {(end.worker, end.name) for end in self.all(End) if not end.ok}
        return sum((before.worker, before.name) in failed for before, _ in self._pairs())

    def _pairs(self) -> Iterator[tuple[Start, Start]]:
        for starts in self.starts.values():
            yield from itertools.pairwise(starts)

    @cached_property
    def _completed_ms(self) -> dict[str, int]:
        """When DynamoDB had completed a message's record, if a proxy watched."""
        found: dict[str, int] = {}
        for line in self.all(Write):
            if line.move == "complete":
                found.setdefault(self.name_of(line.name), line.done_ms)
        return found

    @cached_property
    def duplicates(self) -> int:
        """Deliveries of messages already done, after which no handler started."""
        return sum(self._done_by(line) and not self._started_by(line) for line in self.all(Delivery))

    def _done_by(self, line: Delivery) -> bool:
        return line.done or self._completed_ms.get(self.name_of(line.name or ""), line.at_ms) < line.at_ms

    def _started_by(self, line: Delivery) -> bool:
        return any(start.worker == line.worker and start.at_ms >= line.at_ms for start in self._starts_of(line))

    @cached_property
    def found_in_progress(self) -> int:
        """Deliveries of messages that another worker was handling, after which no handler started."""
        return sum(
            any(start.at_ms <= line.at_ms < self._held_until_ms(start) for start in self._starts_of(line))
            and not self._started_by(line)
            for line in self.all(Delivery)
        )

    def _starts_of(self, line: Delivery) -> Sequence[Start]:
        return self.starts.get(self.name_of(line.name or ""), ())
