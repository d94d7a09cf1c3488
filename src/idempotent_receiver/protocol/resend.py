"""A dead letter that an operator resends with another body: an outbox whose one message is the corrected one.

**A resend completes the old message, and its only effect is to send the corrected one.** The record of the dead
letter's key becomes SENDING over the version that was read, with the new body in its outbox and no lease. From then on
the old body cannot run, and whoever finds the record may finish the resend: send the new body, and mark the record
COMPLETED. Two senders do no harm, because both send one message under one key. A crash leaves the outbox.

**The new key** is the outbox's own if keys come from the message, and is otherwise made from the new body. Nothing is
written under it. Its record is checked in the transaction that writes the outbox (`check_open`): if it were completed,
or itself resent, the new body would be acknowledged with no effect, as in a cycle of resends.

Versions before claimed the key instead: INPROGRESS with a `Resend` that names its `old_id`, without the new body.
"""

import json
from collections.abc import Collection
from dataclasses import asdict, dataclass
from typing import NamedTuple

from idempotent_receiver.protocol.answers import Claimable, Unsent
from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.protocol.transitions import Claim, ClaimAnswer, Claimed, decide
from idempotent_receiver.transaction.action import Action


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend:
    """A dead letter's resend with a different body, in its key's record. `new_id` is the record id of the new key.

    `operator` and `why` are for human readers, like the dead letter's `message_id` and `original_id`. Only versions
    before wrote `old_id` and the new body's `fingerprint`.
    """

    new_id: str
    operator: str
    why: str
    message_id: str = ""
    original_id: str = ""
    old_id: str = ""
    fingerprint: str = ""

    def to_json(self) -> str:
        """The attribute's value."""
        return json.dumps({name: value for name, value in asdict(self).items() if value})


def resend_of(record: Record) -> Resend | None:
    """A record's resend; None if it is absent or unreadable, or if a version before wrote it and the record has a
    different owner since: a library version that does not know the attribute leaves it when claiming the key.
    """
    try:
        found = json.loads(record.resent or "null")
        resend = Resend(**found) if all(isinstance(each, str) for each in found.values()) else None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    stale = resend is not None and resend.old_id and resend.operator != record.owner
    return None if stale else resend


def resending(record: Record) -> Resend | None:
    """The resend that has begun with this key but not completed it."""
    found = resend_of(record)
    begun = None if found is None else Status.INPROGRESS if found.old_id else Status.SENDING
    return found if record.status == begun else None


def resent(record: Record) -> Resend | None:
    """The resend that completed this key: its message continues under the new key."""
    found = resend_of(record)
    return found if found is not None and record.status == Status.COMPLETED and record.id != found.new_id else None


def taken_back(record: Record) -> Resend | None:
    """The resend that an operator of a version before took back: it completed this key, and nothing ran under it."""
    found = resend_of(record)
    return found if found is not None and record.status == Status.COMPLETED and record.id == found.new_id else None


class BeginResend(NamedTuple):
    """Puts the new body into the outbox of the key's record, for the owner and the fingerprint of `claim`, without a
    lease. No attempt is counted, because no handler starts.

    `refused` is the version of a resend whose message SQS can never accept: this one replaces it.
    """

    claim: Claim
    resend: Resend
    outbox: str
    refused: str | None = None

    @property
    def id(self) -> str:
        """The record's id."""
        return self.claim.id

    def step(
        self, seen: Record | None, sent_versions: Collection[str], now_ms: int, version: str
    ) -> Change | Claimable | ClaimAnswer:
        """The write that begins the resend, or the answer if there is nothing to write."""
        answer = decide(seen, self.claim, sent_versions, now_ms)
        replaced = isinstance(answer, Unsent) and answer.record.version == self.refused
        return self.change(seen, now_ms, version) if replaced or isinstance(answer, Claimable) else answer

    def change(self, seen: Record | None, now_ms: int, version: str) -> Change:
        """The write that begins the resend."""
        claimed = self.claim.change(seen, now_ms, version).new
        sending = claimed._replace(
            status=Status.SENDING.value,
            in_progress_expiration=now_ms,
            attempts=(claimed.attempts or 1) - 1,
            outbox=self.outbox,
            resent=self.resend.to_json(),
        )
        return Change(sending, seen)

    def applied(self, change: Change) -> Claimed:
        """The resend has begun: `sending.mark` completes it."""
        return Claimed(change.new, self.claim, change.seen)


def check_open(new_id: str, fingerprint: str, table_name: str, now_ms: int) -> Action:
    """The check to commit with the outbox: the new key's record must let in the new body, which has this `fingerprint`.

    It must be neither completed nor sending, because a message under it would have no effect, nor used for a different
    payload, nor claimed for a resend by a version before.
    """
    names = {"#e": "expiration", "#r": "resent", "#s": "status", "#v": "validation"}
    values = {":now": now_ms // 1000, ":done": Status.COMPLETED.value, ":sending": Status.SENDING.value}
    values[":body"] = fingerprint
    may_run = "(attribute_not_exists(#s) OR NOT #s IN (:done, :sending))"
    same_body = "(attribute_not_exists(#v) OR #v = :body)"
    arguments = {
        "TableName": table_name,
        "Key": {"id": new_id},
        "ConditionExpression": f"#e <= :now OR (attribute_not_exists(#r) AND {may_run} AND {same_body})",
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
    return Action("ConditionCheck", arguments)
