"""Dead letters as an operator reads them: their queue, in which what was taken is held, and what each letter says.

What may be done with a letter is judged elsewhere (`verdict.py`), and moving it is `redrive.py`'s. Nothing here is part
of the deployed function.
"""

import base64
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.clock import Clock
from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.sqs import keys
from idempotent_receiver.sqs.dead_letter import Stamp, stamp_of
from idempotent_receiver.sqs.message import Message, messages_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

A_CALL = 10
"""SQS's limit for every batch of messages."""

HOLD_SECONDS = 300
"""How long letters are invisible to others while they are read and moved, and after a crash; renewed where needed."""

WAIT_SECONDS = 1
"""A long poll asks all of SQS's servers, so an empty answer means empty."""

MOST_HELD_STANDARD = 120_000
MOST_HELD_FIFO = 20_000
MOST_A_ROUND = 10_000
MOST_BYTES_A_ROUND = 256 * 1024 * 1024
MOST_TRIES = 3

Raw = Mapping[str, Any]
T = TypeVar("T")


@dataclass(slots=True)
class _Hold:
    receipt: str
    until_seconds: float


class DeadLetterQueue:
    """A dead-letter queue that is being read. What was taken is held until it is deleted or given back.

    While a letter of a FIFO queue is held, SQS gives out nothing more of its group, to nobody.
    """

    def __init__(self, sqs: "SQSClient", url: str, clock: Clock, *, hold_seconds: int = HOLD_SECONDS) -> None:
        self.sqs, self.url, self.clock = sqs, url, clock
        self.hold_seconds = hold_seconds
        self.fifo = url.endswith(".fifo")
        self.exhausted = False
        """Whether the last `take` ended because the queue gave nothing more."""
        self._seen: set[str] = set()
        self._deleted: set[str] = set()
        self._held: dict[str, _Hold] = {}

    @property
    def most_held(self) -> int:
        """SQS's limit for messages in flight, less one call."""
        return (MOST_HELD_FIFO if self.fifo else MOST_HELD_STANDARD) - A_CALL

    @property
    def taken(self) -> int:
        """How many different letters were taken so far."""
        return len(self._seen)

    def count(self) -> int:
        """About how many messages the queue has, held ones included: SQS counts approximately."""
        names: Any = [f"ApproximateNumberOfMessages{which}" for which in ("", "NotVisible", "Delayed")]
        found = self.sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=names)["Attributes"]
        return sum(int(found.get(name, 0)) for name in names)

    def unseen(self) -> int:
        """About how many messages are there that were never taken."""
        return max(0, self.count() - len(self._seen - self._deleted))

    def take(self, most: int = MOST_A_ROUND, stopped: Callable[[], bool] = lambda: False) -> list[Raw]:
        """Up to about `most` messages that were not taken before; all are held."""
        new: list[Raw] = []
        size = known = 0
        self.exhausted = False
        while len(new) < most and size < MOST_BYTES_A_ROUND and len(self._held) < self.most_held and not stopped():
            received = self._receive()
            fresh = [message for message in received if message["MessageId"] not in self._seen]
            self._seen.update(message["MessageId"] for message in fresh)
            new += fresh
            size += sum(len(message["Body"]) for message in fresh)
            known = 0 if fresh else known + 1
            # Held ones that come again, because their time was over, are no news; but news may be behind them.
            if not received or known > len(self._seen) // A_CALL + 1:
                self.exhausted = True
                break
        return new

    def _receive(self) -> Sequence[Raw]:
        try:
            received = self.sqs.receive_message(
                QueueUrl=self.url,
                MaxNumberOfMessages=A_CALL,
                VisibilityTimeout=self.hold_seconds,
                WaitTimeSeconds=WAIT_SECONDS,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", [])
        except ClientError as error:
            # Others hold letters too: more than SQS lets be in flight cannot be had.
            if error.response.get("Error", {}).get("Code", "").endswith("OverLimit"):
                return []
            raise
        until = self.clock.monotonic_seconds() + self.hold_seconds
        self._held |= {message["MessageId"]: _Hold(message["ReceiptHandle"], until) for message in received}
        return received

    def still_held(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that are held for some time yet; where less than half of it is left, for all of it again."""
        now = self.clock.monotonic_seconds()
        held = [id for id in ids if id in self._held]
        short = [id for id in held if self._held[id].until_seconds - now < self.hold_seconds / 2]
        lost: set[str] = set()
        for chunk in chunks(short):
            lost |= set(self._change(chunk, self.hold_seconds))
        for id in lost:
            del self._held[id]
        return set(held) - lost

    def delete(self, ids: Sequence[str]) -> dict[str, str]:
        """Delete letters; why not, by id, for those that could not be. Trouble with the whole call is raised."""
        failed: dict[str, str] = {}
        left = list(ids)
        for _ in range(MOST_TRIES):
            answer = self.sqs.delete_message_batch(QueueUrl=self.url, Entries=self._entries(left))
            for done in answer.get("Successful", []):
                self._deleted.add(left[int(done["Id"])])
                self._held.pop(left[int(done["Id"])], None)
                failed.pop(left[int(done["Id"])], None)
            # Added to, not replaced: what SQS refused for good is not asked for again, and stays refused.
            failed |= {left[int(each["Id"])]: each["Code"] for each in answer.get("Failed", [])}
            left = [left[int(each["Id"])] for each in answer.get("Failed", []) if not each["SenderFault"]]
            if not left:
                break
        return failed

    def give_back(self, ids: Iterable[str] | None = None) -> None:
        """Make letters visible again, all by default. Best effort: in vain, they are so when their time is over."""
        wanted = [id for id in (list(self._held) if ids is None else ids) if id in self._held]
        for chunk in chunks(wanted):
            try:
                self._change(chunk, 0)
            except (ClientError, BotoCoreError):
                return
            for id in chunk:
                self._held.pop(id, None)

    def _change(self, ids: Sequence[str], seconds: int) -> list[str]:
        """Set the visibility of up to ten; those for which SQS refused it, because they are not ours any more."""
        until = self.clock.monotonic_seconds() + seconds
        entries: Any = [{**entry, "VisibilityTimeout": seconds} for entry in self._entries(ids)]
        answer = self.sqs.change_message_visibility_batch(QueueUrl=self.url, Entries=entries)
        refused = [ids[int(each["Id"])] for each in answer.get("Failed", [])]
        for id in ids:
            self._held[id].until_seconds = until
        return refused

    def _entries(self, ids: Sequence[str]) -> Any:
        return [{"Id": str(place), "ReceiptHandle": self._held[id].receipt} for place, id in enumerate(ids)]


def chunks(things: Sequence[T], size: int = A_CALL) -> Iterator[Sequence[T]]:
    """The things in their order, so many at a time."""
    return (things[start : start + size] for start in range(0, len(things), size))


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """One dead letter, read as the consumer would read it.

    `unkeyed` says why it has no key; then `message.key` and `fingerprint` are empty. `source` is the ARN of the queue
    that it died in, where SQS or our stamp says so. `since_ms` is the earliest moment (epoch) that is known of it.
    """

    message: Message
    fingerprint: str
    unkeyed: str | None
    source: str | None
    stamp: Stamp | None
    since_ms: int

    @property
    def id(self) -> str:
        """Its messageId, now, in the dead-letter queue."""
        return self.message.id

    @property
    def returning(self) -> Stamp:
        """What it is stamped with on its way back: its key, and no reason, for it may be tried."""
        before = self.stamp
        return Stamp(
            key=self.message.key,
            original_id=self.id if before is None else before.original_id,
            first_received=datetime.fromtimestamp(self.since_ms / 1000, UTC).isoformat(),
            function=None if before is None else before.function,
            queue=self.message.queue_arn,
        )

    @property
    def deduplication_id(self) -> str | None:
        """On a FIFO queue: the same at each try, and another for each time that the message dies."""
        return f"redrive-{self.id}" if self.message.fifo else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads letters by the consumer's own rules: its queue, its key strategy, its store's ids, its envelope."""

    queue_arn: str
    key: keys.KeyStrategy
    record_id: Callable[[str], str]
    open_envelope: Callable[[str], str] = str

    def letter(self, raw: Raw, now_ms: int) -> Letter:
        """The letter that a received message is."""
        (message,) = messages_of({"Records": [_as_lambda_has_it(raw, self.queue_arn)]}, self.open_envelope)
        stamp = stamp_of(message.message_attributes)
        unkeyed = None
        try:
            key = keys.usable(self.key(message), self.record_id)
            message = replace(message, key=key, record_id=self.record_id(key))
        except UnusableKey as error:
            unkeyed = str(error)
        return Letter(
            message=message,
            fingerprint="" if unkeyed is not None else keys.fingerprint_by(self.key, message),
            unkeyed=unkeyed,
            source=message.attributes.get("DeadLetterQueueSourceArn") or (None if stamp is None else stamp.queue),
            stamp=stamp,
            since_ms=_since_ms(message, stamp, now_ms),
        )


def _as_lambda_has_it(raw: Raw, queue_arn: str) -> dict[str, Any]:
    """A message from ReceiveMessage in the form of Lambda's events, for which the consumer's rules are made."""
    return {
        "messageId": raw["MessageId"],
        "receiptHandle": raw["ReceiptHandle"],
        "body": raw["Body"],
        "attributes": raw.get("Attributes", {}),
        "messageAttributes": {name: _value(held) for name, held in raw.get("MessageAttributes", {}).items()},
        "eventSourceARN": queue_arn,
    }


def _value(held: Raw) -> dict[str, Any]:
    value = {"dataType": held.get("DataType", "String")}
    if "StringValue" in held:
        value["stringValue"] = held["StringValue"]
    if "BinaryValue" in held:
        value["binaryValue"] = base64.b64encode(held["BinaryValue"]).decode()
    return value


def _since_ms(message: Message, stamp: Stamp | None, now_ms: int) -> int:
    # A FIFO queue's move, and every send, begins a new SentTimestamp: the stamp remembers what was before.
    times = [_ms(message.sent_at), None if stamp is None else _parsed_ms(stamp.first_received)]
    return min([time for time in times if time is not None], default=now_ms)


def _parsed_ms(text: str | None) -> int | None:
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return _ms(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _ms(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp() * 1000)


def other_sources(sqs: "SQSClient", dead_letter_queue_url: str, queue_url: str) -> Collection[str] | None:
    """The URLs of other queues whose letters come here too; None where SQS does not say."""
    found: list[str] = []
    try:
        for page in sqs.get_paginator("list_dead_letter_source_queues").paginate(QueueUrl=dead_letter_queue_url):
            found += page["queueUrls"]
    except (ClientError, BotoCoreError):
        return None
    name = queue_url.rpartition("/")[2]
    return [url for url in found if url.rpartition("/")[2] != name]
