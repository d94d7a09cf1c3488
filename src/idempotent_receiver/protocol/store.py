"""The seam between the protocol and a table: three methods, each for many records at once, with an answer for each.

A store is a compare-and-swap table and nothing more. It decides nothing: `transitions.decide` says whether a key is
free, claimed or done. One record is a batch of one. If a store cannot tell, it answers `Unknown`, and the protocol
finds out by a consistent read. An exception from a store is a defect, and nothing is retried after it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.transaction import Action

WRITES_A_CALL = 25
"""How many writes go into one request: DynamoDB's limit for BatchExecuteStatement."""

READS_A_CALL = 100
"""How many keys go into one consistent read: DynamoDB's limit for BatchGetItem."""

WRITES_A_COMMIT = 100
"""How many writes, of records and of handlers, go into one transaction: DynamoDB's limit for TransactWriteItems."""


class Commit(NamedTuple):
    """A change of a record, and the handler's own actions that take effect with it or not at all."""

    change: Change
    actions: Sequence[Action]


@dataclass(frozen=True, slots=True)
class Applied:
    """The write took effect."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """The write was refused because of what is there: `found`, or None if the store did not say."""

    found: Record | None = None


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody knows whether the request took effect, or what is there; `why` is for people to read.

    `retry` is false if a read was refused for good, such as for a missing permission.
    """

    why: str
    retry: bool = True


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The write certainly took no effect. `retry` tells whether it may succeed later, and `contended` that another
    transaction was in the way. `own` tells that it is this commit's own affair, which says nothing about others: one of
    its actions was named, or cannot be sent.
    """

    why: str
    retry: bool
    contended: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class ActionFailed:
    """A transaction was refused because the condition of action `index` (from 0) failed; nothing took effect."""

    index: int


Written = Applied | Conflict | Unknown | NotApplied


class RecordStore(Protocol):
    """A table of records by id.

    Implementations must be safe to call from several threads, and must bound how long a call may take.

    They turn each of their client's errors into an answer. A write that was refused is `NotApplied`. A request that
    timed out, was cut off or got an unreadable answer is `Unknown`, because it may have taken effect; so is a read that
    failed. An exception counts as a defect: the messages or calls concerned fail at once, with its type and place, and
    nothing is read or sent again for them. So a network error that escapes costs a delivery that `Unknown` would save.
    """

    namespace: str | None
    """What keeps one function's keys apart from those of others in the table. It has no `#`."""

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Put each record where its id has none; distinct ids, the answers in the records' order."""

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        """What is there now, consistently; distinct ids, None where there is nothing."""

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Write each change whose `expected` attributes still stand; distinct ids, never creating a record.

        The attributes of a record are replaced whole; others that an item carries are left alone.
        """


@runtime_checkable
class TransactionalStore(RecordStore, Protocol):
    """A store that can commit a handler's own writes together with the record's."""

    def commit(self, commits: Sequence[Commit]) -> Sequence[Written | ActionFailed]:
        """Write each commit's change and all its actions, or nothing of it; distinct ids of records.

        Which of them share a request is the store's affair: each has an answer of its own, and none fails for
        another's sake. The same commit again takes effect once, however often it is sent. Actions that no transaction
        may hold are `NotApplied`, unsent.
        """
