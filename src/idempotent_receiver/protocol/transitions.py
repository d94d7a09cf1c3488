"""Every transition of a key's record. No I/O, clock, randomness or environment here.

**The state.** A key has no record, or one that is INPROGRESS (a worker has a claim with a lease), SENDING (the effect
took place, and its messages wait to be sent), COMPLETED (everything is done) or FAILED (the handler raised). A record
expires when its retention ends, but never before its lease, because a retention may be shorter than a call; an expired
record counts as absent. The names match those in Powertools' tables, which have no SENDING.

**The one rule for writes.** Every write sets a fresh version, and every write except the first names the version that
it replaces. That rule serves as

* a fence: a worker that lost its claim names a version that is gone, and is refused;
* a take-over lock: if two workers saw the same stale record, one replaces it; the other names a version that is gone;
* a guard against delay: a request based on an older version is refused, however late it arrives.

A writer whose answer was lost recognises its own new version in the record. A consistent read resolves any other
uncertainty: a key whose record was not read is never assumed to be free or completed.

**The one decision.** `decide` says what a claim may do with the record that it meets; the first match wins:

====================================================================== ===========================================
a claim meets                                                          answer
====================================================================== ===========================================
attributes that are not a record: foreign types, no status             Unreadable
nothing, or a record past its expiration                               Claimable
unknown status; INPROGRESS or SENDING with neither lease nor expiry    Unreadable
a fingerprint different from the claim's, in any status                OtherPayload
COMPLETED                                                              AlreadyCompleted
the version that this very claim wrote                                 Claimed: its answer was lost
SENDING or INPROGRESS, lease live                                      HeldElsewhere
FAILED, or lease over, and its message is exhausted                    Exhausted: its dead letter is left to send
SENDING, lease over                                                    Unsent: whoever sends takes it over first
FAILED, where failures are answers                                     AlreadyFailed
FAILED, or INPROGRESS with its lease over, and it has crashed before   ClaimableAlone, unless the claim is alone
FAILED, or INPROGRESS with its lease over                              Claimable, by replacing that record
====================================================================== ===========================================

`charges.py` says when a message is exhausted and what has crashed, where a claim brings an allowance. An exhausted
INPROGRESS record is first replaced by FAILED, so that a worker that is late after all cannot change it; a SENDING one
stays.

**Settling** replaces the version that the claim wrote: `complete`, `fail`, or `release` for a handler that never
started or should start again. A record with messages to send is first SENDING, with a lease; `sending.py` has what
follows. If the version to replace is gone, the answer is `ClaimLost`. A record that has vanished is not recreated.
After `ClaimLost`, an unclaimed run may start `once_more`.

**Transitions.** `Claim`, `Settlement` and the transitions in `peek.py`, `sending.py`, `renewal.py` and `execution.py`
share one interface, so that one loop (`exchange.exchange`) drives each to its answer. `id` is the record's id. `step`
takes the current record, the versions sent so far, the time and a fresh version, and returns the next `Change` to try
or the answer. `applied` returns the answer once that change is written.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from idempotent_receiver.protocol import charges
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    AlreadyFailed,
    Claimable,
    ClaimableAlone,
    ClaimLost,
    Exhausted,
    HeldElsewhere,
    OtherPayload,
    Refusal,
    Settled,
    SettleResult,
    Unreadable,
    Unsent,
)
from idempotent_receiver.protocol.charges import NO_CHARGE, Allowance, Charged
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Change, Record, Status, permanent, unchanged

Attributes = Mapping[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Claimed:
    """The key is claimed until the lease ends. `over` is the record that the claim replaced, if known. `renewed` are
    the versions that lease renewals have sent: if the record has any of them, it still belongs to this claim.
    """

    record: Record
    claim: "Claim"
    over: Record | None = None
    renewed: Collection[str] = ()

    @property
    def taken_over(self) -> bool:
        """Whether another worker had claimed the key and never settled it. A released record has no owner."""
        over = self.over
        return over is not None and over.status == Status.INPROGRESS and charges.crashed(over)


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """The run has no claim. `over`, the record read or assumed absent, still stands; other runs may be concurrent.

    `record` is the record that a claim would have written; only the run's end is written.
    """

    record: Record
    claim: "Claim"
    over: Record | None


def placeholder(run: Unclaimed, version: str) -> Record:
    """The record in a store's own transaction while the handler runs there: FAILED, without an error. If the handler
    commits that transaction early, the key runs again; nothing was completed.
    """
    return run.record._replace(status=Status.FAILED.value, version=version, in_progress_expiration=None)


Basis = Claimed | Unclaimed
"""The basis of a run: the key is claimed, or not."""


ClaimAnswer = Claimed | Refusal


class Claim(NamedTuple):
    """Claims a key until `lease_until_ms` (epoch) for the `owner`, whose payload has this `fingerprint`.

    With `failures_are_answers`, a FAILED record is an answer, not a reason to retry. `input` is for starting a
    workflow. A lease that will be renewed instead lasts `lease_ms` from its write. `allowance` limits what the message
    may cost; `alone` says that nothing else is claimed in this process.
    """

    id: str
    fingerprint: str | None
    owner: str
    lease_until_ms: int
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    failures_are_answers: bool = False
    input: str | None = None
    lease_ms: int | None = None
    allowance: Allowance | None = None
    alone: bool = False

    def step(
        self, seen: Record | None, sent_versions: Collection[str], now_ms: int, version: str
    ) -> Change | ClaimAnswer:
        """The write that claims the key, or the answer if there is nothing to write."""
        match decide(seen, self, sent_versions, now_ms):
            case Claimable():
                return self.change(seen, now_ms, version)
            case Exhausted(crash) if crash.status == Status.INPROGRESS:
                expiration = expiration_of(now_ms, self.retention_seconds, None)
                return Change(charges.fenced(crash, self.owner, version, expiration), crash)
            case answer:
                return answer

    def change(self, seen: Record | None, now_ms: int, version: str) -> Change:
        """The write that claims the key."""
        standing = None if seen is None or seen.expired(now_ms) else seen  # after an expired one, all counts anew
        before = 0
        if standing is not None:
            # A record without a count is from Powertools, whose handler has started once.
            before = 1 if standing.attempts is None else standing.attempts
        lease_until_ms = self.lease_at(now_ms)
        record = Record(
            id=self.id,
            status=Status.INPROGRESS.value,
            version=version,
            expiration=expiration_of(now_ms, self.retention_seconds, lease_until_ms),
            in_progress_expiration=lease_until_ms,
            attempts=before + 1,
            validation=self.fingerprint,
            owner=self.owner,
            input=self.input,
            charged=charges.on_claim(standing, self.allowance, alone=self.alone).text(version),
        )
        return Change(record, seen)

    def lease_at(self, now_ms: int) -> int:
        """The end of a lease written now."""
        return self.lease_until_ms if self.lease_ms is None else now_ms + self.lease_ms

    def applied(self, change: Change) -> Claimed | Exhausted:
        """The key is claimed, or the message has failed finally."""
        return self.written(change.new, change.seen)

    def written(self, record: Record, over: Record | None = None) -> Claimed | Exhausted:
        """The answer of a claim that has written `record`."""
        fenced = self.allowance is not None and record.status == Status.FAILED
        return Exhausted(record) if fenced else Claimed(record, self, over)

    def unclaimed(self, seen: Record | None, now_ms: int, version: str) -> Unclaimed:
        """The basis of a run without a claim: all its effects commit with its completion."""
        return Unclaimed(self.change(seen, now_ms, version).new, self, seen)


def once_more(lost: ClaimLost, run: Unclaimed, now_ms: int, version: str) -> Unclaimed | None:
    """The basis on which an unclaimed run may start again after wrongly assuming that there was no record.

    It is the record that the run's completion found, if a redelivery could run on that record. None if the run may not
    start again, or already has.
    """
    found = lost.found
    if run.over is not None or found is None:
        return None
    match decide(found, run.claim, (), now_ms):
        # A permanent failure may have a dead letter.
        case Claimable() if found.expired(now_ms) or not permanent(found):
            return run.claim.unclaimed(found, now_ms, version)
    return None


_WHILE_RUNNING = dict.fromkeys(("in_progress_expiration", "error", "input", "outbox"))
"""The attributes that a settlement removes unless its outcome has them."""


class Settlement(NamedTuple):
    """Ends a run with the attributes in `outcome`: `held` with these attributes replaces `standing`.

    For a claim, `standing` is `held` itself or its latest renewal. `version` is set in advance if a stored result
    is already named after it. `charged` is what the record says of its message's cost from now on.
    """

    held: Record
    outcome: Attributes
    retention_seconds: int
    standing: Record | None
    version: str | None = None
    renewed: Collection[str] = ()
    charged: Charged = NO_CHARGE

    @property
    def id(self) -> str:
        """The record's id."""
        return self.held.id

    def step(
        self, seen: Record | None, sent_versions: Collection[str], now_ms: int, version: str
    ) -> Change | SettleResult:
        """The write that ends the claim, or the answer if there is nothing to write."""
        if seen is not None and seen.version in sent_versions:
            return Settled(seen)
        standing = seen if seen is not None and seen.version in self.renewed else self.standing
        if not unchanged(seen, standing):
            return ClaimLost(seen)
        return self._replace(standing=standing).change(now_ms, self.version or version)

    def change(self, now_ms: int, version: str) -> Change:
        """The write that ends the claim."""
        ended: dict[str, Any] = {**_WHILE_RUNNING, **self.outcome}
        expiration = expiration_of(now_ms, self.retention_seconds, ended["in_progress_expiration"])
        charged = self.charged.text(version)
        ended_record = self.held._replace(**ended, version=version, expiration=expiration, charged=charged)
        return Change(ended_record, self.standing)

    def applied(self, change: Change) -> Settled:
        """The claim has ended."""
        return Settled(change.new)


def decide(seen: Record | None, claim: Claim, sent_versions: Collection[str], now_ms: int) -> Claimable | ClaimAnswer:
    """What `claim`, which has sent `sent_versions`, may do with the record that it meets. Follows the module's table
    row by row.
    """
    if seen is not None and seen.unreadable is not None:
        return Unreadable(seen.unreadable)
    if seen is None or seen.expired(now_ms):
        return Claimable(seen)
    if seen.status not in Status.__members__:
        return Unreadable(f"unknown status {seen.status!r}")
    lease = seen.lease_until_ms
    if seen.status in (Status.INPROGRESS, Status.SENDING) and lease is None:
        return Unreadable(f"{seen.status} with neither a lease nor an expiration")
    if seen.differs(claim.fingerprint):
        return OtherPayload(expected=str(seen.validation), found=str(claim.fingerprint))
    if seen.status == Status.COMPLETED:
        return AlreadyCompleted(seen)
    # Checked before the live lease, because the record that this claim wrote has one, too.
    if seen.version in sent_versions:
        return claim.written(seen)
    if seen.status in (Status.INPROGRESS, Status.SENDING) and lease is not None and lease > now_ms:
        return HeldElsewhere(lease)
    return _decide_ended(seen, claim)


def _decide_ended(seen: Record, claim: Claim) -> Claimable | ClaimAnswer:
    """The last rows of the table, for a record that no live claim holds and that is not COMPLETED."""
    if charges.ends(seen, claim.allowance):
        return Exhausted(seen)
    if seen.status == Status.SENDING:
        return Unsent(seen)
    if seen.status == Status.FAILED and claim.failures_are_answers:
        return AlreadyFailed(seen)
    if not claim.alone and charges.must_be_alone(seen, claim.allowance):
        return ClaimableAlone(seen)
    return Claimable(seen)


def complete(run: Basis, data: str | None, outbox: str | None = None, now_ms: int = 0) -> Settlement:
    """The handler succeeded: COMPLETED with its result as JSON text (None: no result). With messages to send: SENDING,
    with the lease that a claim would get now.
    """
    outcome = completed(data)
    if outbox is not None:
        lease = {"in_progress_expiration": run.claim.lease_at(now_ms)}
        outcome = {**outcome, **lease, "status": Status.SENDING.value, "outbox": outbox}
    ends = settlement(run, outcome)
    # A large result is named after a version: a claim has one already, otherwise it is set now.
    return ends if isinstance(run, Claimed) else ends._replace(version=run.record.version)


def fail(run: Basis, error: str, *, started: bool = True, charged: Charged = NO_CHARGE) -> Settlement:
    """The handler failed, or never `started`: FAILED with the error as JSON text. If no attempt has started, the record
    keeps no fingerprint, so that a corrected payload can use the same key.
    """
    outcome = {**failed(error), **({} if started else _without_attempt(run))}
    return settlement(run, outcome, charged)


def release(held: Claimed, now_ms: int, *, started: bool = False, crash: bool = False) -> Settlement:
    """End the lease now and remove the owner. An attempt whose handler never `started` does not count. `crash`: the
    worker has died in the run.
    """
    outcome = {"in_progress_expiration": now_ms, "owner": None, **({} if started else _without_attempt(held))}
    return settlement(held, outcome, charges.on_release(held.record, crash=crash))


def settlement(run: Basis, outcome: Attributes, charged: Charged = NO_CHARGE) -> Settlement:
    """End the run with this outcome, by replacing its claim or the record on which it ran."""
    seconds = run.claim.retention_seconds
    standing, renewed = (run.record, run.renewed) if isinstance(run, Claimed) else (run.over, ())
    return Settlement(run.record, outcome, seconds, standing, renewed=renewed, charged=charged)


def completed(data: str | None) -> Attributes:
    """The outcome of a success, with its result as JSON text."""
    return {"status": Status.COMPLETED.value, "data": data}


def failed(error: str) -> Attributes:
    """The outcome of a failure, with its error as JSON text."""
    return {"status": Status.FAILED.value, "error": error}


def _without_attempt(run: Basis) -> Attributes:
    """The record without this attempt. If an earlier attempt started, the key is in use: its fingerprint stays."""
    before = max(0, (run.record.attempts or 1) - 1)
    return {"validation": run.record.validation if before else None, "attempts": before}


def expiration_of(now_ms: int, retention_seconds: int, lease_until_ms: int | None) -> int:
    """When the record expires, in epoch seconds: when its retention ends, but never before its lease ends, because an
    expired record counts as absent even if its lease is live.
    """
    until_ms = max(now_ms + retention_seconds * 1000, lease_until_ms or 0)
    return -(-until_ms // 1000)
