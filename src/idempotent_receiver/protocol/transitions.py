"""The record of one key, and every transition that it can make. No I/O, no clock, no randomness, no environment.

**The state.** A key has no record, or one that is INPROGRESS (somebody holds a claim with a lease), COMPLETED (its
effect is done) or FAILED (the handler raised). Attribute names follow the table layout of AWS Lambda Powertools.

**The one rule of writing.** Every write puts a fresh version, and every write but the first names the version that
it replaces. That rule is at once

* the fence: whoever lost its claim names a version that is gone, and is refused;
* the lock of a take-over: of two workers that saw one stale record, one replaces it and the other's version is gone;
* the guard against delay: a request that was sent against an older version is refused, however late it arrives.

A write whose answer was lost is recognised by finding one's own new version in place. Whatever leaves a doubt is
settled by a consistent read: what was not read is never "free" and never "done".

**The one decision.** What a claim may do with what it meets is said by `decide`, first match wins:

====================================================================== ===========================================
a claim meets                                                          answer
====================================================================== ===========================================
attributes that make no record at all: foreign types, no status        Unreadable
nothing, or a record past its expiration                               Claimable
what it cannot read: unknown status, INPROGRESS without any end        Unreadable
another fingerprint than its own, in any status                        OtherPayload
COMPLETED                                                              AlreadyCompleted
the version that this very claim wrote                                 Claimed: its answer had been lost
INPROGRESS, lease live                                                 HeldElsewhere
FAILED, where failures are answers                                     AlreadyFailed
FAILED, or INPROGRESS with its lease over                              Claimable, by replacing what was seen
====================================================================== ===========================================

**Settling** replaces the version that the claim wrote: `complete`, `fail`, or `release` for what never started or is to
start again. If that version is gone the answer is `ClaimLost`, and a record that has vanished is not resurrected.

**Handing over.** A workflow goes on when the worker that claimed its key is gone: `hand_over` makes the record its
execution's, with a lease as long as that may take. Until then the record keeps the `input`, so that whoever finds it
orphaned can start it. The execution's end is its `Conclusion`, which needs no claim: the record being its own, and
still in progress, is what it names instead.

**Expiring.** A record ends once its retention is over, but never before its lease: a retention may be shorter than a
call may run, and what has expired counts as absent.

**Transitions.** `Peek`, `Claim`, `Settlement`, `Commit` and `Conclusion` share one shape, so that one loop
(`exchange.run_to_completion`) can bring any of them to its answer: given what is there now, `step` says the next
`Change` to try or the final answer.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple, cast

from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Change, Record, Status, expiration_of

_MD5_DIGITS = 32

# What a claim may be answered.


@dataclass(frozen=True, slots=True)
class Claimed:
    """The key is ours until the lease ends. `over` is what the claim replaced, where that is known."""

    record: Record
    claim: "Claim"
    over: Record | None = None

    @property
    def taken_over(self) -> bool:
        """Whether somebody had held the key and never settled; a released record has no owner."""
        over = self.over
        if over is None or over.status != Status.INPROGRESS:
            return False
        return over.owner is not None or over.version is None


@dataclass(frozen=True, slots=True)
class AlreadyCompleted:
    """The effect is done; `record.data` is the stored result."""

    record: Record


@dataclass(frozen=True, slots=True)
class AlreadyFailed:
    """The handler failed, and this way in takes that for the answer."""

    record: Record


@dataclass(frozen=True, slots=True)
class HeldElsewhere:
    """Somebody else holds the key until `until_ms` (epoch)."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class OtherPayload:
    """The key was used for another payload."""

    expected: str
    found: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """What is there is not a record that we know; it is left untouched."""

    reason: str


@dataclass(frozen=True, slots=True)
class Claimable:
    """The key may be claimed by replacing `seen`, or by inserting where that is None."""

    seen: Record | None


Refusal = AlreadyCompleted | AlreadyFailed | HeldElsewhere | OtherPayload | Unreadable


# What a settlement may be answered.


@dataclass(frozen=True, slots=True)
class Settled:
    """The record stands as we wrote it."""

    record: Record


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """Our version is gone; `found` is what is there instead."""

    found: Record | None

    @property
    def completed(self) -> bool:
        """Whether the effect is done all the same, by whoever took the claim over."""
        return self.found is not None and self.found.unreadable is None and self.found.status == Status.COMPLETED


class Claim(NamedTuple):
    """The wish to hold a key until `lease_until_ms` (epoch), on behalf of `owner`, for a payload's `fingerprint`.

    `failures_are_answers` makes a FAILED record the answer rather than something to try again. `input` is what a
    workflow is to be started with.
    """

    id: str
    fingerprint: str | None
    owner: str
    lease_until_ms: int
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    failures_are_answers: bool = False
    input: str | None = None

    def step(
        self, seen: Record | None, wrote: Collection[str], now_ms: int, version: str
    ) -> Change | Claimed | Refusal:
        """The write that would claim what is there, or the answer that it already gives."""
        answer = decide(seen, self, wrote, now_ms)
        return Change(_claimed(self, seen, now_ms, version), seen) if isinstance(answer, Claimable) else answer

    def applied(self, change: Change) -> Claimed:
        """The answer once `change` is known to have been written."""
        return Claimed(change.new, self, change.seen)


@dataclass(frozen=True, slots=True)
class Peek:
    """A claim's first look at a key that is probably known already: it reads, decides, and writes nothing."""

    claim: Claim

    @property
    def id(self) -> str:
        """The record's id."""
        return self.claim.id

    def step(
        self, seen: Record | None, wrote: Collection[str], now_ms: int, version: str
    ) -> Claimable | Claimed | Refusal:
        """The answer that is there, or `Claimable` with what the claim would have to replace."""
        return decide(seen, self.claim, wrote, now_ms)

    def applied(self, change: Change) -> Claimable:
        """Never asked: a look makes no change."""
        raise AssertionError(f"a look wrote {change}")


class Settlement(NamedTuple):
    """The wish to end a claim with the attributes of `outcome`."""

    held: Record
    outcome: Mapping[str, str | int | None]
    retention_seconds: int

    @property
    def id(self) -> str:
        """The record's id."""
        return self.held.id

    def step(
        self, seen: Record | None, wrote: Collection[str], now_ms: int, version: str
    ) -> Change | Settled | ClaimLost:
        """The write that settles the claim, or `ClaimLost` if its version is gone."""
        return _settling(seen, self.held, wrote) or self.change(now_ms, version)

    def change(self, now_ms: int, version: str) -> Change:
        """The write that settles the claim."""
        ended = {"in_progress_expiration": None, "error": None, "input": None, **self.outcome}
        lease_until_ms = cast("int | None", ended["in_progress_expiration"])
        lasting = {"version": version, "expiration": expiration_of(now_ms, self.retention_seconds, lease_until_ms)}
        new = self.held._replace(**{**ended, **lasting})  # type: ignore[arg-type]  # the names tell the types
        return Change(new, self.held)

    def applied(self, change: Change) -> Settled:
        """The answer once `change` is known to have been written."""
        return Settled(change.new)


@dataclass(frozen=True, slots=True)
class Commit:
    """A settlement whose write is drawn once and sent the same each time: a transaction's token allows one content."""

    drawn: Change

    @property
    def id(self) -> str:
        """The record's id."""
        return self.drawn.new.id

    def step(
        self, seen: Record | None, wrote: Collection[str], now_ms: int, version: str
    ) -> Change | Settled | ClaimLost:
        """The one write, or the answer that is there."""
        held = self.drawn.seen
        assert held is not None, "a commit replaces a claim"
        return _settling(seen, held, wrote) or self.drawn

    def applied(self, change: Change) -> Settled:
        """The answer once the change is known to have been written."""
        return Settled(change.new)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """The wish to write how a workflow's execution has ended, on behalf of nobody who holds a claim.

    The record must be that execution's, or nobody's yet (an execution's name is made of the key, so that a claim which
    was not handed over can only be its own), and in progress. `revises` is the version of a FAILED record that may be
    replaced too: by whoever has put right what it tells of.
    """

    id: str
    execution: str
    outcome: Mapping[str, str | int | None]
    retention_seconds: int = DEFAULT_RETENTION_SECONDS
    revises: str | None = None

    def step(
        self, seen: Record | None, wrote: Collection[str], now_ms: int, version: str
    ) -> Change | Settled | ClaimLost:
        """The write that ends the execution's claim, or `ClaimLost` with what is there instead."""
        if seen is not None and seen.version in wrote:
            return Settled(seen)
        if seen is None or seen.unreadable is not None or not self._open(seen):
            return ClaimLost(seen)
        held = seen._replace(execution=self.execution)
        change = Settlement(held=held, outcome=self.outcome, retention_seconds=self.retention_seconds)
        return Change(change.change(now_ms, version).new, seen)

    def _open(self, seen: Record) -> bool:
        if seen.status == Status.FAILED:
            return self.revises is not None and seen.version == self.revises
        return seen.status == Status.INPROGRESS and seen.execution in (None, self.execution)

    def applied(self, change: Change) -> Settled:
        """The answer once the change is known to have been written."""
        return Settled(change.new)


def _settling(seen: Record | None, held: Record, wrote: Collection[str]) -> Settled | ClaimLost | None:
    """The answer that a settlement already has; None while the claim still stands."""
    if seen is not None and seen.version in wrote:
        return Settled(seen)
    if seen is None or seen.version != held.version:
        return ClaimLost(seen)
    return None


def decide(seen: Record | None, claim: Claim, wrote: Collection[str], now_ms: int) -> Claimable | Claimed | Refusal:
    """What `claim` may do with what it meets: the table on top of this module, row by row. `wrote` are the versions
    that this very claim has sent.
    """
    if seen is not None and seen.unreadable is not None:
        return Unreadable(seen.unreadable)
    if seen is None or seen.expired(now_ms):
        return Claimable(seen)
    if (unreadable := _unreadable(seen)) is not None:
        return Unreadable(unreadable)
    if _differs(seen, claim.fingerprint):
        return OtherPayload(expected=str(seen.validation), found=str(claim.fingerprint))
    if seen.status == Status.COMPLETED:
        return AlreadyCompleted(seen)
    if seen.version in wrote:
        return Claimed(seen, claim)
    if seen.status == Status.INPROGRESS and seen.lease_until_ms is not None and now_ms < seen.lease_until_ms:
        return HeldElsewhere(seen.lease_until_ms)
    if seen.status == Status.FAILED and claim.failures_are_answers:
        return AlreadyFailed(seen)
    return Claimable(seen)


def complete(held: Claimed, data: str | None) -> Settlement:
    """The handler succeeded: COMPLETED with its result as JSON text (None: no result)."""
    return _settle(held, **completed(data))


def fail(held: Claimed, error: str, *, started: bool = True) -> Settlement:
    """The handler failed, or never `started`: FAILED with the error as JSON text. What never started keeps no
    fingerprint, so that a corrected payload may come under the same key.
    """
    return _settle(held, **failed(error), **_trace(held, started=started))


def release(held: Claimed, now_ms: int, *, started: bool = False) -> Settlement:
    """The lease ends now, and nobody is the owner. An attempt whose handler was never `started` does not count."""
    trace = _trace(held, started=started)
    return _settle(held, in_progress_expiration=now_ms, owner=None, **trace)


def hand_over(held: Claimed, execution: str, lease_until_ms: int) -> Settlement:
    """A workflow's execution has the key from here on, until `lease_until_ms` (epoch)."""
    return _settle(held, execution=execution, in_progress_expiration=lease_until_ms)


def completed(data: str | None) -> Mapping[str, str | int | None]:
    """The outcome of what succeeded, with its result as JSON text."""
    return {"status": Status.COMPLETED.value, "data": data}


def failed(error: str) -> Mapping[str, str | int | None]:
    """The outcome of what failed, with its error as JSON text."""
    return {"status": Status.FAILED.value, "error": error}


def _trace(held: Claimed, *, started: bool) -> dict[str, str | int | None]:
    if started:
        return {}
    before = max(0, (held.record.attempts or 1) - 1)
    # Where an earlier attempt had started, its payload is the key's: the fingerprint stays.
    return {"validation": held.record.validation if before else None, "attempts": before}


def _settle(held: Claimed, **outcome: str | int | None) -> Settlement:
    return Settlement(held=held.record, outcome=outcome, retention_seconds=held.claim.retention_seconds)


def _claimed(claim: Claim, seen: Record | None, now_ms: int, version: str) -> Record:
    """The record as a claim writes it. The count of attempts starts anew where the old record had expired."""
    fresh = seen is None or seen.expired(now_ms)
    # A record without a count is Powertools': whoever wrote it had started once.
    before = 0 if seen is None or fresh else 1 if seen.attempts is None else seen.attempts
    return Record(
        id=claim.id,
        status=Status.INPROGRESS.value,
        version=version,
        expiration=expiration_of(now_ms, claim.retention_seconds, claim.lease_until_ms),
        in_progress_expiration=claim.lease_until_ms,
        attempts=before + 1,
        validation=claim.fingerprint,
        owner=claim.owner,
        input=claim.input,
    )


def _differs(seen: Record, fingerprint: str | None) -> bool:
    """Whether the record is another payload's. Powertools' fingerprints (MD5) are made otherwise and tell nothing."""
    if seen.validation is None or fingerprint is None:
        return False
    incomparable = seen.version is None and len(seen.validation) == _MD5_DIGITS
    return seen.validation != fingerprint and not incomparable


def _unreadable(seen: Record) -> str | None:
    if seen.status not in Status.__members__:
        return f"unknown status {seen.status!r}"
    if seen.status == Status.INPROGRESS and seen.lease_until_ms is None:
        return "INPROGRESS with neither a lease nor an expiration"
    return None
