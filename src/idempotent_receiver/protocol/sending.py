"""Transitions of a SENDING record: taking it over, keeping its progress, stopping with something left, and marking it
COMPLETED.

Only its holder sends a record's messages and makes its calls. Whoever finds the record after its lease takes it over
first, so that the holder before can no longer change it.
"""

from collections.abc import Collection
from typing import NamedTuple

from idempotent_receiver.protocol.answers import Claimable, Unsent
from idempotent_receiver.protocol.charges import NO_CHARGE, Charged, charged_of, on_claim
from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.protocol.transitions import (
    Attributes,
    Claim,
    ClaimAnswer,
    Claimed,
    Settlement,
    completed,
    decide,
    expiration_of,
    settlement,
)
from idempotent_receiver.transaction.outbox import without_messages


class TakeOver(NamedTuple):
    """Takes over a SENDING record after its lease, for the owner and the lease of `claim`. No attempt is counted."""

    claim: Claim

    @property
    def id(self) -> str:
        """The record's id."""
        return self.claim.id

    def step(
        self, seen: Record | None, sent_versions: Collection[str], now_ms: int, version: str
    ) -> Change | Claimable | ClaimAnswer:
        """The write that takes the record over, or the answer if it is not SENDING, or its lease is live."""
        answer = decide(seen, self.claim, sent_versions, now_ms)
        return self._change(answer.record, now_ms, version) if isinstance(answer, Unsent) else answer

    def _change(self, seen: Record, now_ms: int, version: str) -> Change:
        """Everything but version, lease, expiration, owner and count stays, above all the messages."""
        claim, until_ms = self.claim, self.claim.lease_at(now_ms)
        taken = seen._replace(
            version=version,
            in_progress_expiration=until_ms,
            expiration=expiration_of(now_ms, claim.retention_seconds, until_ms),
            owner=claim.owner,
            charged=on_claim(seen, claim.allowance, alone=claim.alone).text(version),
        )
        return Change(taken, seen)

    def applied(self, change: Change) -> Claimed:
        """The record is taken over."""
        return Claimed(change.new, self.claim, change.seen)


def stop(sending: Claimed, outbox: str, now_ms: int, charged: Charged = NO_CHARGE) -> Settlement:
    """Something is left to send or to call, and this delivery does no more: keep what is left of the outbox, end the
    lease and remove the owner, and count what it `charged`. Nothing else changes.
    """
    return _keep(sending, outbox, now_ms, None, charged)


def checkpoint(sending: Claimed, outbox: str, now_ms: int, version: str) -> Settlement:
    """Keep what is left of the outbox, because this delivery goes on: under the lease that a claim would get now. The
    version is set in advance, so that whoever else writes for this claim can know it.
    """
    record = sending.record
    kept = _keep(sending, outbox, sending.claim.lease_at(now_ms), record.owner, charged_of(record))
    return kept._replace(version=version)


def _keep(sending: Claimed, outbox: str, lease_until_ms: int, owner: str | None, charged: Charged) -> Settlement:
    record = sending.record
    left: Attributes = {
        "status": Status.SENDING.value,
        "outbox": outbox,
        "in_progress_expiration": lease_until_ms,
        "owner": owner,
        "error": record.error,
        "input": record.input,
    }
    return settlement(sending, left, charged)


def mark(sending: Claimed, outbox: str | None = None) -> Settlement:
    """A SENDING record's messages and calls are done, or operators gave them up: COMPLETED, without them. What was
    given up stays in the record. `outbox` says what was given up now; by default, it is the record's own.
    """
    left = without_messages(sending.record.outbox if outbox is None else outbox)
    return settlement(sending, {**completed(sending.record.data), "outbox": left})
