"""Converts a message to its work: the claim to make, or why the message has no usable key."""

from functools import partial

from idempotent_receiver.batch.items import Work
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.attempt import AsyncHandle, Attempt, Handle
from idempotent_receiver.payload import EVERYTHING, json_of
from idempotent_receiver.protocol.outbox import STAMP
from idempotent_receiver.protocol.record import record_id, usable
from idempotent_receiver.protocol.transitions import Claim
from idempotent_receiver.sqs.keys import event_id, fingerprint_by, message_id, why_unusable
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.options import ConsumerOptions


def work_of(
    message: Message,
    options: ConsumerOptions,
    handle: Handle | AsyncHandle,
    *,
    owner: str,
    lease_until_ms: int,
    lease_ms: int | None,
    asynchronous: bool,
) -> Work:
    """The message's work: with the claim to make, or with a failure if the message has no usable key.

    S3's test notification is completed under its messageId, without running the handler.
    """
    group = message.group_id if message.fifo else None
    id_of = partial(record_id, options.store.namespace)
    strategy, payload = options.key, EVERYTHING if options.payload is None else options.payload
    if strategy is event_id and _is_s3_test(message):
        strategy, handle = message_id, _nothing_async if asynchronous else _nothing
    try:
        key = usable(strategy(message), id_of)
        fingerprint = fingerprint_by(strategy, message, payload)
    except BaseException as error:  # noqa: BLE001  # a user's strategy may even exit: that concerns only this message
        return Work(key="", claim=_no_key(error), handle=_never, group=group)
    claim = Claim(
        id=id_of(key),
        fingerprint=fingerprint,
        owner=owner,
        lease_until_ms=lease_until_ms,
        retention_seconds=options.retention_seconds,
        lease_ms=lease_ms,
    )
    # A message sent again under its old key may have a record even on its first delivery.
    seen_before = message.receive_count > 1 or STAMP in message.message_attributes
    return Work(key=key, claim=claim, handle=handle, group=group, seen_before=seen_before)


def _is_s3_test(message: Message) -> bool:
    """Whether the message is the test that S3 sends, directly or through SNS, when a notification is configured."""
    if "s3:TestEvent" not in message.raw_body:
        return False
    try:
        event = json_of(message.raw_body)
        if isinstance(event, dict) and event.get("Type") == "Notification":
            event = json_of(event["Message"])
    except (ValueError, RecursionError, KeyError, TypeError):
        return False
    return isinstance(event, dict) and event.get("Service") == "Amazon S3" and event.get("Event") == "s3:TestEvent"


def _no_key(error: BaseException) -> Failure:
    text = why_unusable(error)
    # A SystemExit may come from a signal to the process, which says nothing about the message.
    return Failure(type="UnusableKey", text=text, permanent=isinstance(error, Exception), started=False)


def _nothing(attempt: Attempt) -> object:
    return None


async def _nothing_async(attempt: Attempt) -> object:
    return None


def _never(attempt: Attempt) -> object:
    raise AssertionError  # a message without a key never runs
