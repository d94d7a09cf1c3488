"""Renews leases while handlers run or messages are sent, and kills this process before a lease that it failed to renew
can end.

The process that holds a claim must be dead when the lease ends; a kernel timer ensures this. The timer is armed before
a claim is sent, and rearmed whenever the earliest lease end changes. Lease ends here are counted from just before each
write was sent, so they are earlier than those in the table.

Renewals and settlements replace the same record from two threads. Each renewal's version is therefore noted before it
is sent, so that a settlement can replace it. A claim being settled is no longer renewed; a renewal already in progress
may then be refused without harm.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.protocol.answers import ClaimLost, Settled, SettleResult
from idempotent_receiver.protocol.exchange import CLAIM_RETRIES, Operation, exchange
from idempotent_receiver.protocol.record import Change, Record
from idempotent_receiver.protocol.renewal import Renewal
from idempotent_receiver.protocol.store import RecordStore, Unknown, Written
from idempotent_receiver.protocol.transitions import Claimed

RENEWALS_A_LEASE = 3


def shortest_lease_seconds(store: RecordStore, margin_seconds: float) -> float:
    """The shortest lease that leaves time to renew it in this store: three requests plus the margin.

    For a store with a boto3 client, the client's timeouts and number of attempts determine it.
    """
    config: Any = getattr(getattr(getattr(store, "client", None), "meta", None), "config", None)
    if config is None:
        return margin_seconds
    retries = config.retries or {}
    attempts = retries.get("total_max_attempts") or retries.get("max_attempts", 4) + 1
    return float(RENEWALS_A_LEASE * attempts * (config.connect_timeout + config.read_timeout) + margin_seconds)


class LeaseTimer(Protocol):
    """A timer that kills this process, such as `process_end.Timer`."""

    def arm(self, seconds: float) -> None:
        """Kill the process after `seconds`. Replaces any earlier setting."""

    def disarm(self) -> None:
        """Cancel the timer."""


Lost = Callable[[str, str], None]
"""Called with the record's id and the reason when a lease is lost while the handler runs. Does not return."""


@dataclass(slots=True)
class Held:
    """A claim and its lease: the latest record known to be stored, and the versions that renewals have sent."""

    batch: object
    claimed: Claimed
    ends_seconds: float
    renewed: set[str] = field(default_factory=set)

    @property
    def record(self) -> Record:
        """The latest record known to be stored."""
        return self.claimed.record


class Leases:
    """The leases of one process. Thread-safe.

    Several batches may claim one key at the same time, for a redelivered message or for two messages with the same key.
    The answer to one batch says nothing about another batch's claim.
    """

    def __init__(
        self,
        store: RecordStore,
        clock: Clock,
        timer: LeaseTimer,
        on_lost: Lost,
        *,
        lease_seconds: float,
        margin_seconds: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._timer = timer
        self._on_lost = on_lost
        self._lease_seconds = lease_seconds
        self._margin_seconds = margin_seconds
        self._claiming: dict[tuple[object, str], float] = {}
        self._held: dict[str, Held] = {}
        self._armed_for: float | None = None
        self._lock = threading.RLock()
        self.renewals = 0
        """How many leases have been renewed."""

    @property
    def renewal_seconds(self) -> float:
        """The interval at which `renew` must be called."""
        return self._lease_seconds / RENEWALS_A_LEASE

    def claiming(self, ids: Iterable[str], batch: object = None) -> None:
        """Note that claims are about to be sent: the process must be dead before their leases end."""
        with self._lock:
            ends = self._clock.monotonic_seconds() + self._lease_seconds
            self._claiming |= {(batch, id): ends for id in ids}
            self._arm()

    def claimed(self, claimed: Claimed, batch: object = None) -> Claimed:
        """Renew this claim's lease from now on."""
        with self._lock:
            id = claimed.record.id
            if id in self._held:
                self._on_lost(id, "another batch in this process has claimed it")
            held = Held(batch, claimed, self._claiming.pop((batch, id)), set(claimed.renewed))
            self._held[id] = held
            self._arm()
            return replace(claimed, renewed=held.renewed)

    def not_claimed(self, id: str, batch: object = None) -> None:
        """Note that the claim's handler will not run, even if the claim succeeded."""
        with self._lock:
            self._claiming.pop((batch, id), None)
            self._arm()

    def settling(self, claimed: Claimed) -> Claimed:
        """Stop renewing this claim, which is about to be settled. Returns the claim with its latest record."""
        with self._lock:
            held = self._held.get(claimed.record.id)
            if held is None or held.renewed is not claimed.renewed:
                return claimed  # already being settled, and another batch may have claimed the key since
            del self._held[claimed.record.id]
            self._arm()
            return replace(claimed, record=held.record)

    def announced(self, claimed: Claimed, version: str) -> Claimed:
        """Note a version that the record gets while its lease is renewed: a renewal may replace it, and keeps what it
        recorded.
        """
        with self._lock:
            held = self._held.get(claimed.record.id)
            if held is None or held.renewed is not claimed.renewed:
                return claimed  # already being settled
            held.renewed.add(version)
            return replace(claimed, record=held.record)

    def resumed(self, claimed: Claimed, batch: object = None) -> Claimed | None:
        """Renew this claim's lease from now on: its handler is about to run again, or its messages to be sent. Returns
        None if the next renewal might come too late.
        """
        with self._lock:
            left_ms = (claimed.record.lease_until_ms or 0) - self._clock.epoch_ms()
            left_seconds = min(left_ms / 1000, self._lease_seconds)
            if left_seconds <= self.renewal_seconds + self._margin_seconds:
                return None
            self._claiming[batch, claimed.record.id] = self._clock.monotonic_seconds() + left_seconds
            return self.claimed(claimed, batch)

    def ended(self, batch: object) -> None:
        """Note that this batch starts no more handlers. Claims of handlers still running are lost: nothing would settle
        them.
        """
        with self._lock:
            for id in [id for whose, id in self._claiming if whose is batch]:
                self.not_claimed(id, batch)
            for id in [id for id, held in self._held.items() if held.batch is batch]:
                self._on_lost(id, "its batch has failed")

    def renew(self) -> None:
        """Renew all leases once. Reports each lost lease, unless its claim is being settled."""
        with self._lock:
            due = list(self._held.values())
        if not due:
            return
        sent_seconds = self._clock.monotonic_seconds()
        left = min(held.ends_seconds for held in due) - self._margin_seconds - sent_seconds
        deadline = Deadline.after(self._clock, int(max(0.0, left) * 1000))
        announcing = _Announcing(self._store, {held.record.id: held.renewed for held in due})
        pending = [self._operation(held, sent_seconds) for held in due]
        while pending:
            sent = pending
            pending = list(exchange(pending, announcing, deadline, max_retries=CLAIM_RETRIES).pending)
            for operation in sent:
                if operation.answer is not None:
                    operation.on_done(operation)

    def _operation(self, held: Held, sent_seconds: float) -> Operation[SettleResult]:
        lease_ms, retention_seconds = int(self._lease_seconds * 1000), held.claimed.claim.retention_seconds
        renewal = Renewal(held.record, lease_ms, retention_seconds, held.renewed)
        return Operation(renewal, held.record, partial(self._renewed, held, sent_seconds))

    def _renewed(self, held: Held, sent_seconds: float, operation: Operation[SettleResult]) -> None:
        with self._lock:
            if self._held.get(held.record.id) is not held:
                return  # being settled, or already settled
            match operation.answer:
                case Settled(record):
                    held.claimed = replace(held.claimed, record=record)
                    held.ends_seconds = sent_seconds + self._lease_seconds
                    self.renewals += 1
                    self._arm()
                case ClaimLost():
                    self._on_lost(held.record.id, "another worker has taken it over, or its record is gone")
                case Unknown():
                    pass  # the next renewal retries; the timer is armed

    def _arm(self) -> None:
        ends = [*self._claiming.values(), *(held.ends_seconds for held in self._held.values())]
        earliest = min(ends, default=None)
        if earliest == self._armed_for:
            return
        if earliest is None:
            self._timer.disarm()
        else:
            self._timer.arm(earliest - self._margin_seconds - self._clock.monotonic_seconds())
        self._armed_for = earliest


class _Announcing:
    """A store for renewals that notes each version before sending it, so that a settlement can find it."""

    def __init__(self, store: RecordStore, renewed: Mapping[str, set[str]]) -> None:
        self.namespace = store.namespace
        self._store = store
        self._renewed = renewed

    def insert(self, records: Sequence[Record]) -> Sequence[Written]:
        """Never called: renewals only replace records."""
        raise AssertionError(records)

    def read(self, ids: Sequence[str]) -> Sequence[Record | Unknown | None]:
        """Read the current records."""
        return self._store.read(ids)

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        """Note the new versions, then replace the records."""
        for change in changes:
            self._renewed[change.new.id].add(str(change.new.version))
        return self._store.replace(changes)
