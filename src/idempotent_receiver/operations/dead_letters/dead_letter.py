"""A dead letter as the consumer reads it: key, fingerprint, origin and age."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from idempotent_receiver.operations.dead_letters.queue import Raw
from idempotent_receiver.operations.text import escaped
from idempotent_receiver.payload import EVERYTHING, Payload
from idempotent_receiver.sqs import keys
from idempotent_receiver.sqs.dead_letter import Stamp, copy_of, stamp_of
from idempotent_receiver.sqs.message import Message, messages_of
from idempotent_receiver.sqs.received import lambda_record
from idempotent_receiver.transaction.outbox import STAMP


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A dead letter.

    `unkeyed` says why it has no usable key, `malformed` why it could not be read; in both cases
    `message.key` and `fingerprint` are empty. `source` is the ARN of the queue where it failed, if SQS or the stamp
    names one. `since_ms` is the message's earliest known time (epoch). `raw` is the message as received. `charged` is
    its record's count of charged attempts, if that was read.
    """

    raw: Raw
    message: Message
    fingerprint: str
    unkeyed: str | None
    source: str | None
    stamp: Stamp | None
    since_ms: int
    malformed: str | None = None
    charged: int | None = None

    @property
    def id(self) -> str:
        """The messageId in the dead-letter queue."""
        return self.message.id

    @property
    def key(self) -> str:
        """The message's key; empty if it has none."""
        return self.message.key

    @property
    def record_id(self) -> str:
        """The id of the key's record."""
        return self.message.record_id

    def key_of(self, record_id: str) -> str:
        """The key of another record of the same consumer."""
        return record_id.removeprefix(self.record_id.removesuffix(self.key))

    @property
    def line(self) -> str:
        """The unit of ordering: the FIFO group or, on a standard queue, the message itself."""
        return self.message.group_id or self.id if self.message.fifo else self.id

    @property
    def returning(self) -> Stamp:
        """The stamp for a redrive. It omits the failure, as the message may run again, and keeps the count, at which
        its attempts begin anew.
        """
        stay = self.staying
        way_back = replace(stay, reason=None, error_type=None, at=None, exhausted=None)
        return replace(way_back, key=self.key, queue=self.message.queue_arn, charged=self.charged or stay.charged)

    @property
    def staying(self) -> Stamp:
        """The stamp for a dead-letter queue. It also keeps the source queue and the first receive time, which SQS loses
        when a message is sent again.
        """
        before = self.stamp or Stamp(key=self.key or self.id, original_id=self.id)
        since = datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat()
        return replace(before, first_received=since, queue=self.source)

    def copy(self) -> dict[str, Any]:
        """The message to send back to the queue. Raises NoRoom if its stamp does not fit.

        On a FIFO queue, retries of the send share a deduplication id. If the message fails again, its next redrive uses
        a new id.
        """
        return self._copy(self.returning, f"redrive-{self.id}")

    def restored(self) -> dict[str, Any]:
        """The message to send back to the dead-letter queue. Raises NoRoom if its stamp does not fit.

        If its source is known, it then belongs to this consumer, whichever queue it was archived from.
        """
        queue = None if self.source is None else self.message.queue_arn
        return self._copy(replace(self.staying, queue=queue), f"restore-{self.id}")

    def derived(self, body: str) -> dict[str, Any]:
        """The stamp, as a message attribute, for another body, with a key derived from that body, the old key and the
        original messageId.

        Archiving, restoring or redriving does not change the derived key, and another edit never yields an earlier key.
        A key strategy that reads the message's content ignores the derived key. The edited message is new, so its stamp
        has no time and no failure.
        """
        first_id = self.staying.original_id
        key = _digest(first_id, self.key, body)
        stamp = Stamp(key=key, original_id=first_id, queue=self.message.queue_arn, resent_from=self.key or None)
        return {STAMP: {"DataType": "String", "StringValue": stamp.to_json()}}

    def resent(self) -> dict[str, Any]:
        """The edited message to send to the queue. Raises NoRoom if it is too large.

        On a FIFO queue, SQS drops a retry of the send within five minutes. A message that failed again has a new
        messageId, and another body is another message, so their resends are not dropped.
        """
        assert self.stamp is not None, "an edited message is stamped"
        return self._copy(self.stamp, f"resend-{_digest(self.id, self.key, self.message.raw_body)}")

    def _copy(self, stamp: Stamp, deduplication_id: str) -> dict[str, Any]:
        return copy_of(self.message, stamp, deduplication_id if self.message.fifo else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads dead letters with the consumer's queue, key strategy, payload, envelope and record ids."""

    queue_arn: str
    key: keys.KeyStrategy
    record_id: Callable[[str], str]
    open_envelope: keys.OpenEnvelope = str
    payload: Payload = EVERYTHING

    def read(self, raw: Raw, now_ms: int) -> DeadLetter:
        """Read a received message. Accepts any content: an unreadable message is marked `malformed`."""
        try:
            return self._read(raw, now_ms)
        except Exception as error:  # noqa: BLE001  # one poison message must not block the others
            return self._malformed(raw, now_ms, f"{type(error).__name__}: {escaped(error)}")

    def _read(self, raw: Raw, now_ms: int) -> DeadLetter:
        (message,) = messages_of({"Records": [lambda_record(raw, self.queue_arn)]})
        stamp = stamp_of(message.message_attributes)
        unkeyed, fingerprint = None, ""
        try:
            message, key, fingerprint = keys.keyed(message, self.key, self.payload, self.open_envelope, self.record_id)
            message = replace(message, key=key, record_id=self.record_id(key))
        except Exception as error:  # noqa: BLE001  # the strategy may be the user's
            unkeyed = escaped(keys.why_unusable(error))
        return DeadLetter(
            raw=raw,
            message=message,
            fingerprint=fingerprint,
            unkeyed=unkeyed,
            source=message.attributes.get("DeadLetterQueueSourceArn") or (None if stamp is None else stamp.queue),
            stamp=stamp,
            since_ms=_since_ms(message, stamp, now_ms),
        )

    def _malformed(self, raw: Raw, now_ms: int, why: str) -> DeadLetter:
        attributes = {name: str(value) for name, value in dict(raw.get("Attributes") or {}).items()}
        body = str(raw.get("Body", ""))
        message = Message(
            id=str(raw["MessageId"]), body=body, raw_body=body, attributes=attributes, queue_arn=self.queue_arn
        )
        return DeadLetter(
            raw=raw,
            message=message,
            fingerprint="",
            unkeyed=why,
            source=attributes.get("DeadLetterQueueSourceArn"),
            stamp=None,
            since_ms=_since_ms(message, None, now_ms),
            malformed=why,
        )


def _since_ms(message: Message, stamp: Stamp | None, now_ms: int) -> int:
    # Every send or FIFO move resets SentTimestamp; the stamp keeps the original time.
    before = None if stamp is None else stamp.since
    times = [message.sent_at, before]
    return min((int(time.timestamp() * 1000) for time in times if time is not None), default=now_ms)


def _digest(*parts: str) -> str:
    """A digest of the parts, each prefixed with its length so that their boundaries count."""
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return sha256(whole.encode(errors="surrogatepass")).hexdigest()
