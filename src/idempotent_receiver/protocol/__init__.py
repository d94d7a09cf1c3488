"""The state transitions of a key, and the interface to the table that holds its record. Public, for custom stores."""

from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.protocol.store import (
    ActionFailed,
    Applied,
    Commit,
    Conflict,
    NotApplied,
    RecordStore,
    TransactionalStore,
    Unknown,
    Written,
)
from idempotent_receiver.transaction.action import Action

__all__ = [
    "Action", "ActionFailed", "Applied", "Change", "Commit", "Conflict", "NotApplied", "Record", "RecordStore",
    "Status", "TransactionalStore", "Unknown", "Written",
]  # fmt: skip
