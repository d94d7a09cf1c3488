"""Many transitions at once, brought to their answers as a batch does, but on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.exchange import CLAIM_RETRIES, Operation, exchange
from idempotent_receiver.protocol.store import Commit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.clock import Deadline
    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import ActionFailed, RecordStore, TransactionalStore, Written
    from idempotent_receiver.transaction.action import Action


def run_to_completion(
    operations: Sequence[Operation[Any]], store: RecordStore, deadline: Deadline, *, max_retries: int = CLAIM_RETRIES
) -> list[Any]:
    """The answer of each operation."""
    pending = operations
    while pending:
        pending = list(exchange(pending, store, deadline, max_retries=max_retries).pending)
    return [operation.answer for operation in operations]


def commit_one(store: TransactionalStore, change: Change, actions: Sequence[Action]) -> Written | ActionFailed:
    """The answer to a commit alone."""
    (answer,) = store.commit([Commit(change, actions)])
    return answer
