"""Sends a record's messages and makes its calls, or gives one up, when the consumed message is gone and no redelivery
will do it.

The command takes the record over as a worker does, so that no worker does the same at the same time. Its lease is
longer than it can send and call. Whatever stops it, it records what is done, and ends its lease.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from idempotent_receiver.batch.settings import SendAnswer
from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.handler.attempt import Attempt, Handled, OwnCall, Raised, run, run_async
from idempotent_receiver.handler.callees import Callees
from idempotent_receiver.handler.outcome import (
    Completed,
    Duplicate,
    HeldElsewhere,
    NotSent,
    of_mark,
    of_stop,
)
from idempotent_receiver.process_end import Timer
from idempotent_receiver.protocol.answers import AlreadyCompleted, Claimable, Settled, SettleResult, Unsent
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask
from idempotent_receiver.protocol.record import Record, Status, idempotency_key
from idempotent_receiver.protocol.sending import TakeOver, mark, stop
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.protocol.transitions import Claim, ClaimAnswer, Claimed, Settlement, decide
from idempotent_receiver.sqs.sends import send_messages
from idempotent_receiver.transaction.outbox import (
    GivenUp,
    OutboxCall,
    OutboxEntry,
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

CALL_SECONDS = 15 * 60
"""The longest time for calls, as on Lambda. Then the command's process ends, where a kernel timer can end it."""

LONGEST_BACKOFF_SECONDS = 20
"""botocore's longest pause between two attempts of a request."""

TAKEN_BY_A_WORKER = "a worker has taken its record over, and sends what is left: wait"
OUT_OF_TIME = f"not all was sent and called within {SEND_SECONDS} s: repeat the command"


def send_from(
    store: RecordStore,
    sqs: "SQSClient",
    id: str,
    clock: Clock,
    retention_seconds: int,
    *,
    callees: Callees | None = None,
) -> str | None:
    """Send a record's messages and make its calls, one after another, and mark the record. Returns why it failed, or
    None. `callees` are the consumer's functions, if its code is there.

    As in a worker, an invalid message does not stop the messages after it, and one that was not confirmed stops only
    those in its FIFO group; a call that raises stops no other. What was done is recorded, also before an exception such
    as KeyboardInterrupt.
    """
    deadline = Deadline.after(clock, SEND_SECONDS * 1000)
    longest_seconds = max(_longest_request_seconds(sqs), CALL_SECONDS if callees else 0)
    lease_ms = int((SEND_SECONDS + longest_seconds) * 1000)
    claim = Claim(id, None, "operator", 0, retention_seconds, lease_ms=lease_ms)
    taken = _taken_over(store, claim, deadline, partial(_unknown_call, callees))
    if isinstance(taken, str):
        return taken
    sending, left = Sending(sqs, idempotency_key(id), deadline), from_text(taken.record.outbox)
    try:
        sending.send(sends_in(left))
        if callees and (calls := calls_in(left)):
            with _process_ends(CALL_SECONDS):
                sending.call(calls, callees, taken.record)
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


def to_give_up(found: Record | Unknown | None, number: int, now_ms: int) -> OutboxEntry | str:
    """The message or call with this number, which is left; or why it cannot be given up."""
    left = _left(found, now_ms)
    return left if isinstance(left, str) else left.get(number) or _none_left(number, left)


def give_up(
    store: RecordStore, id: str, number: int, reason: GivenUp, *, clock: Clock, retention_seconds: int
) -> GaveUp:
    """Replace a record's message or call that is left by a tombstone with the reason. It is then never sent or made. If
    none is left, the record is marked. Takes the record over first, as `send_from` does.
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


def _unknown_call(callees: Callees | None, left: Mapping[int, OutboxEntry]) -> str | None:
    """Why what is left has a call that cannot be made here; None if all can."""
    calls = calls_in(left).values()
    if calls and callees is None:
        return "it has calls to make: give --consumer module:handler, which imports your code"
    return next((why for call in calls if callees is not None and (why := callees.unknown(call)) is not None), None)


@contextmanager
def _process_ends(seconds: float) -> Iterator[None]:
    """End this process after so many seconds in the block, so that no call outlasts the lease."""
    try:
        timer = Timer()
    except (OSError, AttributeError, RuntimeError):  # this system has no such timer
        yield
        return
    try:
        timer.arm(seconds)
        yield
    finally:
        timer.delete()


def _left(found: Record | Unknown | None, now_ms: int) -> dict[int, OutboxEntry] | str:
    """What is left of a record's outbox, by numbers; or why it may not be sent."""
    if isinstance(found, Unknown):
        return f"its record could not be read: {found.why}"
    if (why := _refusal(decide(found, Claim("", None, "", 0), (), now_ms), found, now_ms)) is not None:
        return why
    assert isinstance(found, Record)  # otherwise, there is a refusal
    try:
        return from_text(found.outbox)
    except Exception as error:  # noqa: BLE001  # anyone may have edited the record
        return f"its outbox cannot be read: {type(error).__name__}"


def _taken_over(
    store: RecordStore,
    claim: Claim,
    deadline: Deadline,
    refuse: Callable[[Mapping[int, OutboxEntry]], str | None] = lambda left: None,
) -> Claimed | str:
    """The record, taken over for `claim` unless `refuse` says why not; or why it was not."""
    (found,) = store.read([claim.id])
    left = _left(found, deadline.now_ms)
    if isinstance(left, str):
        return left
    if (why := refuse(left)) is not None:
        return why
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
    """Sends messages and makes calls: the numbers of those done (`sent`), and why others were refused for good, or are
    left.
    """

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

    def call(self, left: Mapping[int, OutboxCall], callees: Callees, record: Record) -> None:
        """Make these calls, given by their numbers, until the deadline. One that raises stops no other."""
        for number, call in left.items():
            if self._late():
                self.failed.append(OUT_OF_TIME)
                return
            attempt = Attempt(record.id, record.id, record.attempts or 1, self.deadline, "operator")
            attempt.call = OwnCall(call.name, partial(callees.make, call, f"{self.key}-{number}"))
            made: Any = _made_async(attempt) if callees.asynchronous(call.name) else None
            handled = run(_make, attempt) if made is None else asyncio.run(made)
            if not isinstance(handled, Raised):
                self.sent.add(number)
                continue
            if isinstance(handled.error, KeyboardInterrupt | SystemExit):
                raise handled.error
            why = f"call {number} ({call.name}): {handled.failure.reason}"
            (self.refused if handled.failure.permanent else self.failed).append(why)

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
        """Why not all is done; None if it is."""
        if self.failed:
            return "; ".join([*self.failed, *self.refused])
        return f"all else is done, but {'; '.join(self.refused)}" if self.refused else None


def _make(attempt: Attempt) -> Any:
    assert attempt.call is not None  # it was set
    return attempt.call.make()


async def _made_async(attempt: Attempt) -> Handled:
    return await run_async(_make, attempt)


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
