"""A store in a mood: it answers as any store may, and says of some writes and reads less than it knows, or nothing."""

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
    from idempotent_receiver.protocol.store import ActionFailed, Written

WELL, MUTE = "well", "mute"
FAULTS = ["lost after", "lost before", "later", "never", MUTE, "gone after", "gone before"]
fault_sequences = st.lists(st.sampled_from([WELL, WELL, *FAULTS]), min_size=1, max_size=8)
"""How it is when it is asked, one mood a record, and from the start again."""


class Gone(Exception):
    """A store that keeps its word raises nothing; this one does not."""


class FlakyStore:
    """Over a sound one. What a mood makes of an answer is within what the seam allows, but for raising."""

    def __init__(self, store: MemoryStore, fault_sequences: Sequence[str]) -> None:
        self.namespace = store.namespace
        self._store = store
        self._moods = cycle(fault_sequences)

    def insert(self, records: Sequence[Record]) -> list[Any]:
        return [self._written(partial(self._first, self._store.insert, record)) for record in records]

    def replace(self, changes: Sequence[Change]) -> list[Any]:
        return [self._written(partial(self._first, self._store.replace, change)) for change in changes]

    def commit(self, change: Change, actions: Any) -> Any:
        return self._written(lambda: self._store.commit(change, actions))

    def read(self, ids: Sequence[str]) -> list[Any]:
        return [self._read(id) for id in ids]

    def _first(self, write: Callable[[list[Any]], Sequence[Written]], wish: Record | Change) -> Written:
        return write([wish])[0]

    def _read(self, id: str) -> Any:
        match next(self._moods):
            case "gone after" | "gone before":
                raise Gone
            case "lost after" | "lost before" | "later":
                return Unknown("not now")
            case "never":
                return Unknown("not you", retry=False)
            case _:
                return self._store.read([id])[0]

    def _written(self, write: Callable[[], Written | ActionFailed]) -> Any:
        match next(self._moods):
            case "gone before":
                raise Gone
            case "gone after":
                write()
                raise Gone
            case "lost before":
                return Unknown("nobody knows")
            case "lost after":
                write()
                return Unknown("nobody knows")
            case "later":
                return NotApplied("not now", retry=True)
            case "never":
                return NotApplied("not you", retry=False)
            case "mute":
                answer = write()
                return Conflict(None) if isinstance(answer, Conflict) else answer
            case _:
                return write()
