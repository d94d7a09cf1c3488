"""Sends a record's messages, or gives one up, when the consumed message is gone and no redelivery will send them.

The command takes the record over as a worker does, so that no worker sends at the same time. Its lease is longer than
it can send. Whatever stops it, it records what SQS has confirmed, and ends its lease.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

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
from idempotent_receiver.protocol.answers import AlreadyCompleted, Claimable, Settled, SettleResult, Unsent
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask
from idempotent_receiver.protocol.record import Record, Status, idempotency_key
from idempotent_receiver.protocol.sending import TakeOver, mark, stop
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.protocol.transitions import Claim, ClaimAnswer, Claimed, Settlement, decide
from idempotent_receiver.sqs.sends import send_messages
from idempotent_receiver.transaction.outbox import (
    GivenUp,
    Outgoing,
    calls_in,
    confirmed,
    from_text,
    sends_in,
    with_reason,
)

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

SEND_SECONDS = 60
"""After this time, no further message is sent."""

RECORD_SECONDS = 30
"""The time for recording what was sent."""

LONGEST_BACKOFF_SECONDS = 20
"""botocore's longest pause between two attempts of a request."""

TAKEN_BY_A_WORKER = "a worker has taken its record over, and sends what is left: wait"
OUT_OF_TIME = f"not all messages were sent within {SEND_SECONDS} s: repeat the command"


def send_from(store: RecordStore, sqs: "SQSClient", id: str, clock: Clock, retention_seconds: int) -> str | None:
    """Send a record's messages one after another, and mark the record. Returns why it failed, or None.

    As in a worker, an invalid message does not stop the messages after it, and one that was not confirmed stops only
    those in its FIFO group. What was confirmed is recorded, also before an exception such as KeyboardInterrupt.
    """
    deadline = Deadline.after(clock, SEND_SECONDS * 1000)
    lease_ms = int((SEND_SECONDS + _longest_request_seconds(sqs)) * 1000)
    taken = _taken_over(store, Claim(id, None, "operator", 0, retention_seconds, lease_ms=lease_ms), deadline)
    if isinstance(taken, str):
        return taken
    sending = Sending(sqs, idempotency_key(id), deadline)
    try:
        sending.send(sends_in(from_text(taken.record.outbox)))
    except BaseException:
        _recorded(store, taken, sending, clock)
        raise
    return _recorded(store, taken, sending, clock)


class GaveUp(NamedTuple):
    """How giving up a message ended: `why` it was not given up, or None. If `in_doubt`, it may have been all the same.
    `left` says whether messages are left to send.
    """

    why: str | None = None
    in_doubt: bool = False
    left: bool = False


def to_give_up(found: Record | Unknown | None, number: int, now_ms: int) -> Outgoing | str:
    """The message with this number, which is left to send; or why it cannot be given up."""
    left = _left(found, now_ms)
    return left if isinstance(left, str) else left.get(number) or _none_left(number, left)


def give_up(
    store: RecordStore, id: str, number: int, reason: GivenUp, *, clock: Clock, retention_seconds: int
) -> GaveUp:
    """Replace a record's message that is left to send by a tombstone with the reason. It is then never sent. If none is
    left, the record is marked. Takes the record over first, as `send_from` does.
    """
    deadline = Deadline.after(clock, RECORD_SECONDS * 1000)
    claim = Claim(id, None, "operator", 0, retention_seconds, lease_ms=2 * RECORD_SECONDS * 1000)
    taken = _taken_over(store, claim, deadline)
    if isinstance(taken, str):
        return GaveUp(taken)
    record, left = taken.record, from_text(taken.record.outbox)
    why = None if number in left else _none_left(number, left)
    outbox = str(record.outbox) if why else with_reason(record.outbox, number, reason)
    answer: SettleResult | Unknown = ask(
        _end(taken, outbox, deadline), record, store, deadline, max_retries=SETTLE_RETRIES
    )
    if why is None and isinstance(answer, Unknown):
        return GaveUp(f"it was not recorded: {answer.why}", in_doubt=True)
    if why is None and not isinstance(answer, Settled):
        why = TAKEN_BY_A_WORKER
    return GaveUp(why, left=bool(from_text(outbox)))


def _none_left(number: int, left: Collection[int]) -> str:
    return f"message {number} is not left to send (left: {', '.join(map(str, left)) or 'none'})"


def _left(found: Record | Unknown | None, now_ms: int) -> dict[int, Outgoing] | str:
    """A record's messages that are left to send, by their numbers; or why they may not be sent."""
    if isinstance(found, Unknown):
        return f"its record could not be read: {found.why}"
    if (why := _refusal(decide(found, Claim("", None, "", 0), (), now_ms), found, now_ms)) is not None:
        return why
    assert isinstance(found, Record)  # otherwise, there is a refusal
    try:
        left = from_text(found.outbox)
    except Exception as error:  # noqa: BLE001  # anyone may have edited the record
        return f"its outbox cannot be read: {type(error).__name__}"
    return "it has calls to make" if calls_in(left) else sends_in(left)


def _taken_over(store: RecordStore, claim: Claim, deadline: Deadline) -> Claimed | str:
    """The record, taken over for `claim`; or why it was not."""
    (found,) = store.read([claim.id])
    left = _left(found, deadline.now_ms)
    if isinstance(left, str):
        return left
    assert isinstance(found, Record)  # otherwise, nothing is left
    taken: Claimable | ClaimAnswer | Unknown = ask(TakeOver(claim), found, store, deadline)
    if isinstance(taken, Unknown):
        return f"its record could not be taken over: {taken.why}"
    if not isinstance(taken, Claimed):
        return str(_refusal(taken, found, deadline.now_ms))
    return taken


def _longest_request_seconds(sqs: Any) -> float:
    """The longest time that a request may take, by the client's timeouts and number of attempts."""
    config: Any = getattr(getattr(sqs, "meta", None), "config", None)
    if config is None:
        return 0.0
    retries = config.retries or {}
    attempts = retries.get("total_max_attempts") or retries.get("max_attempts", 4) + 1
    return float(attempts * (config.connect_timeout + config.read_timeout + LONGEST_BACKOFF_SECONDS))


def _refusal(met: Claimable | ClaimAnswer, found: Record | None, now_ms: int) -> str | None:
    """Why nothing is sent; None if the record's messages may be sent."""
    if isinstance(met, HeldElsewhere):
        return f"a worker holds its claim until {met.until_ms} (epoch ms) and may be sending its messages: wait"
    if isinstance(met, AlreadyCompleted):
        return "its messages have already been sent"
    if found is not None and found.expired(now_ms):
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
    ends = _end(taken, confirmed(taken.record.outbox, sending.sent), deadline)
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
            return TAKEN_BY_A_WORKER


def _end(taken: Claimed, outbox: str, deadline: Deadline) -> Settlement:
    """What to write once the outbox is as given: what is left, or that nothing is."""
    return stop(taken, outbox, deadline.now_ms) if from_text(outbox) else mark(taken, outbox)
