"""How the runs of each record have ended, and how often it has expired since it was completed."""

from __future__ import annotations

from collections import Counter
from typing import Any

Item = dict[str, Any]


class Ends:
    def __init__(self) -> None:
        self.results: dict[str, Item] = {}
        """The records as they were last completed, by their ids; also of those that have expired since."""
        self.expired: Counter[str] = Counter()
        """How often each record has expired after it was completed: so often its effect may be there once more."""
        self.failures: set[tuple[str, str]] = set()
        """The invocations and ids whose failures have been recorded."""

    def written(self, before: Item | None, after: Item | None, worker: str) -> None:
        self.deleted(before)
        if after is not None and after["status"] == "FAILED":
            self.failures.add((worker, after["id"]))
        if after is not None and after["status"] == "COMPLETED":
            self.results[after["id"]] = after

    def deleted(self, item: Item | None) -> None:
        """A record is replaced or deleted. Once it is completed, only one that has expired may be (I3)."""
        if item is not None and item["status"] == "COMPLETED":
            self.expired[item["id"]] += 1
