"""How the runs of each record have ended: what expired, and "done or dead-lettered, never both"."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.simulation.invariants import Violation

if TYPE_CHECKING:
    Item = dict[str, Any]
    Run = tuple[str, str]
    """An invocation, and the id of a record."""


class Ends:
    """The ends of all runs, in their order."""

    def __init__(self) -> None:
        self.results: dict[str, Item] = {}
        """The records as they were last completed, by their ids; also of those that have expired since."""
        self.expired: Counter[str] = Counter()
        """How often each record has expired after it was completed: so often its effect may be there once more."""
        self.failures: dict[Run, int] = {}
        """When each run's failure was recorded."""
        self._order = itertools.count()
        self._starts: dict[Run, int] = {}
        self._completed: dict[str, int] = {}
        """When the run started by which each record was last completed."""
        self._dead: dict[str, int] = {}
        """When the last failure was recorded of which a dead letter was sent, by the id of the record."""

    def started(self, worker: str, id: str) -> None:
        """A run starts."""
        self._starts[worker, id] = next(self._order)

    def written(self, before: Item | None, after: Item | None, worker: str) -> None:
        """A record changes. Raises Violation (BOTH)."""
        self.deleted(before)
        if after is None:
            return
        id = after["id"]
        if after["status"] == "FAILED":
            self.failures[worker, id] = next(self._order)
        if after["status"] == "COMPLETED":
            self.results[id] = after
            self._completed[id] = self._starts.get((worker, id), -1)
            self._check(worker, id)

    def deleted(self, item: Item | None) -> None:
        """A record is replaced or deleted. Only one that has expired may be, once it is completed (I3)."""
        if item is not None and item["status"] == "COMPLETED":
            self.expired[item["id"]] += 1
            del self._completed[item["id"]]  # what comes from now on is a new message

    def dead_lettered(self, worker: str, id: str) -> None:
        """A dead letter is sent of a failure that this worker has recorded. Raises Violation (BOTH)."""
        self._dead[id] = max(self._dead.get(id, -1), self.failures.get((worker, id), -1))
        self._check(worker, id)

    def _check(self, worker: str, id: str) -> None:
        """BOTH: what is done and dead-lettered was delivered, run and done after that failure was recorded."""
        if self._completed.get(id, 1 << 60) < self._dead.get(id, -1):
            raise Violation("BOTH", f"{id} is done, and {worker} has sent its dead letter of a later failure")
