"""A store that follows a script, and ways to ask it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.exchange import Operation, ask
from idempotent_receiver.protocol.record import Change, Record, Unread, attributes
from idempotent_receiver.protocol.store import Commit, NotApplied, Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed
from tests.manual_clock import START_MS, ManualClock
from tests.many_operations import run_to_completion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SECOND = 1000


class Script:
    """A store in memory whose calls follow a script, one entry a call; None is the memory's own answer.

    An entry is an answer for each record of the call, or an exception to raise; `after(entry)` lets the call take
    effect first.
    """

    namespace = None

    def __init__(self, *entries: Any) -> None:
        self.memory = MemoryStore()
        self.entries = list(entries)
        self.calls: list[tuple[str, Any]] = []

    def insert(self, records: Sequence[Record]) -> Any:
        return self._call("insert", records, lambda: self.memory.insert(records))

    def read(self, ids: Sequence[str]) -> Any:
        return self._call("read", ids, lambda: self.memory.read(ids))

    def replace(self, changes: Sequence[Change]) -> Any:
        return self._call("replace", changes, lambda: self.memory.replace(changes))

    def commit(self, commits: Sequence[Commit]) -> Any:
        return self._call("commit", commits, lambda: self.memory.commit(commits))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]

    def _call(self, name: str, argument: Any, act: Callable[[], Any]) -> Any:
        self.calls.append((name, argument))
        entry = self.entries.pop(0) if self.entries else None
        if entry is None:
            return act()
        if isinstance(entry, after):
            act()
            entry = entry.entry
        if isinstance(entry, BaseException):
            raise entry
        return entry


@dataclass
class after:  # noqa: N801  # reads like a word: `after([Unknown("time-out")])`
    """The call takes effect and gets this answer."""

    entry: Any


THROTTLED = NotApplied("throttled", retry=True)
CONTENDED = NotApplied("another transaction was in the way", retry=True, contended=True)
DENIED = NotApplied("access denied", retry=False)
LOST = Unknown("the answer was lost")


def deadline(seconds: float = 30, clock: ManualClock | None = None) -> Deadline:
    return Deadline.after(ManualClock() if clock is None else clock, int(seconds * SECOND))


def claim(id: str = "k") -> Claim:
    return Claim(id=id, fingerprint="ours", owner="me", lease_until_ms=START_MS + 33_000)


def existing(status: str, **changes: Any) -> Record:
    held = {"version": "theirs", "attempts": 1, "expiration": START_MS // 1000 + 60, "owner": "them"} | changes
    return Record(id="k", status=status, **held)


def there(store: Script, seen: Record | None) -> None:
    if seen is not None:
        store.memory.items[seen.id] = dict(attributes(seen))


def ask_one(store: Script, transition: Any, assumed: Record | Unread | None = None, **options: Any) -> Any:
    return ask(transition, assumed, store, options.pop("by", deadline()), **options)


def ask_many(store: Script, *requests: tuple[Any, Any], **options: Any) -> list[Any]:
    """The answers to transitions, each with what it may assume."""
    return run_to_completion([Operation(*each) for each in requests], store, options.pop("by", deadline()), **options)


def claimed(store: Script, id: str = "k") -> Claimed:
    answer = ask_one(store, claim(id))
    assert isinstance(answer, Claimed)
    store.calls.clear()
    return answer
