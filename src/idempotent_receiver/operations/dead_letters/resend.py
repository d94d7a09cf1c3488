"""Updates records before and after a resend with another body.

The rules are in `protocol/resend.py`. This module applies them to one dead letter and explains refusals to operators.
A dead letter without a usable key of its own (UNKEYED or CONFLICT) has no record to update.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.dynamodb.store import DynamoDBStore
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict, claim_on
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    ClaimLost,
    HeldElsewhere,
    OtherPayload,
    Settled,
    SettleResult,
    Unsent,
)
from idempotent_receiver.protocol.exchange import ask, commit
from idempotent_receiver.protocol.record import Change, Record, Unread
from idempotent_receiver.protocol.resend import (
    Resend,
    ResendClaim,
    check_open,
    complete_resend,
    put_closed,
    resending,
    resent,
    take_back,
    taken_back,
)
from idempotent_receiver.protocol.store import ActionFailed, NotApplied, Unknown

ASK_SECONDS = 30

OWN_RECORD = frozenset(Verdict) - {Verdict.UNKEYED, Verdict.CONFLICT}
"""Verdicts where the record belongs to the dead letter itself."""


class NotResent(Exception):
    """A dead letter cannot be resent this way, or its resend cannot be taken back; the text gives the reason and the
    remedy.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Access to a consumer's records on behalf of an operator."""

    store: DynamoDBStore
    clock: Clock
    operator: str
    why: str
    retention_seconds: int

    def deadline(self) -> Deadline:
        """The deadline for one change."""
        return Deadline.after(self.clock, ASK_SECONDS * 1000)

    def read(self, id: str) -> Record | None:
        """The record with this id, unless it has expired. Raises NotResent if it cannot be read."""
        (found,) = self.store.read([id])
        if isinstance(found, Unknown):
            raise NotResent(f"the record {id} could not be read: {found.why}")
        return None if found is None or found.expired(self.clock.epoch_ms()) else found

    def require_writable(self, id: str) -> None:
        """Raise NotResent if the operator lacks permission to write the record: its claim could never be completed."""
        (version, never) = self.clock.versions(2)
        probe = Record(id=id, status="", version=version)
        (answer,) = self.store.replace([Change(probe, probe._replace(version=never))])
        if isinstance(answer, NotApplied):
            raise NotResent(f"its record could not be completed after the send: {answer.why}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NewBody:
    """Updates the records for a resend with another body. `edited` must be pure."""

    records: Records
    edited: Callable[[DeadLetter], DeadLetter]
    claimed: dict[str, Record] = field(default_factory=dict, compare=False)
    """This run's claims, by dead letter id."""

    def other_id(self, decision: Decision) -> str:
        """The id of the new key's record."""
        return self.edited(decision.dead_letter).record_id

    def check(self, decision: Decision) -> DeadLetter:
        """The edited dead letter, if it may be sent now. Writes nothing. Raises NotResent."""
        letter, now_ms = decision.dead_letter, self.records.clock.epoch_ms()
        new = self.edited(letter)
        if new.unkeyed is not None:
            raise NotResent(f"the new body has no usable key: {new.unkeyed}")
        if new.record_id == letter.record_id and decision.verdict in OWN_RECORD:
            raise NotResent(
                f"the new body has the same key, {new.key}: change the key, or use `dlq redrive` to send it unchanged"
            )
        going_on = False
        if decision.verdict in OWN_RECORD:
            found = self.records.read(letter.record_id)
            match claim_on(letter, found, now_ms):
                case AlreadyCompleted():
                    raise NotResent("it has already completed: have the producer send a new message")
                case Unsent():
                    raise NotResent("its effect took place, but its messages have not been sent: use `dlq redrive`")
                case HeldElsewhere():
                    going_on = self._goes_on(found, letter, new)
        self._require_free(new, going_on=going_on or decision.verdict not in OWN_RECORD)
        return new

    def _goes_on(self, found: Record | None, letter: DeadLetter, new: DeadLetter) -> bool:
        """Whether an earlier command began to send this body. Raises NotResent for any other claim on the key."""
        begun = None if found is None else resending(found)
        if begun is None:
            raise NotResent("a worker holds its claim and may still handle the old body: wait until the lease ends")
        if not begun.same_body(self._resend(letter, new)):
            raise NotResent(
                f"{begun.operator} began to send it with another body, as {begun.new_id}: send that body again, or "
                "use --take-back first"
            )
        return True

    def _require_free(self, new: DeadLetter, *, going_on: bool) -> None:
        found = self.records.read(new.record_id)
        if found is None:
            return
        if (by := resent(found)) is not None:
            raise NotResent(
                f"the new body's key {new.key} was itself resent, as {by.new_id}, so its messages no longer run: "
                "give the body another key"
            )
        if taken_back(found) is not None:
            raise NotResent(
                f"a resend with this body, as {new.key}, was taken back: change the body, if only by one space"
            )
        match claim_on(new, found, self.records.clock.epoch_ms()):
            case OtherPayload():
                raise NotResent(f"the new body's key {new.key} was used for another payload: give the body another key")
            case AlreadyCompleted() if not going_on:
                raise NotResent(
                    f"a message with this body has completed under the key {new.key}: it would not be handled again"
                )

    def before(self, decision: Decision) -> None:
        """Claim the dead letter's key, if the new key accepts the body. If this raises NotResent, send nothing."""
        new = self.check(decision)
        if decision.verdict not in OWN_RECORD:
            return
        letter, records = decision.dead_letter, self.records
        records.require_writable(letter.record_id)
        resend = self._resend(letter, new)
        claim = ResendClaim(resend, letter.fingerprint, records.retention_seconds)
        open_ = check_open(resend, records.store.table_name, records.clock.epoch_ms())
        match ask(claim, Unread(), records.store, records.deadline(), actions=[open_]):
            case Settled(record):
                self.claimed[letter.id] = record
            case Unknown(why):
                raise NotResent(f"its key could not be claimed: {why}")
            case _:
                raise NotResent("the record of the old or the new key has just changed: run the command again")

    def after(self, decision: Decision) -> None:
        """Complete the dead letter's key. Raises NotResent if this is not confirmed: the dead letter must then stay."""
        claimed = self.claimed.get(decision.dead_letter.id)
        if claimed is None:
            return
        records = self.records
        settlement = complete_resend(claimed, records.retention_seconds)
        match ask(settlement, claimed, records.store, records.deadline()):
            case Settled():
                return
            case ClaimLost(found):
                by = None if found is None else resent(found)
                mine = resending(claimed)
                if by is None or mine is None or not by.same_body(mine):
                    raise NotResent("its resend was taken back meanwhile: the message that was sent counts as done")
            case Unknown(why):
                raise NotResent(f"it was sent, but its record was not completed: {why}; resend it with the same body")

    def _resend(self, letter: DeadLetter, new: DeadLetter) -> Resend:
        return Resend(
            old_id=letter.record_id,
            new_id=new.record_id,
            fingerprint=new.fingerprint,
            operator=self.records.operator,
            why=self.records.why,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TakingBack:
    """Takes back an unfinished resend: in one transaction, completes the new key and releases the old one."""

    records: Records

    def other_id(self, decision: Decision) -> str:
        """The id of the new key's record."""
        return self._begun(decision).new_id

    def before(self, decision: Decision) -> None:
        """Take the resend back. Raises NotResent if the new body may have run or the record has changed."""
        begun, claimed = self._begun(decision), decision.record
        assert claimed is not None  # the record names the resend
        match self._given_back(begun, claimed):
            case Settled():
                return
            case ClaimLost():
                raise NotResent("its resend has progressed meanwhile: run the command again")
            case Unknown(why):
                raise NotResent(f"it could not be taken back: {why}")
            case _:
                raise NotResent(
                    f"its new body has reached the consumer as {begun.new_id}: resend it with the same body, which "
                    "completes the resend"
                )

    def _given_back(self, begun: Resend, claimed: Record) -> SettleResult | Unknown | ActionFailed:
        records = self.records
        now_ms = records.clock.epoch_ms()
        back = take_back(claimed, now_ms, records.retention_seconds)
        new = records.read(begun.new_id)
        if new is not None and taken_back(new) is not None:
            return ask(back, claimed, records.store, records.deadline())  # another dead letter's take-back closed it
        (version,) = records.clock.versions(1)
        closed = put_closed(begun, records.store.table_name, now_ms, records.retention_seconds, version)
        return commit(back, [closed], records.store, records.deadline())

    def after(self, decision: Decision) -> None:
        """Does nothing: `before` did everything in one step."""

    def _begun(self, decision: Decision) -> Resend:
        begun = None if decision.record is None else resending(decision.record)
        if begun is None:
            raise NotResent("no resend has begun")
        return begun
