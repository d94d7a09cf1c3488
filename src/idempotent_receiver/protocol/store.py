"""The interface between the protocol and a table: three methods that take many records and return an answer for each.

A store is a compare-and-swap table and decides nothing: `transitions.decide` says whether a key is free, claimed or
completed. A single record is a batch of one. If a store does not know the result, it answers `Unknown`, and the
protocol finds out with a consistent read. An exception from a store is a defect and is not retried.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.transaction.action import Action
from idempotent_receiver.transaction.reads import PlainItem

WRITES_A_CALL = 25
"""Writes per request: DynamoDB's limit for BatchExecuteStatement."""

READS_A_CALL = 100
"""Keys per consistent read: DynamoDB's limit for BatchGetItem."""

WRITES_A_COMMIT = 100
"""Writes per transaction, records and handlers' actions together: DynamoDB's limit for TransactWriteItems."""


class Commit(NamedTuple):
    """A record's change and the handler's own actions, which take effect together or not at all."""

    change: Change
    actions: Sequence[Action]


@dataclass(frozen=True, slots=True)
class Applied:
    """The write took effect."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The write was refused because the table holds a different record: `found`, or None if the store did not say."""

    found: Record | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """It is unknown whether the request took effect, or what the table holds. `why` is for people.

    `retry` is false if a read was refused permanently, for example because a permission is missing.
    """

    why: str
    retry: bool = True


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The write certainly had no effect.

    `retry` says whether it may succeed later, `contended` that another transaction was in the way. `own` says that this
    commit is the cause, not others: the store named one of this commit's actions, or cannot send one.
    """

    why: str
    retry: bool
    contended: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """A transaction was refused because the condition of action `index` (from 0) failed; nothing took effect.

    `stale` says that the data that the handler had read from that action's item has changed.
    """

    index: int
    stale: bool = False


def action_failed(actions: Sequence[Action], met: Mapping[int, PlainItem | None]) -> ActionFailed:
    """The answer if conditions failed. `met` maps the index of each action whose condition failed to its item, if any.

    A stale read comes first: with current data, the handler might not have requested the other actions.
    """
    stale = [index for index, item in met.items() if actions[index].is_stale(item)]
    return ActionFailed(stale[0], stale=True) if stale else ActionFailed(min(met))


Written = Applied | Conflict | Unknown | NotApplied


class RecordStore(Protocol):
    """A table of records by id.

    Implementations must be thread-safe and must bound the duration of a call.

    They turn each of their client's errors into an answer. A refused write is `NotApplied`. A request that timed out,
    was cut off or got an unreadable response is `Unknown`, because it may have taken effect; so is a failed read. An
    exception counts as a defect: the messages or calls concerned fail at once, with the exception's type and location,
    and the request is not retried. So a network error that escapes costs a delivery that `Unknown` would save.
    """

    namespace: str | None
    """Separates one function's keys from other functions' keys in the table. Contains no `#`."""

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Insert each record whose id is not in the table. Ids are distinct; answers are in the records' order."""

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        """Read the current records with consistent reads. Ids are distinct; None where there is no record."""

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write each change whose `expected` attributes still match. Ids are distinct; this never creates a record.

        All attributes of a record are replaced; an item's other attributes are left alone.
        """


@runtime_checkable
class TransactionalStore(RecordStore, Protocol):
    """A store for transactions: it can commit a handler's own writes together with the record's, and read for it."""

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        """Write each commit's change and all its actions, or nothing of that commit. Record ids are distinct.

        The store may group commits into requests, but each has its own answer, and none fails because of another. A
        repeated commit takes effect once. A commit that no transaction may contain is `NotApplied`, and is not sent.
        """

    def get(self, table: str, key: PlainItem) -> PlainItem | Unknown | None:
        """Read the item with this key, in plain values, with a consistent read; None if it does not exist."""
