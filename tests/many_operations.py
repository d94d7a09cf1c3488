"""Many transitions at once, brought to their answers as a batch does, but on one thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.exchange import CLAIM_RETRIES, Operation, exchange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.clock import Deadline
    from idempotent_receiver.protocol.store import RecordStore


def run_to_completion(
    operations: Sequence[Operation[Any]], store: RecordStore, deadline: Deadline, *, max_retries: int = CLAIM_RETRIES
) -> list[Any]:
    """The answer of each operation."""
    pending = operations
    while pending:
        pending = exchange(pending, store, deadline, max_retries=max_retries)
    return [operation.answer for operation in operations]
