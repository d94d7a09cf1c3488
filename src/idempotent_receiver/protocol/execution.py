"""The record of a workflow execution, which outlives the worker that claimed its key.

`hand_over` gives the record to the execution, with a lease as long as the execution may take. Until then the record
keeps the `input`, so that any worker that finds it orphaned can start the execution. A `Conclusion` records the
execution's end without a claim: it names the execution, not a version, and the record must still be in progress.
"""

from collections.abc import Collection
from typing import NamedTuple

from idempotent_receiver.protocol.answers import ClaimLost, Settled, SettleResult
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Change, Record, Status
from idempotent_receiver.protocol.transitions import Attributes, Claimed, Settlement, settlement


class Conclusion(NamedTuple):
    """Records how a workflow execution ended, without a claim.

    The record must be in progress, with this `execution` or none yet: an execution is named after its key.
    `revises` is the version of a FAILED record that may be replaced as well, once the reported problem is fixed.
    """

    id: str
    execution: str
    outcome: Attributes
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    revises: str | None = None

    def step(
        self, seen: Record | None, sent_versions: Collection[str], now_ms: int, version: str
    ) -> Change | SettleResult:
        """The write that records the execution's end, or the answer if there is nothing to write."""
        if seen is None or not self._open(seen):
            return Settled(seen) if seen is not None and seen.version in sent_versions else ClaimLost(seen)
        held = seen._replace(execution=self.execution)
        return Settlement(held, self.outcome, self.retention_seconds, seen).change(now_ms, version)

    def _open(self, seen: Record) -> bool:
        if seen.unreadable is not None:
            return False
        if seen.status == Status.FAILED:
            return self.revises is not None and seen.version == self.revises
        return seen.status == Status.INPROGRESS and seen.execution in (None, self.execution)

    def applied(self, change: Change) -> Settled:
        """The execution's end is recorded."""
        return Settled(change.new)


def hand_over(held: Claimed, execution: str, lease_until_ms: int) -> Settlement:
    """Hand the key over to a workflow execution until `lease_until_ms` (epoch)."""
    lease: Attributes = {"execution": execution, "in_progress_expiration": lease_until_ms}
    return settlement(held, lease)
