"""A flaky store: it answers as any store may, but for some writes and reads with less than it knows, or it raises."""

from __future__ import annotations

from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from idempotent_receiver.protocol.store import Conflict, NotApplied, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from idempotent_receiver import MemoryStore
    from idempotent_receiver.protocol.record import Change, Record
    from idempotent_receiver.protocol.store import ActionFailed, Commit, Written
    from idempotent_receiver.transaction.reads import PlainItem

NO_FAULT, NO_RECORD = "none", "no record"
FAULTS = ["lost after", "lost before", "later", "never", NO_RECORD, "raises after", "raises before"]
BEFORE = {"lost before", "later", "never", "raises before"}
"""Those that nothing is written at."""
INSTEAD = {
    "lost before": Unknown("unknown result"),
    "lost after": Unknown("unknown result"),
    "later": NotApplied("not now", retry=True),
    "never": NotApplied("not you", retry=False),
}
fault_sequences = st.lists(st.sampled_from([NO_FAULT, NO_FAULT, *FAULTS]), min_size=1, max_size=8)
"""The faults of its calls, one for each record; they repeat from the start."""


class StoreError(Exception):
    """A correct store never raises; this one does."""


class FlakyStore:
    """A store over a correct one. Its answers are within the store protocol, except when it raises."""

    def __init__(self, store: MemoryStore, faults: Sequence[str]) -> None:
        self.namespace = store.namespace
        self._store = store
        self._faults = cycle(faults)

    def insert(self, records: Sequence[Record]) -> list[Any]:
        return [self._written(partial(self._first, self._store.insert, record)) for record in records]

    def replace(self, changes: Sequence[Change]) -> list[Any]:
        return [self._written(partial(self._first, self._store.replace, change)) for change in changes]

    def commit(self, commits: Sequence[Commit]) -> list[Any]:
        return [self._written(lambda one=one: self._store.commit([one])[0]) for one in commits]  # type: ignore[misc]

    def get(self, table: str, key: PlainItem) -> PlainItem | Unknown | None:
        return self._store.get(table, key)

    def read(self, ids: Sequence[str]) -> list[Any]:
        return [self._read(id) for id in ids]

    def _first(self, write: Callable[[list[Any]], Sequence[Written]], written: Record | Change) -> Written:
        return write([written])[0]

    def _read(self, id: str) -> Any:
        match next(self._faults):
            case "raises after" | "raises before":
                raise StoreError
            case "lost after" | "lost before" | "later":
                return Unknown("not now")
            case "never":
                return Unknown("not you", retry=False)
            case _:
                return self._store.read([id])[0]

    def _written(self, write: Callable[[], Written | ActionFailed]) -> Any:
        fault = next(self._faults)
        answer = None if fault in BEFORE else write()
        if fault.startswith("raises"):
            raise StoreError
        if fault == NO_RECORD and isinstance(answer, Conflict):
            return Conflict(None)
        return INSTEAD.get(fault, answer)
