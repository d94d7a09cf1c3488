"""A dead-letter queue in an operator's session. Received messages are held until they are deleted or released."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.clock import Clock
from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.operations.dead_letters.workers import RequestFailed, Workers
from idempotent_receiver.sqs.batch_answers import failed_entries

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

A_CALL = 10
"""SQS's limit on messages in a batch request."""

HOLD_SECONDS = 300
"""Visibility timeout of held messages, renewed as needed. After a crash, they reappear when it ends."""

WAIT_SECONDS = 1
"""A long poll queries all SQS servers, so an empty response means an empty queue."""

MAX_HELD_STANDARD = 120_000
MAX_HELD_FIFO = 20_000
"""SQS's limits on messages in flight."""

MAX_A_ROUND = 10_000
MAX_BYTES_A_ROUND = 32 * 1024 * 1024
"""Limits the bodies that a command holds in memory at a time."""

MAX_TRIES = 3

DEFAULT_RATE = 100.0
"""Messages sent back per second, so that the consumer keeps up."""

POLL_SECONDS = 2.0

TOO_SHORT = "holds ran out: what was read came back before the rest: give a longer --hold"
TOO_MANY = "holds ran out: SQS lets no more messages be in flight"

Raw = Mapping[str, Any]
"""A message as ReceiveMessage returns it."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class HeldLetter:
    """A held message. The hold ends when either clock reaches its time, because the monotonic clock may stop while a
    machine is suspended.
    """

    receipt: str
    until_seconds: float
    until_ms: int


class DeadLetterQueue:
    """A dead-letter queue that is being read.

    While a FIFO message is held, SQS delivers no further messages of its group to anyone.
    """

    refills = True

    def __init__(
        self,
        sqs: "SQSClient",
        url: str,
        clock: Clock,
        *,
        hold_seconds: int = HOLD_SECONDS,
        workers: Workers | None = None,
    ) -> None:
        self.sqs, self.url, self.clock, self.hold_seconds = sqs, url, clock, hold_seconds
        self.workers = Workers() if workers is None else workers
        self.fifo = url.endswith(".fifo")
        self._max_held = (MAX_HELD_FIFO if self.fifo else MAX_HELD_STANDARD) - A_CALL * self.workers.count
        self._exhausted = False
        self.cut_short: str | None = None
        """Why the last take ended before the end of a standard queue, if it did."""
        self.seen: set[str] = set()
        """The ids of all messages taken."""
        self._deleted: set[str] = set()
        self._held: dict[str, HeldLetter] = {}

    @property
    def more(self) -> bool:
        """Whether there may be more messages behind those taken: SQS delivers at most ten of a FIFO group at a time."""
        return self.fifo or not self._exhausted

    def count(self) -> int:
        """The approximate number of messages in the queue, including held ones."""
        return sum(self._counts("", "NotVisible", "Delayed"))

    def held_elsewhere(self) -> int:
        """The approximate number of messages in flight in other sessions, running or killed."""
        (hidden,) = self._counts("NotVisible")
        return max(0, hidden - len(self._held))

    def wait_for_others(self, stopped: Callable[[], bool] = lambda: False) -> int:
        """Wait up to `hold_seconds` until other sessions hold no messages. Returns how many they still hold."""
        until = self.clock.monotonic_seconds() + self.hold_seconds
        for _ in range(ceil(self.hold_seconds / POLL_SECONDS)):
            if stopped() or not self.held_elsewhere():
                break
            self.clock.sleep(min(POLL_SECONDS, max(0.0, until - self.clock.monotonic_seconds())))
        return self.held_elsewhere()

    def _counts(self, *which: str) -> list[int]:
        names: Any = [f"ApproximateNumberOfMessages{each}" for each in which]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return [int(found.get(name, 0)) for name in names]

    def unseen(self) -> int:
        """The approximate number of messages not yet taken."""
        return max(0, self.count() - len(self.seen - self._deleted))

    def take(self, most: int = MAX_A_ROUND, stopped: Callable[[], bool] = lambda: False) -> list[Raw]:
        """Take and hold messages not yet taken: at most about `most` messages and 32 MiB of bodies.

        On a FIFO queue, this first releases all held messages, because SQS delivers nothing behind them.
        """
        if self.fifo:
            self.release()
        new: list[Raw] = []
        size = known = largest = 0
        at_once = 1
        self._exhausted, self.cut_short = False, None
        while len(new) < most and size < MAX_BYTES_A_ROUND and len(self._held) < self._max_held and not stopped():
            room = max(1, (MAX_BYTES_A_ROUND - size) // max(1, A_CALL * largest))
            answers = self._received(min(at_once, room, ceil((most - len(new)) / A_CALL)))
            received = [message for answer in answers for message in answer]
            # Receive in parallel only while messages arrive: every empty receive waits for the long poll.
            at_once = min(self.workers.count, 2 * at_once)
            fresh = [message for message in received if message["MessageId"] not in self.seen]
            self.seen.update(message["MessageId"] for message in fresh)
            new += fresh
            size += sum(len(message["Body"]) for message in fresh)
            largest = max([largest, *(len(message["Body"]) for message in fresh)])
            known = 0 if fresh else known + 1
            # Messages whose hold expired reappear; there may still be new messages behind them.
            only_known = known > len(self.seen) // A_CALL + 1
            if not all(answers) or only_known:
                self._exhausted = True
                self.cut_short = TOO_SHORT if only_known else self.cut_short
                break
        if len(self._held) >= self._max_held:
            self.cut_short = TOO_MANY
        return new

    def _received(self, requests: int) -> list[Sequence[Raw]]:
        hold = self._hold(self.hold_seconds)
        answers = self.workers.results(lambda _: self._receive(), range(requests))
        self._held |= {each["MessageId"]: hold(each["ReceiptHandle"]) for answer in answers for each in answer}
        return answers

    def _hold(self, seconds: int) -> Callable[[str], HeldLetter]:
        """A function that makes a `HeldLetter`, held from now on, from a receipt handle."""
        until_seconds, until_ms = self.clock.monotonic_seconds() + seconds, self.clock.epoch_ms() + seconds * 1000
        return lambda receipt: HeldLetter(receipt, until_seconds, until_ms)

    def _receive(self) -> Sequence[Raw]:
        try:
            return self.sqs.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=A_CALL,
                VisibilityTimeout=self.hold_seconds,
                WaitTimeSeconds=WAIT_SECONDS,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", [])
        except ClientError as error:
            # SQS limits messages in flight, and those held by others count too.
            if code_of(error).endswith("OverLimit"):
                self.cut_short = TOO_MANY
                return []
            raise

    def still_held(self, ids: Sequence[str]) -> set[str]:
        """The ids that are still held. Renews holds with less than half of their time left."""
        left = {id: self._left_seconds(held) for id, held in self._held.items()}
        for id in (id for id, seconds in left.items() if seconds <= 0):
            del self._held[id]
        short = [id for id, seconds in left.items() if 0 < seconds < self.hold_seconds / 2]
        for id in (id for lost in self._change(short, self.hold_seconds) for id in lost):
            del self._held[id]
        return {id for id in ids if id in self._held}

    def _left_seconds(self, held: HeldLetter) -> float:
        by_wall_clock = (held.until_ms - self.clock.epoch_ms()) / 1000
        return min(held.until_seconds - self.clock.monotonic_seconds(), by_wall_clock)

    def delete(self, ids: Sequence[str]) -> dict[str, str | RequestFailed]:
        """Delete messages. For each that may still exist, returns SQS's code or the failure of the whole call."""
        undeleted: dict[str, str | RequestFailed] = {}
        for chunk, outcome in self.workers.outcomes(self._delete, chunks(ids)):
            undeleted |= outcome if isinstance(outcome, dict) else dict.fromkeys(chunk, outcome)
        for id in set(ids) - set(undeleted):
            self._deleted.add(id)
            self._held.pop(id, None)
        return undeleted

    def _delete(self, ids: Sequence[str]) -> dict[str, str]:
        """Delete up to ten messages; returns SQS's error codes by id. Raises if a call fails."""
        failed: dict[str, str] = {}
        left = list(ids)
        for _ in range(MAX_TRIES):
            answer = self.sqs.delete_message_batch(QueueUrl=self.url, Entries=self._entries(left))
            refused = failed_entries(answer, len(left))
            # Ids that SQS refused permanently are not retried and stay refused.
            refused_before = {id: code for id, code in failed.items() if id not in left}
            failed = refused_before | {left[place]: entry["Code"] for place, entry in refused.items()}
            left = [left[place] for place, entry in refused.items() if not entry["SenderFault"]]
            if not left:
                break
        return failed

    def release(self) -> None:
        """Make all held messages visible again. Best effort: if this fails, they reappear when their visibility timeout
        expires.
        """
        with suppress(ClientError, BotoCoreError):
            self._change(list(self._held), 0)
        self._held.clear()

    def _change(self, ids: Sequence[str], seconds: int) -> list[list[str]]:
        """Set the visibility of messages; returns those that SQS refused because they are no longer held."""
        hold = self._hold(seconds)
        refused = self.workers.results(lambda chunk: self._change_ten(chunk, seconds), chunks(ids))
        self._held |= {id: hold(self._held[id].receipt) for id in ids}
        return refused

    def _change_ten(self, ids: Sequence[str], seconds: int) -> list[str]:
        entries: Any = [{**entry, "VisibilityTimeout": seconds} for entry in self._entries(ids)]
        answer = self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)
        return [ids[place] for place in failed_entries(answer, len(ids))]

    def _entries(self, ids: Sequence[str]) -> Any:
        return [{"Id": str(place), "ReceiptHandle": self._held[id].receipt} for place, id in enumerate(ids)]


def chunks(things: Sequence[T], size: int = A_CALL) -> Iterator[Sequence[T]]:
    """The sequence in chunks of `size`."""
    return (things[start : start + size] for start in range(0, len(things), size))
