"""An SQS message as a handler sees it, and the parsing of Lambda's event."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from idempotent_receiver.protocol.record import idempotency_key


class InvalidEvent(ValueError):
    """The event is not an SQS batch. No handler has run, and Lambda redelivers the whole event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One SQS message.

    `attributes` and `message_attributes` are as Lambda delivers them. `attempt` counts the attempts at its key, from 1;
    `receive_count` counts SQS's deliveries. `sent_at` is None if the event has no timestamp. `key`, `record_id` and
    `attempt` are set in the copy that the handler gets.
    """

    id: str
    body: str
    raw_body: str
    attributes: Mapping[str, str] = field(default_factory=dict)
    message_attributes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    queue_arn: str = ""
    receipt_handle: str = ""
    key: str = ""
    record_id: str = ""
    attempt: int = 0
    remaining_time_ms: Callable[[], int] = lambda: 0
    _record: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    receive_count: int = field(init=False, repr=False, compare=False)
    """Deliveries of the message so far, including this one."""
    fifo: bool = field(init=False, repr=False, compare=False)
    """Whether the queue is FIFO, by its name. A group id does not prove it."""

    def __post_init__(self) -> None:
        # Computed once: both are read several times for each message.
        count = _number(self.attributes.get("ApproximateReceiveCount"))
        object.__setattr__(self, "receive_count", 1 if count is None else count)
        object.__setattr__(self, "fifo", self.queue_arn.endswith(".fifo"))

    @property
    def idempotency_key(self) -> str:
        """A key to pass downstream: a SHA-256 of the record's id, the same on every attempt."""
        return idempotency_key(self.record_id)

    @property
    def rest(self) -> dict[str, str]:
        """The event's other fields, such as `md5OfBody`: Powertools' keys may include them."""
        return {name: value for name, value in self._record.items() if name not in _TAKEN and isinstance(value, str)}

    @property
    def sent_at(self) -> datetime | None:
        """When the producer sent the message."""
        return _moment(self.attributes.get("SentTimestamp"))

    @property
    def first_received_at(self) -> datetime | None:
        """When SQS first delivered the message."""
        return _moment(self.attributes.get("ApproximateFirstReceiveTimestamp"))

    @property
    def group_id(self) -> str | None:
        """The message group. On a standard queue, it imposes no order (SQS uses it for fairness)."""
        return self.attributes.get("MessageGroupId")


_MOST_DIGITS = 18
"""More than any count or timestamp from SQS has. A longer text is not read as a number."""


def _number(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        return None
    return int(text)


def sent_ms(message: Message) -> int | None:
    """When SQS received the message (epoch ms); None if the event has no timestamp. Cheaper than `sent_at`."""
    return _number(message.attributes.get("SentTimestamp"))


def _moment(text: str | None) -> datetime | None:
    milliseconds = _number(text)
    try:
        return None if milliseconds is None else datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (ValueError, OverflowError, OSError):  # past the year 9999, or past what the system supports
        return None


def messages_of(event: object) -> list[Message]:
    """The messages in Lambda's SQS event, with their bodies as they were sent.

    Raises InvalidEvent for anything else, before any handler runs: an empty answer would acknowledge everything.
    """
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        came = (
            f"it is of type {type(event).__name__}, not a mapping" if not isinstance(event, Mapping)
            else "it has no list 'Records'" if records is None
            else f"its 'Records' is of type {type(records).__name__}, not a list"
        )  # fmt: skip
        raise InvalidEvent(
            f"not an SQS event: {came}; is the function's trigger an SQS queue, and does each decorator above "
            "sqs_consumer pass a mapping on?"
        )
    return [_message(record, place) for place, record in enumerate(records)]


def lined_up(messages: Iterable[Message]) -> list[Message]:
    """Each message once, even if the event repeats it. On a standard queue, messages with the most receives come first,
    so that no message is repeatedly left unstarted.
    """
    once = list({(message.id, message.raw_body): message for message in messages}.values())
    if any(message.fifo for message in once):
        return once
    return sorted(once, key=lambda message: -message.receive_count)


def _message(record: object, place: int) -> Message:
    if not isinstance(record, Mapping):
        raise InvalidEvent(f"not an SQS event: Records[{place}] is of type {type(record).__name__}, not an object")
    for name in ("messageId", "body"):
        if not isinstance(record.get(name), str):
            raise InvalidEvent(
                f"not an SQS event: Records[{place}] has no {name!r} and comes from {_source(record)!r}; "
                "is the function's trigger an SQS queue?"
            )
    if not record["messageId"]:
        raise InvalidEvent(f"not an SQS event: Records[{place}] has an empty 'messageId'")
    for name, kind in _KINDS.items():
        if record.get(name) and not isinstance(record[name], kind):
            found = type(record[name]).__name__
            raise InvalidEvent(f"not an SQS event: {name!r} of Records[{place}] is of type {found}")
    return Message(
        id=record["messageId"],
        body=record["body"],
        raw_body=record["body"],
        attributes=_strings(record.get("attributes")),
        message_attributes=record.get("messageAttributes") or {},
        queue_arn=record.get("eventSourceARN") or "",
        receipt_handle=record.get("receiptHandle") or "",
        _record=record,
    )


_TAKEN = frozenset({"messageId", "body", "attributes", "messageAttributes", "eventSourceARN", "receiptHandle"})
"""The fields that are attributes of Message."""

_KINDS = {"messageAttributes": Mapping, "eventSourceARN": str, "receiptHandle": str}
"""Optional fields and their types."""


def _source(record: Mapping[object, object]) -> str:
    source = record.get("eventSource") or record.get("EventSource")
    return source[:50] if isinstance(source, str) else "unknown"


def _strings(attributes: object) -> dict[str, str]:
    """SQS's own attributes: strings from Lambda, possibly numbers in a handwritten event."""
    if not isinstance(attributes, Mapping):
        return {}
    return {
        name: str(value)
        for name, value in attributes.items()
        if isinstance(value, str) or (isinstance(value, int) and abs(value) < 10**_MOST_DIGITS)
    }
