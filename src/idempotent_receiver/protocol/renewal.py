"""Lease renewal for runs that outlast their first lease.

Outside Lambda, no platform ends a process at its deadline. So leases are short, and a `Renewal` extends them while the
handler runs. Renewals and the settlement replace the same record from two threads: the settlement learns each version
before the renewal that writes it is sent, and may replace any of these versions.
"""

from collections.abc import Collection
from typing import NamedTuple

from idempotent_receiver.protocol.answers import ClaimLost, Settled, SettleResult
from idempotent_receiver.protocol.charges import carried
from idempotent_receiver.protocol.record import Change, Record, unchanged
from idempotent_receiver.protocol.transitions import expiration_of


class Renewal(NamedTuple):
    """Extends the claim's lease to `lease_ms` from now. `held` is the record that the claim or latest renewal wrote.

    `renewed` are the versions of all renewals and checkpoints: one whose answer never came may have taken effect, or
    still do so.
    """

    held: Record
    lease_ms: int
    retention_seconds: int
    renewed: Collection[str] = ()

    @property
    def id(self) -> str:
        """The record's id."""
        return self.held.id

    def step(
        self, seen: Record | None, sent_versions: Collection[str], now_ms: int, version: str
    ) -> Change | SettleResult:
        """The write that renews the lease, or the answer if there is nothing to write."""
        if seen is not None and seen.version in sent_versions:
            return Settled(seen)
        standing = seen if seen is not None and seen.version in self.renewed else self.held
        if not unchanged(seen, standing):
            return ClaimLost(seen)
        until_ms = now_ms + self.lease_ms
        expiration = expiration_of(now_ms, self.retention_seconds, until_ms)
        # Of what stands, because a checkpoint may have recorded an outbox's progress.
        renewed = standing._replace(
            version=version,
            in_progress_expiration=until_ms,
            expiration=expiration,
            charged=carried(standing, version),
        )
        return Change(renewed, standing)

    def applied(self, change: Change) -> Settled:
        """The lease is renewed."""
        return Settled(change.new)
