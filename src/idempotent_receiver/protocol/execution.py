"""What happens to the record of a workflow's execution, which goes on after the worker that claimed its key is gone.

`hand_over` gives the record to the execution, with a lease as long as that may take. Until then the record keeps the
`input`, so that whoever finds it orphaned can start the execution. A `Conclusion` writes the execution's end without a
claim: it names the execution instead of a version, and the record must still be in progress.
"""

from collections.abc import Collection
from typing import NamedTuple

from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Change, Record, Status
from idempotent_receiver.protocol.transitions import (
    Attributes,
    Claimed,
    ClaimLost,
    Settled,
    Settlement,
    SettleResult,
    settlement,
)


class Conclusion(NamedTuple):
    """Writes how a workflow's execution ended, without a claim.

    The record must be in progress, and the execution's or nobody's yet: an execution is named after its key. `revises`
    is the version of a FAILED record that may be replaced too, once what it reports has been put right.
    """

    id: str
    execution: str
    outcome: Attributes
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    revises: str | None = None

    def step(self, seen: Record | None, wrote: Collection[str], now_ms: int, version: str) -> Change | SettleResult:
        """The write that ends the execution's record, or the answer that is there."""
        if seen is None or not self._open(seen):
            return Settled(seen) if seen is not None and seen.version in wrote else ClaimLost(seen)
        held = seen._replace(execution=self.execution)
        return Settlement(held, self.outcome, self.retention_seconds, seen).change(now_ms, version)

    def _open(self, seen: Record) -> bool:
        if seen.unreadable is not None:
            return False
        if seen.status == Status.FAILED:
            return self.revises is not None and seen.version == self.revises
        return seen.status == Status.INPROGRESS and seen.execution in (None, self.execution)

    def applied(self, change: Change) -> Settled:
        """The execution's record has ended."""
        return Settled(change.new)


def hand_over(held: Claimed, execution: str, lease_until_ms: int) -> Settlement:
    """From now on a workflow's execution has the key, until `lease_until_ms` (epoch)."""
    lease: Attributes = {"execution": execution, "in_progress_expiration": lease_until_ms}
    return settlement(held, lease)
