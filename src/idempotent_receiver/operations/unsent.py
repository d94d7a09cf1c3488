"""Sends a record's messages when the consumed message is gone and no redelivery will send them."""

from typing import TYPE_CHECKING

from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.handler.outcome import SettleFailed, of_mark
from idempotent_receiver.protocol import sending
from idempotent_receiver.protocol.answers import AlreadyCompleted, HeldElsewhere, SettleResult, Unsent
from idempotent_receiver.protocol.exchange import ask
from idempotent_receiver.protocol.outbox import from_text
from idempotent_receiver.protocol.record import idempotency_key
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed, decide
from idempotent_receiver.sqs.sends import send_messages

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

SEND_SECONDS = 60


def send_from(store: RecordStore, sqs: "SQSClient", id: str, clock: Clock, retention_seconds: int) -> str | None:
    """Send a record's messages one after another, and mark the record. Returns why it failed, or None.

    As in a worker, an invalid message does not stop the messages after it.
    """
    deadline = Deadline.after(clock, SEND_SECONDS * 1000)
    (found,) = store.read([id])
    if isinstance(found, Unknown):
        return f"its record could not be read: {found.why}"
    claim = Claim(id, None, "operator", 0, retention_seconds)
    met = decide(found, claim, (), deadline.now_ms)
    if isinstance(met, HeldElsewhere):
        return f"a worker holds its claim until {met.until_ms} (epoch ms) and may be sending its messages: wait"
    if isinstance(met, AlreadyCompleted):
        return "its messages have already been sent"
    if found is not None and found.expired(deadline.now_ms):
        return "its record has expired, and its key is free again"
    if not isinstance(met, Unsent):
        return "its record has no messages to send"
    try:
        messages = from_text(met.record.outbox)
    except Exception as error:  # noqa: BLE001  # anyone may have edited the record
        return f"its outbox cannot be read: {type(error).__name__}"
    refused: list[str] = []
    for number, message in enumerate(messages, 1):
        entry = (f"{idempotency_key(id)}-{number}", message.arguments)
        (answer,) = send_messages(sqs, message.queue_url, [entry])
        if answer.own:
            refused.append(f"message {number}: {answer.why}")
        elif not answer.confirmed:
            return f"message {number}: {answer.why}"
    if refused:
        return f"all other messages were sent, but {'; '.join(refused)}"
    marked: SettleResult | Unknown = ask(sending.mark(Claimed(met.record, claim)), met.record, store, deadline)
    ended = of_mark(marked, claim, deadline, ran=False)
    return ended.why if isinstance(ended, SettleFailed) else None
