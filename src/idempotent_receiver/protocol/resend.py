"""The record of a dead letter's key when an operator resends the dead letter with a different body.

**The order.** Claim the old key for the resend, send the new body under its new key, complete the old key, delete the
dead letter. A crash leaves a claim that names the new key, never a message that could take effect with two bodies:
copies of the old body meet the claim, fail and wait; they are never dropped. Completing before the send could lose the
message. Sending without a claim could run it twice.

**The claim** is a record in progress, leased for its whole retention, with a `Resend` in it. It keeps the record's
earlier error and attempts, because no handler starts. Any operator may continue with the same body, or take the resend
back: one transaction then completes the new key, only if that is free, and restores the old one.

**The new key** is checked in the claim's own transaction (`check_open`). If it were read before the claim, it could be
closed in between; then the message would be lost, or the claim would never end.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from idempotent_receiver.protocol.action import Action
from idempotent_receiver.protocol.answers import Claimable, HeldElsewhere, Refusal, Settled
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Change, Record, Status, attributes
from idempotent_receiver.protocol.transitions import Claim, Settlement, completed, decide, expiration_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend:
    """A dead letter's resend with a different body. The ids are the record ids of its old and new keys.

    `fingerprint` is the new body's. `operator` owns the claim; `why` is for human readers. The old key's record holds
    the resend from the claim onwards; the new key's record holds it only if the resend was taken back.
    """

    old_id: str
    new_id: str
    fingerprint: str
    operator: str
    why: str

    def to_json(self) -> str:
        """The attribute's value."""
        return json.dumps(asdict(self), ensure_ascii=True)

    def same_body(self, other: "Resend") -> bool:
        """Whether both send the same body under the same key."""
        return (self.old_id, self.new_id, self.fingerprint) == (other.old_id, other.new_id, other.fingerprint)


def resend_of(record: Record) -> Resend | None:
    """A record's resend; None if it is absent, unreadable, or the record has a different owner: a library version that
    does not know the attribute leaves it in place when claiming the key.
    """
    try:
        found = json.loads(record.resent or "null")
        resend = Resend(**found) if all(isinstance(each, str) for each in found.values()) else None
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return resend if resend is not None and resend.operator == record.owner else None


def resending(record: Record) -> Resend | None:
    """The resend that has claimed this key but not completed it."""
    return resend_of(record) if record.status == Status.INPROGRESS else None


def resent(record: Record) -> Resend | None:
    """The resend that completed this key: its message continues under the new key."""
    found = resend_of(record)
    return found if found is not None and record.status == Status.COMPLETED and record.id == found.old_id else None


def taken_back(record: Record) -> Resend | None:
    """The resend that was taken back before its body ran under this key."""
    found = resend_of(record)
    return found if found is not None and record.status == Status.COMPLETED and record.id == found.new_id else None


class ResendClaim(NamedTuple):
    """Claims the key of a dead letter with this `fingerprint` for a resend. If an earlier command has claimed
    the key for the same resend, the answer is `Settled` too.
    """

    resend: Resend
    fingerprint: str
    retention_seconds: int = DEFAULT_RETENTION_SECONDS

    @property
    def id(self) -> str:
        """The record's id."""
        return self.resend.old_id

    def step(
        self, seen: Record | None, sent_versions: Collection[str], now_ms: int, version: str
    ) -> Change | Settled | Refusal:
        """The write that claims the key, or the answer if there is nothing to write."""
        claim = Claim(self.id, self.fingerprint, self.resend.operator, 0)
        match decide(seen, claim, (), now_ms):  # the resend, not a version, identifies this claim's write
            case Claimable():
                return self._change(seen, now_ms, version)
            case HeldElsewhere() if seen is not None and self._is_same(resending(seen)):
                return Settled(seen)
            case answer:
                return answer  # type: ignore[return-value]  # never `Claimed`, because no versions were passed

    def _is_same(self, other: Resend | None) -> bool:
        return other is not None and other.same_body(self.resend)

    def _change(self, seen: Record | None, now_ms: int, version: str) -> Change:
        until_ms = now_ms + self.retention_seconds * 1000
        before = None if seen is None or seen.expired(now_ms) else seen
        attempts = 0 if before is None else 1 if before.attempts is None else before.attempts
        record = Record(
            id=self.id,
            status=Status.INPROGRESS.value,
            version=version,
            expiration=expiration_of(now_ms, self.retention_seconds, until_ms),
            in_progress_expiration=until_ms,
            attempts=attempts,
            validation=self.fingerprint,
            error=None if before is None else before.error,
            owner=self.resend.operator,
            resent=self.resend.to_json(),
        )
        return Change(record, seen)

    def applied(self, change: Change) -> Settled:
        """The key is claimed."""
        return Settled(change.new)


def check_open(resend: Resend, table_name: str, now_ms: int) -> Action:
    """The check to commit with the claim: the new key's record must admit the new body.

    It must not be completed, used for a different payload, closed by a take-back, or itself resent or claimed for a
    resend: in a cycle of resends, no message would run.
    """
    names = {"#e": "expiration", "#r": "resent", "#s": "status", "#v": "validation"}
    values = {":now": now_ms // 1000, ":done": Status.COMPLETED.value, ":body": resend.fingerprint}
    same_body = "(attribute_not_exists(#v) OR #v = :body)"
    unused = f"attribute_not_exists(#r) AND (attribute_not_exists(#s) OR #s <> :done) AND {same_body}"
    return Action(
        "ConditionCheck", _on(table_name, f"#e <= :now OR ({unused})", names, values, Key={"id": resend.new_id})
    )


def complete_resend(claimed: Record, retention_seconds: int) -> Settlement:
    """Complete the old key after the new body is sent, and record the new key."""
    return Settlement(claimed, completed(None), retention_seconds, claimed)


def take_back(claimed: Record, now_ms: int, retention_seconds: int) -> Settlement:
    """Restore the old key. Commit this together with `put_closed`; otherwise the new body might run as well."""
    outcome: dict[str, Any] = {"owner": None, "resent": None, "error": claimed.error}
    if claimed.error is None:
        outcome["in_progress_expiration"] = now_ms  # released: its next delivery claims it
    else:
        outcome["status"] = Status.FAILED.value
    if not claimed.attempts:
        outcome["validation"] = None
    return Settlement(claimed, outcome, retention_seconds, claimed)


def put_closed(back: Resend, table_name: str, now_ms: int, retention_seconds: int, version: str) -> Action:
    """The write to commit with the take-back: it completes the new key, only if that key is free."""
    item = attributes(closing(back, now_ms, retention_seconds, version))
    free = "attribute_not_exists(#i) OR #e <= :now"
    return Action("Put", _on(table_name, free, {"#i": "id", "#e": "expiration"}, {":now": now_ms // 1000}, Item=item))


def closing(back: Resend, now_ms: int, retention_seconds: int, version: str) -> Record:
    """The new key's record once its resend is taken back."""
    return Record(
        id=back.new_id,
        status=Status.COMPLETED.value,
        version=version,
        validation=back.fingerprint,
        expiration=expiration_of(now_ms, retention_seconds, None),
        owner=back.operator,
        resent=back.to_json(),
    )


def _on(
    table_name: str, condition: str, names: dict[str, str], values: dict[str, Any], **item: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "TableName": table_name,
        **item,
        "ConditionExpression": condition,
        "ExpressionAttributeNames": names,
        "ExpressionAttributeValues": values,
    }
