"""Schedules failed messages' redelivery: changes visibility timeouts, ten per request, within a second, best effort."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from idempotent_receiver import options
from idempotent_receiver.batch.executor import Executor
from idempotent_receiver.clock import Clock, Deadline
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler.outcome import (
    ClaimFailed,
    Failed,
    HeldElsewhere,
    NotSent,
    NotStarted,
    Outcome,
    SettleFailed,
)
from idempotent_receiver.sqs.message import Message

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient
    from mypy_boto3_sqs.type_defs import ChangeMessageVisibilityBatchRequestEntryTypeDef

LONGEST_VISIBILITY_SECONDS = 12 * 60 * 60 - 20 * 60
"""SQS counts its 12-hour limit from the receive: a batching window (5 min) and a full invocation (15 min) may have
passed.
"""

MOST_ENTRIES = 10
"""SQS's limit for a receive and for each batch of changes or deletions."""

MOST_CALLS = 10
_SOON_SECONDS = 2
_SOON_RECEIVES = 5
"""AWS advises at least this maxReceiveCount for Lambda, and the template allows no smaller one."""
LONGEST_SEND_BACK_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential backoff with full jitter: a random time below a bound, which starts at `first_seconds`, doubles with
    each receive, or with each charged attempt if `max_attempts` is set, and is at most `longest_seconds`.
    Source: AWS Architecture Blog, "Exponential Backoff And Jitter".

    While the store is unavailable, the bound grows ninefold with each receive, and the wait is at least three quarters
    of the bound. With the defaults, four waits exceed a quarter of an hour, so that a shorter outage does not use up a
    valid message's five receives.

    Raises ValueError for times that are negative, infinite or not numbers.
    """

    first_seconds: float = 4.0
    longest_seconds: float = 900.0

    def __post_init__(self) -> None:
        options.require_numbers(first_seconds=self.first_seconds, longest_seconds=self.longest_seconds)

    def seconds(self, receive_count: int, clock: Clock) -> int:
        """Seconds to wait after `receive_count` receives, at least 1."""
        return max(1, math.ceil(self._bound(receive_count, 2.0) * clock.fraction()))

    def average_seconds(self, attempts: int) -> float:
        """How long so many attempts last on average, without their runs."""
        return sum(self._bound(each, 2.0) for each in range(1, attempts)) / 2

    def outage_seconds(self, receive_count: int, clock: Clock) -> int:
        """Seconds to wait if the store could not be read or written, or a queue not be sent to, at least 1."""
        return max(1, math.ceil(self._bound(receive_count, 9.0) * (3 + clock.fraction()) / 4))

    def _bound(self, receive_count: int, growth: float) -> float:
        grown = self.first_seconds * growth ** min(receive_count - 1, 30)
        return min(self.longest_seconds, LONGEST_VISIBILITY_SECONDS, grown)


def _soon(clock: Clock) -> int:
    return math.floor((_SOON_SECONDS + 1) * clock.fraction())


def visibility_seconds(
    message: Message, outcome: Outcome, backoff: Backoff, now_ms: int, clock: Clock, *, left_to_sqs: bool = False
) -> int:
    """Seconds until a failed message becomes visible again.

    `left_to_sqs` means that this consumer sends no dead letters: after a permanent failure, SQS moves the message.
    """
    match outcome:
        case HeldElsewhere(until_ms) if until_ms > 0:
            # Not before the lease ends: an earlier delivery would only use up receives.
            wait = math.ceil((until_ms - now_ms) / 1000 + clock.fraction())
            if wait > LONGEST_VISIBILITY_SECONDS:
                # No worker's claim lasts this long: an operator is resending the message with a different body and may
                # finish at any time.
                return backoff.outage_seconds(message.receive_count, clock)
            return max(0, wait)
        case NotStarted() | NotSent(out_of_time=True):
            return _soon(clock)
        case Failed(failure) | NotSent(failure=Failure() as failure) if failure.delay_seconds is not None:
            return min(failure.delay_seconds, LONGEST_VISIBILITY_SECONDS)
        case Failed(failure) if left_to_sqs and failure.permanent:
            # If SQS has not moved the message by then, the backoff applies: the queue may have no redrive policy.
            beyond = message.receive_count - _SOON_RECEIVES
            return _soon(clock) if beyond <= 0 else backoff.seconds(beyond, clock)
        case Failed(failure) | NotSent(failure=Failure() as failure) if failure.charged_attempt > 0:
            return backoff.seconds(failure.charged_attempt, clock)
        case NotSent(failure=Failure()):
            return backoff.seconds(message.receive_count, clock)
        case ClaimFailed() | SettleFailed() | NotSent():
            return backoff.outage_seconds(message.receive_count, clock)
        case _:
            return backoff.seconds(message.receive_count, clock)


def in_groups(failed: Sequence[Message], seconds: Mapping[str, int]) -> dict[str, int]:
    """Give all failed messages in a FIFO group the first one's visibility, so that they are redelivered in order."""
    firsts: dict[str, int] = {}
    together = dict(seconds)
    for message in failed:
        if message.fifo and message.group_id is not None:
            together[message.id] = firsts.setdefault(message.group_id, seconds[message.id])
    return together


def send_back(
    sqs: "SQSClient",
    backoff: Backoff,
    failed: Sequence[tuple[Message, Outcome]],
    executor: Executor,
    deadline: Deadline,
    *,
    left_to_sqs: bool,
) -> None:
    """Make failed messages visible again when another attempt is worthwhile.

    Calls SQS in parallel, for at most a second or half the time left, whichever is less. If a call fails, the queue's
    own visibility timeout applies, and the answer to Lambda is unchanged.
    """
    now_ms, clock = deadline.now_ms, deadline.clock
    each = {
        message.id: visibility_seconds(message, outcome, backoff, now_ms, clock, left_to_sqs=left_to_sqs)
        for message, outcome in failed
    }
    seconds = in_groups([message for message, _ in failed], each)
    known = [message for message, _ in failed if message.receipt_handle and message.queue_arn]
    chunks = [known[start : start + MOST_ENTRIES] for start in range(0, len(known), MOST_ENTRIES)]
    waiting, answers = deque(chunks), list[None]()

    def start_next() -> None:
        if waiting:
            executor.start(partial(_change, sqs, waiting.popleft(), seconds), changed)

    def changed(result: None) -> None:
        answers.append(result)
        start_next()

    for _ in range(MOST_CALLS):
        start_next()
    ends = deadline.elapsed_seconds + min(LONGEST_SEND_BACK_SECONDS, deadline.left_seconds / 2)
    while len(answers) < len(chunks) and (left := ends - deadline.elapsed_seconds) > 0:
        executor.step(left)


def _change(sqs: "SQSClient", chunk: Sequence[Message], seconds: Mapping[str, int]) -> None:
    entries: list[ChangeMessageVisibilityBatchRequestEntryTypeDef] = [
        {"Id": str(place), "ReceiptHandle": message.receipt_handle, "VisibilityTimeout": seconds[message.id]}
        for place, message in enumerate(chunk)
    ]
    with suppress(Exception):  # best effort: if the call fails, the queue's own visibility timeout applies
        sqs.change_message_visibility_batch(QueueUrl=queue_url(sqs, chunk[0].queue_arn), Entries=entries)


def queue_url(sqs: "SQSClient", queue_arn: str) -> str:
    """The queue URL at the client's endpoint. Needs no request and no permission."""
    account, name = queue_arn.split(":")[-2:]
    return f"{sqs.meta.endpoint_url}/{account}/{name}"
