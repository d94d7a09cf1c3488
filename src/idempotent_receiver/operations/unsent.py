"""Sends a record's messages when the consumed message is gone and no redelivery will send them.

The command takes the record over as a worker does, so that no worker sends at the same time. Its lease is longer than
it can send. Whatever stops it, it records what SQS has confirmed, and ends its lease.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from idempotent_receiver.batch.settings import SendAnswer
from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.handler.outcome import (
    Completed,
    Duplicate,
    HeldElsewhere,
    NotSent,
    of_mark,
    of_stop,
)
from idempotent_receiver.protocol.answers import AlreadyCompleted, Claimable, SettleResult, Unsent
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask
from idempotent_receiver.protocol.outbox import Outgoing, confirmed, from_text
from idempotent_receiver.protocol.record import Record, Status, idempotency_key
from idempotent_receiver.protocol.sending import TakeOver, mark, stop
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.protocol.transitions import Claim, ClaimAnswer, Claimed, decide
from idempotent_receiver.sqs.sends import send_messages

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

SEND_SECONDS = 60
"""After this time, no further message is sent."""

RECORD_SECONDS = 30
"""The time for recording what was sent."""

LONGEST_BACKOFF_SECONDS = 20
"""botocore's longest pause between two attempts of a request."""

OUT_OF_TIME = f"not all messages were sent within {SEND_SECONDS} s: repeat the command"


def send_from(store: RecordStore, sqs: "SQSClient", id: str, clock: Clock, retention_seconds: int) -> str | None:
    """Send a record's messages one after another, and mark the record. Returns why it failed, or None.

    As in a worker, an invalid message does not stop the messages after it, and one that was not confirmed stops only
    those in its FIFO group. What was confirmed is recorded, also before an exception such as KeyboardInterrupt.
    """
    deadline = Deadline.after(clock, SEND_SECONDS * 1000)
    (found,) = store.read([id])
    if isinstance(found, Unknown):
        return f"its record could not be read: {found.why}"
    lease_ms = int((SEND_SECONDS + _longest_request_seconds(sqs)) * 1000)
    claim = Claim(id, None, "operator", 0, retention_seconds, lease_ms=lease_ms)
    if (why := _refusal(decide(found, claim, (), deadline.now_ms), found, deadline)) is not None:
        return why
    assert isinstance(found, Record)  # otherwise, there is a refusal
    try:
        left = from_text(found.outbox)
    except Exception as error:  # noqa: BLE001  # anyone may have edited the record
        return f"its outbox cannot be read: {type(error).__name__}"
    taken: Claimable | ClaimAnswer | Unknown = ask(TakeOver(claim), found, store, deadline)
    if isinstance(taken, Unknown):
        return f"its record could not be taken over: {taken.why}"
    if not isinstance(taken, Claimed):
        return _refusal(taken, found, deadline)
    sending = Sending(sqs, idempotency_key(id), deadline)
    try:
        sending.send(left)
    except BaseException:
        _recorded(store, taken, sending, clock)
        raise
    return _recorded(store, taken, sending, clock)


def _longest_request_seconds(sqs: Any) -> float:
    """The longest time that a request may take, by the client's timeouts and number of attempts."""
    config: Any = getattr(getattr(sqs, "meta", None), "config", None)
    if config is None:
        return 0.0
    retries = config.retries or {}
    attempts = retries.get("total_max_attempts") or retries.get("max_attempts", 4) + 1
    return float(attempts * (config.connect_timeout + config.read_timeout + LONGEST_BACKOFF_SECONDS))


def _refusal(met: Claimable | ClaimAnswer, found: Record | None, deadline: Deadline) -> str | None:
    """Why nothing is sent; None if the record's messages may be sent."""
    if isinstance(met, HeldElsewhere):
        return f"a worker holds its claim until {met.until_ms} (epoch ms) and may be sending its messages: wait"
    if isinstance(met, AlreadyCompleted):
        return "its messages have already been sent"
    if found is not None and found.expired(deadline.now_ms):
        return "its record has expired, and its key is free again"
    return None if isinstance(met, Unsent) else "its record has no messages to send"


@dataclass
class Sending:
    """Sends messages: the numbers of those `sent`, and why others were refused for good, or not sent."""

    sqs: "SQSClient"
    key: str
    deadline: Deadline
    sent: set[int] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def send(self, left: dict[int, Outgoing]) -> None:
        """Send these messages, given by their numbers, until the deadline."""
        queues, groups = set[str](), set[tuple[str, str]]()
        for number, message in left.items():
            url, group = message.queue_url, message.arguments.get("MessageGroupId", "")
            if url in queues or (url, group) in groups:
                continue
            if self._late():
                self.failed.append(OUT_OF_TIME)
                return
            answer = self._answer(url, (f"{self.key}-{number}", message.arguments))
            if answer.confirmed:
                self.sent.add(number)
            elif answer.own:
                self.refused.append(f"message {number}: {answer.why}")
            else:
                self.failed.append(f"message {number}: {answer.why}")
                queues |= {url} if answer.of_queue else set()
                groups |= {(url, group)} if message.fifo else set()

    def _answer(self, url: str, entry: tuple[str, Mapping[str, Any]]) -> SendAnswer:
        tries = 0
        while True:
            tries += 1
            (answer,) = send_messages(self.sqs, url, [entry])
            if answer.confirmed or tries >= answer.tries or self._late():
                return answer

    def _late(self) -> bool:
        return self.deadline.moment().left_to_start_seconds <= 0

    @property
    def why(self) -> str | None:
        """Why not all messages were sent; None if they were."""
        if self.failed:
            return "; ".join([*self.failed, *self.refused])
        return f"all other messages were sent, but {'; '.join(self.refused)}" if self.refused else None


def _recorded(store: RecordStore, taken: Claimed, sending: Sending, clock: Clock) -> str | None:
    """Mark the record, or record what is left and end the lease. Returns why not all is sent and marked, or None."""
    deadline = Deadline.after(clock, RECORD_SECONDS * 1000)
    left = confirmed(taken.record.outbox, sending.sent)
    ends = stop(taken, left, deadline.now_ms) if from_text(left) else mark(taken)
    answer: SettleResult | Unknown = ask(ends, taken.record, store, deadline, max_retries=SETTLE_RETRIES)
    if ends.outcome["status"] == Status.SENDING:
        ended = of_stop(answer, taken.claim, deadline, NotSent(sending.why or "it was interrupted"))
    else:
        ended = of_mark(answer, taken.claim, deadline, ran=False)
    match ended:
        case Completed() | Duplicate():
            return None
        case NotSent(why):
            return why
        case _:
            return "a worker has taken its record over, and sends what is left: wait"
