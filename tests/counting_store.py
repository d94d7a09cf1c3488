"""A store that records its requests, and can fail or run a callback before each."""

from __future__ import annotations

from typing import TYPE_CHECKING

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol.store import Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver.protocol.record import Change, Record
    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written


class CountingStore(MemoryStore):
    """A `MemoryStore` that records the names of its requests, in order. `before` is called with each name first."""

    def __init__(self, namespace: str | None = "tests") -> None:
        super().__init__(namespace)
        self.asked: list[str] = []
        self.before: Callable[[str], None] = lambda name: None
        self.down: set[str] = set()
        """The requests that currently get no answer and have no effect."""

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """As the store."""
        return self._down("insert", len(records)) or super().insert(records)

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        """As the store."""
        return self._down("read", len(ids)) or super().read(ids)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """As the store."""
        return self._down("replace", len(changes)) or super().replace(changes)

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        """As the store."""
        return self._down("commit", len(commits)) or super().commit(commits)

    def _down(self, name: str, count: int) -> list[Unknown]:
        self.asked.append(name)
        self.before(name)
        return [Unknown(f"{name} is down")] * count if name in self.down else []
