"""A store whose calls all go one way, by their names: into a network, or to whoever says how they end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class StoreCalls:
    def insert(self, records: Sequence[Any]) -> Any:
        return self.send("insert", records)

    def read(self, ids: Sequence[Any]) -> Any:
        return self.send("read", ids)

    def replace(self, changes: Sequence[Any]) -> Any:
        return self.send("replace", changes)

    def commit(self, commits: Sequence[Any]) -> Any:
        return self.send("commit", commits)

    def send(self, kind: str, parts: Sequence[Any]) -> Any:
        """The answers of a call."""
        raise NotImplementedError
