"""Resends dead letters with another body, and finishes resends that have begun.

The rules are in `protocol/resend.py`. This module applies them to one dead letter and explains refusals to operators.
A dead letter whose old body can never run (UNKEYED or CONFLICT) has no record: its corrected message is sent as it is,
under a key derived from the new body. So is the message of a resend that a version before has begun, whose record does
not hold the body.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.dynamodb.store import DynamoDBStore
from idempotent_receiver.handler.lending import LendingStore
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter, Reader
from idempotent_receiver.operations.dead_letters.history import ActOutcome
from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict, claim_on
from idempotent_receiver.operations.unsent import Sending
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    ClaimLost,
    HeldElsewhere,
    OtherPayload,
    Settled,
    Unsent,
)
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask
from idempotent_receiver.protocol.limits import MOST_ITEM_BYTES
from idempotent_receiver.protocol.record import Record, Status, idempotency_key
from idempotent_receiver.protocol.resend import (
    BeginResend,
    Resend,
    check_open,
    resending,
    resent,
    taken_back,
)
from idempotent_receiver.protocol.sending import mark
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, NoRoom, size_of, stamped
from idempotent_receiver.transaction.outbox import STAMP, Outgoing, from_text, outgoing, sends_in, to_text

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

ASK_SECONDS = 30

LATER_BYTES = 1024
"""Room in a record for what later writes add, such as a worker's longer name."""

MOST_RECORD_BYTES = MOST_ITEM_BYTES - LATER_BYTES

OWN_RECORD = frozenset(Verdict) - {Verdict.UNKEYED, Verdict.CONFLICT}
"""Verdicts where the record belongs to the dead letter itself."""

_KEPT = ("MessageGroupId", "MessageSystemAttributes")
"""What an outbox keeps of a message, besides its body and its attributes."""

_GONE = ("NonExistentQueue", "QueueDoesNotExist")
"""Endings of SQS's codes for a queue that does not exist."""


class NotResent(Exception):
    """A dead letter cannot be resent this way; the text gives the reason and the remedy."""

    def __init__(self, why: str, outcome: ActOutcome = ActOutcome.REFUSED) -> None:
        super().__init__(why)
        self.outcome = outcome


class PlannedResend(NamedTuple):
    """What the resend of a dead letter will do.

    `new_id` is the new key's record. `begin` is the change to make first, together with a check that the new key is
    open; None if the resend has `begun`, or has no record. `copy` is a message that no record holds.
    """

    new_id: str
    key: str
    begin: BeginResend | None = None
    fingerprint: str = ""
    record_bytes: int = 0
    begun: Record | None = None
    copy: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Resends:
    """Resends dead letters for an operator. Without a `body`, only finishes what has begun.

    `payload_known` means that the reader computes fingerprints as the consumer does.
    """

    store: DynamoDBStore | LendingStore
    sqs: "SQSClient"
    clock: Clock
    reader: Reader
    queue_url: str
    retention_seconds: int
    payload_known: bool = True
    operator: str = ""
    why: str = ""
    body: str | None = None

    def other_id(self, decision: Decision) -> str:
        """The id of the new key's record."""
        begun = None if decision.record is None else resending(decision.record)
        if begun is not None and self.body is None:
            return begun.new_id
        own = decision.verdict in OWN_RECORD and not (begun is not None and begun.old_id)
        return self._edited(decision.dead_letter, own=own).record_id

    def carry_out(self, decision: Decision) -> None:
        """Begin the resend unless it has begun, send its message and mark its record. The dead letter may be deleted
        then. Raises NotResent.
        """
        planned = self.planned(decision)
        record = planned.begun if planned.begin is None else self._begin(planned, planned.begin, decision.record)
        if planned.copy is not None:
            self._send_copy(planned.copy)
        if record is not None:
            self._finish(record, planned)

    def planned(self, decision: Decision) -> PlannedResend:
        """What will be done, if it may be done now. Writes nothing. Raises NotResent."""
        letter = decision.dead_letter
        found = self._read(letter.record_id) if decision.verdict in OWN_RECORD else None
        begun = None if found is None else resending(found)
        if self.body is None and found is not None and (done := resent(found)) is not None and found.outbox is None:
            return PlannedResend(done.new_id, letter.key_of(done.new_id))
        if found is not None and begun is not None and not begun.old_id:
            return self._going_out(letter, found, begun) or self._new(letter, found, refused=found.version)
        if self.body is None:
            before = "" if begun is None else f": {begun.operator} began it as {begun.new_id}, with a version before"
            raise NotResent(f"the body to resend is not known{before}: give --body FILE with the complete new body")
        if decision.verdict not in OWN_RECORD or begun is not None:
            return self._derived(letter, found, begun)
        return self._new(letter, found)

    # A resend that has begun.

    def _going_out(self, letter: DeadLetter, found: Record, begun: Resend) -> PlannedResend | None:
        """The resend that has begun; None if SQS can never accept its message, so that another body may replace it."""
        if isinstance(held := self._claim_on(letter, found), HeldElsewhere):
            raise NotResent(f"{found.owner} is sending its new body, until {held.until_ms} (epoch ms): wait")
        try:
            (message,) = sends_in(from_text(found.outbox)).values()
        except Exception as error:
            raise NotResent(f"the outbox of its record cannot be read: {type(error).__name__}") from error
        if self.body not in (None, message.arguments["MessageBody"]):
            if self._refusal(message) is not None:
                return None
            raise NotResent(
                f"another body, of {len(message.arguments['MessageBody'])} characters, is going out as {begun.new_id}: "
                f"{begun.operator} began its resend ({begun.why}). Finish it without --body, and resend its own dead "
                "letter if it fails"
            )
        return PlannedResend(begun.new_id, letter.key_of(begun.new_id), begun=found)

    def _finish(self, record: Record, planned: PlannedResend) -> None:
        """Send what is left and mark the record, under the version read. Whoever does so too sends the same message."""
        if planned.copy is None:
            sending = Sending(self.sqs, idempotency_key(record.id), self._deadline())
            sending.send(sends_in(from_text(record.outbox)))
            if sending.why is not None:
                raise NotResent(f"{sending.why}. Its resend has begun: finish it later", ActOutcome.UNCONFIRMED)
        marked, told = mark(Claimed(record, self._claim(record.id, None))), ""
        match ask(marked, record, self.store, self._deadline(), max_retries=SETTLE_RETRIES):
            case Settled():
                return
            case Unknown(why):
                told = f"it was sent, but its record was not completed: {why}; run the command again"
            case ClaimLost(found):
                by = None if found is None else resent(found)
                if by is not None and by.new_id == planned.new_id:
                    return
                taker = None if found is None or resending(found) is None else found.owner
                told = f"its resend is being finished by {taker}" if taker else "its record has changed meanwhile"
                told += ": run the command again"
        raise NotResent(told, ActOutcome.UNCONFIRMED)

    # A new one.

    def _new(self, letter: DeadLetter, found: Record | None, refused: str | None = None) -> PlannedResend:
        """A resend with a record, in place of `found`."""
        match self._claim_on(letter, found):
            case AlreadyCompleted():
                raise NotResent("it has already completed: have the producer send a new message")
            case HeldElsewhere():
                raise NotResent("a worker holds its claim and may still handle the old body: wait until the lease ends")
            case Unsent() if refused is None:
                raise NotResent("its effect took place, but its messages have not been sent: use `dlq redrive`")
        if (found is None or found.validation is None) and not self.payload_known:
            raise NotResent("its record has no fingerprint, and the consumer's payload= is not known: give --consumer")
        if isinstance(self.store, LendingStore):
            raise NotResent(
                f"the record of {letter.key} is in a relational database, where no resend is kept: have the producer "
                "send the corrected message, and use `dlq delete`"
            )
        new = self._edited(letter, own=True)
        self._require_another_key(letter, new)
        self._require_open(new)
        message = self._outgoing(new)
        resend = Resend(
            new_id=new.record_id,
            operator=self.operator,
            why=self.why,
            message_id=letter.id,
            original_id=letter.staying.original_id,
        )
        claim = self._claim(letter.record_id, letter.fingerprint)
        begin = BeginResend(claim, resend, to_text([message]), refused)
        size = begin.change(found, self.clock.epoch_ms(), new.fingerprint).new.size_bytes
        if size > MOST_RECORD_BYTES:
            raise NotResent(
                f"its record would have {size} bytes with the new body, and {MOST_RECORD_BYTES} fit: have the producer "
                "send the corrected message"
            )
        return PlannedResend(new.record_id, new.key, begin, new.fingerprint, size)

    def _begin(self, planned: PlannedResend, begin: BeginResend, seen: Record | None) -> Record:
        """Write the new body to the record."""
        assert not isinstance(self.store, LendingStore)  # `_new` has refused it
        check = check_open(planned.new_id, planned.fingerprint, self.store.table_name, self.clock.epoch_ms())
        match ask(begin, seen, self.store, self._deadline(), actions=[check]):
            case Claimed(record):
                return record
            case Unknown(why):
                raise NotResent(f"its record could not be written: {why}")
            case _:
                raise NotResent("the record of the old or the new key has just changed: run the command again")

    def _derived(self, letter: DeadLetter, found: Record | None, begun: Resend | None) -> PlannedResend:
        """A resend without a record, or one that a version before has begun with this body."""
        new = self._edited(letter, own=False)
        self._require_another_key(letter, new)
        if begun is None:
            # If the key is derived from this very body, what has completed under it is this resend.
            self._require_open(new, unless_completed=new.stamp is not None and new.key == new.stamp.key)
        elif (begun.new_id, begun.fingerprint) != (new.record_id, new.fingerprint):
            raise NotResent(
                f"{begun.operator} began to send it with another body, as {begun.new_id}, with a version before: "
                "give that body"
            )
        self._outgoing(new)
        return PlannedResend(new.record_id, new.key, begun=found, copy=new.resent())

    def _send_copy(self, copy: Mapping[str, Any]) -> None:
        try:
            self.sqs.send_message(QueueUrl=self.queue_url, **copy)
        except (ClientError, BotoCoreError) as error:
            raise NotResent(f"SQS did not confirm it: {code_of(error)}", ActOutcome.UNCONFIRMED) from error

    # What is refused before anything is written.

    def _require_another_key(self, letter: DeadLetter, new: DeadLetter) -> None:
        if new.unkeyed is not None:
            raise NotResent(f"the new body has no usable key: {new.unkeyed}")
        if letter.unkeyed is None and new.record_id == letter.record_id:
            raise NotResent(
                f"the new body has the same key, {new.key}, under which it would have no effect of its own: change the "
                "key, or correct the consumer and use `dlq redrive`"
            )

    def _require_open(self, new: DeadLetter, *, unless_completed: bool = False) -> None:
        """Raise NotResent if the new key's record does not let in the new body, like `check_open`."""
        found = self._read(new.record_id)
        if found is None:
            return
        if (by := resent(found) or resending(found)) is not None:
            raise NotResent(
                f"the new body's key {new.key} was itself resent, as {by.new_id}, so its messages no longer run: "
                "give the body another key"
            )
        if taken_back(found) is not None:
            raise NotResent(f"a resend with this body, as {new.key}, was taken back: change the body and its key")
        met = self._claim_on(new, found)
        if isinstance(met, OtherPayload):
            raise NotResent(f"the new body's key {new.key} was used for another payload: give the body another key")
        if found.status in (Status.COMPLETED, Status.SENDING) and not unless_completed:
            raise NotResent(
                f"a message with this body has completed under the key {new.key}: it would not be handled again"
            )

    def _outgoing(self, new: DeadLetter) -> Outgoing:
        """The message as an outbox holds it. Raises NotResent if SQS would refuse it."""
        try:
            copy = new.resent()
            attributes = {name: value for name, value in copy["MessageAttributes"].items() if name != STAMP}
            kept: dict[str, Any] = {name: copy[name] for name in _KEPT if name in copy}
            message = outgoing(self.queue_url, copy["MessageBody"], {"MessageAttributes": attributes, **kept})
        except (NoRoom, TypeError, ValueError) as error:
            raise NotResent(f"SQS would refuse its new message: {error}") from error
        if (why := self._refusal(message)) is not None:
            raise NotResent(f"SQS would refuse its new message: {why}")
        return message

    def _refusal(self, message: Outgoing) -> str | None:
        """Why SQS can never accept a message: its queue is gone, or the message is too long for it."""
        url, arguments = message.queue_url, message.arguments
        try:
            found = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["MaximumMessageSize"])
        except ClientError as error:
            if code_of(error).endswith(_GONE):
                return f"its queue {url} does not exist"
            raise NotResent(f"the limits of {url} could not be read: {code_of(error)}") from error
        most = int(found.get("Attributes", {}).get("MaximumMessageSize", MOST_BYTES))
        stamp = stamped(f"{idempotency_key(url)}-1")
        size = size_of(arguments["MessageBody"], {**arguments.get("MessageAttributes", {}), **stamp})
        return f"it has {size} bytes, and {url} takes {most}" if size > most else None

    def _edited(self, letter: DeadLetter, *, own: bool) -> DeadLetter:
        """The letter with the new body, as the consumer will read it: with the stamp of its `own` record's outbox, or
        with a derived one.
        """
        body = self.body or ""
        stamp = stamped(f"{idempotency_key(letter.record_id)}-1") if own else letter.derived(body)
        attributes = {**letter.raw.get("MessageAttributes", {}), **stamp}
        return self.reader.read({**letter.raw, "Body": body, "MessageAttributes": attributes}, self.clock.epoch_ms())

    def _read(self, id: str) -> Record | None:
        """The record with this id, unless it has expired."""
        (found,) = self.store.read([id])
        if isinstance(found, Unknown):
            raise NotResent(f"the record {id} could not be read: {found.why}")
        return None if found is None or found.expired(self.clock.epoch_ms()) else found

    def _deadline(self) -> Deadline:
        return Deadline.after(self.clock, ASK_SECONDS * 1000)

    def _claim(self, id: str, fingerprint: str | None) -> Claim:
        return Claim(id, fingerprint, self.operator, 0, self.retention_seconds, lease_ms=0)

    def _claim_on(self, letter: DeadLetter, found: Record | None) -> object:
        return claim_on(letter, found, self.clock.epoch_ms())
