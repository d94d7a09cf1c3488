"""Converts a message to its work: the claim to make, or why the message has no usable key."""

from dataclasses import dataclass, replace
from functools import partial

from idempotent_receiver.batch.items import MakeClaim, Work
from idempotent_receiver.errors import Failure, blames_input, failure_of
from idempotent_receiver.handler.attempt import AsyncHandle, Attempt, Handle
from idempotent_receiver.payload import EVERYTHING, json_of
from idempotent_receiver.protocol.charges import Allowance
from idempotent_receiver.protocol.record import record_id
from idempotent_receiver.protocol.transitions import Claim
from idempotent_receiver.sqs.dead_letter import stamp_of
from idempotent_receiver.sqs.keys import event_id, keyed, message_id, why_unusable
from idempotent_receiver.sqs.message import Message, sent_ms
from idempotent_receiver.sqs.options import ConsumerOptions
from idempotent_receiver.transaction.outbox import STAMP


@dataclass(frozen=True, slots=True)
class Terms:
    """What the claims of one invocation have in common."""

    owner: str
    lease_until_ms: int
    lease_ms: int | None


def find_claim(message: Message, options: ConsumerOptions, terms: Terms) -> tuple[Message, str, Claim | Failure]:
    """The message with its body, its key, and the claim to make, or the failure if it has no usable key."""
    id_of = partial(record_id, options.store.namespace)
    try:
        message, key, fingerprint = with_key(message, options)
    except BaseException as error:  # noqa: BLE001  # a user's strategy may even exit: that concerns only this message
        return message, "", _no_key(error, with_text=options.error_texts)
    claim = Claim(
        id=id_of(key),
        fingerprint=fingerprint,
        owner=terms.owner,
        lease_until_ms=terms.lease_until_ms,
        retention_seconds=options.retention_seconds,
        lease_ms=terms.lease_ms,
        allowance=None if options.max_attempts is None else allowance_of(message, options),
    )
    return message, key, claim


def with_key(message: Message, options: ConsumerOptions) -> tuple[Message, str, str]:
    """The message with its body, its key, and its payload's fingerprint. Raises as `keyed` does."""
    strategy, open_envelope = options.key, options.open_envelope
    if is_s3_test(message, options):
        strategy, open_envelope = message_id, str
    payload = EVERYTHING if options.payload is None else options.payload
    return keyed(message, strategy, payload, open_envelope, partial(record_id, options.store.namespace))


def allowance_of(message: Message, options: ConsumerOptions) -> Allowance:
    """What the message may cost. One that was redriven begins anew at the count in its stamp, but no younger."""
    first_ms, base = sent_ms(message), 0
    if message.message_attributes and (stamp := stamp_of(message.message_attributes)) is not None:
        base = stamp.charged or 0
        if stamp.since is not None:
            since_ms = int(stamp.since.timestamp() * 1000)
            first_ms = since_ms if first_ms is None else min(first_ms, since_ms)
    retry_until_ms = None if first_ms is None else first_ms + 1000 * options.max_age_seconds
    return Allowance(message.id, options.max_attempts, base, retry_until_ms)


def work_of(message: Message, key: str, claim: Claim | Failure | MakeClaim, handle: Handle | AsyncHandle) -> Work:
    """The message's work."""
    group = message.group_id if message.fifo else None
    # A message sent again under its old key may have a record even on its first delivery.
    seen_before = message.receive_count > 1 or STAMP in message.message_attributes
    return Work(key=key, claim=claim, handle=handle, group=group, seen_before=seen_before)


def is_s3_test(message: Message, options: ConsumerOptions) -> bool:
    """Whether the message is the test that S3 sends, directly or through SNS, when a notification is configured, to a
    consumer of its events. It is completed under its messageId, without running the handler.
    """
    if options.key is not event_id or "s3:TestEvent" not in message.raw_body:
        return False
    try:
        event = json_of(message.raw_body)
        if isinstance(event, dict) and event.get("Type") == "Notification":
            event = json_of(event["Message"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return False
    return isinstance(event, dict) and event.get("Service") == "Amazon S3" and event.get("Event") == "s3:TestEvent"


def _no_key(error: BaseException, *, with_text: bool) -> Failure:
    if blames_input(error):
        return Failure(type="UnusableKey", text=why_unusable(error), permanent=True, started=False)
    return replace(failure_of(error, with_text=with_text), started=False)


async def nothing_async(attempt: Attempt) -> object:
    """Handle S3's test event for an asynchronous consumer."""
    return None


def nothing(attempt: Attempt) -> object:
    """Handle S3's test event."""
    return None
