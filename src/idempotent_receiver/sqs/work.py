"""From a message to its work: its key, its fingerprint and the claim to make."""

from dataclasses import dataclass
from functools import partial

from idempotent_receiver.batch.items import Work
from idempotent_receiver.errors import Failure, UnusableKey, text_of
from idempotent_receiver.handler.attempt import AsyncHandle, Attempt, Handle
from idempotent_receiver.payload import Payload
from idempotent_receiver.protocol.record import record_id, usable_id
from idempotent_receiver.protocol.store import RecordStore
from idempotent_receiver.protocol.transitions import Claim
from idempotent_receiver.sqs.dead_letter import STAMP
from idempotent_receiver.sqs.keys import KeyStrategy, fingerprint_by
from idempotent_receiver.sqs.message import Message


@dataclass(frozen=True, slots=True)
class ClaimTerms:
    """What the claims of one consumer are made of."""

    store: RecordStore
    key: KeyStrategy
    payload: Payload
    retention_seconds: int

    def work(self, message: Message, handle: Handle | AsyncHandle, owner: str, lease_until_ms: int) -> Work:
        """The message's work, with the claim to make, or with the failure of a message that has no usable key."""
        group = message.group_id if message.fifo else None
        try:
            key = self.key(message)
            id = usable_id(key, partial(record_id, self.store.namespace))
            fingerprint = fingerprint_by(self.key, message, self.payload)
        except BaseException as error:  # noqa: BLE001  # the strategy is the user's, its exit too this message's alone
            return Work(key="", claim=_no_key(error), handle=_never, group=group)
        claim = Claim(
            id=id,
            fingerprint=fingerprint,
            owner=owner,
            lease_until_ms=lease_until_ms,
            retention_seconds=self.retention_seconds,
        )
        # A message that was sent again under its old key may be known although SQS delivers it for the first time.
        seen_before = message.receive_count > 1 or STAMP in message.message_attributes
        return Work(key=key, claim=claim, handle=handle, group=group, seen_before=seen_before)


def _no_key(error: BaseException) -> Failure:
    known = isinstance(error, UnusableKey)
    text = text_of(error) if known else f"the key strategy raised {type(error).__name__}"
    # An exit may be the process's own, by a signal that came just then: it says nothing against the message.
    return Failure(type="UnusableKey", text=text, permanent=isinstance(error, Exception), started=False)


def _never(attempt: Attempt) -> object:
    raise AssertionError("a message without a key is never run")
