"""Dead letters that carry a reason: copies a message, adds one attribute, the stamp, and sends the copy.

A message without room for the stamp (SQS allows ten attributes and 1 MiB) stays where it is.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from idempotent_receiver.errors import Failure
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.received import raw_attribute
from idempotent_receiver.transaction.outbox import STAMP

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

MOST_ATTRIBUTES = 10
MOST_BYTES = 1024 * 1024


_FIRST_YEAR, _LAST_YEAR = 2006, 2999
"""SQS launched in 2006."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The attribute added to a message that is sent again: the message's key, and why it failed for good.

    Without a `reason`, the message may be handled: it was redriven, or sent with `stamped`. `at` is the code location
    that raised the error, `first_received` an ISO 8601 time, and `queue` the source queue's ARN. `resent_from` is the
    message's key before an operator resent it with a different body. `charged` is the record's count of charged
    attempts, at which a redriven message begins anew; `exhausted` says that the message failed only as often as it may.
    """

    key: str
    original_id: str
    reason: str | None = None
    error_type: str | None = None
    at: str | None = None
    first_received: str | None = None
    function: str | None = None
    queue: str | None = None
    resent_from: str | None = None
    charged: int | None = None
    exhausted: bool | None = None

    @property
    def since(self) -> datetime | None:
        """When the message was first received or sent; None if that is unknown or implausible, because anyone can write
        a stamp.
        """
        try:
            time = datetime.fromisoformat(self.first_received or "")
        except ValueError:
            return None
        time = time if time.tzinfo else time.replace(tzinfo=UTC)
        return time if _FIRST_YEAR <= time.year <= _LAST_YEAR else None

    def to_json(self) -> str:
        """The attribute's value, in ASCII: AWS rejects lone surrogates, which another program's stamp may contain."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


def stamp_of(message_attributes: Mapping[str, Any]) -> Stamp | None:
    """A message's stamp; None if it is missing or unreadable."""
    attribute = message_attributes.get(STAMP)
    if attribute is None:
        return None
    text = attribute.get("stringValue") if isinstance(attribute, Mapping) else None
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError, TypeError):
        return None
    if not isinstance(found, dict) or not all(_text(found.get(name)) for name in ("key", "original_id")):
        return None
    texts = {
        name: _text(found.get(name)) for name in Stamp.__dataclass_fields__ if name not in ("charged", "exhausted")
    }
    charged = found.get("charged")
    charged = charged if type(charged) is int and 0 <= charged < _MOST_CHARGED else None
    return Stamp(**texts, charged=charged, exhausted=found.get("exhausted") is True or None)  # type: ignore[arg-type]


_MOST_CHARGED = 10**9
"""More than any message is charged: anyone can write a stamp."""


def stamped(key: str) -> dict[str, Any]:
    """`MessageAttributes` with a message's key, for a producer that may send the message more than once.

    SQS gives each send its own messageId. A consumer with the `message_id` strategy treats all messages with this key
    as one, as long as their bodies are identical byte for byte. Choose a key that no other message has, such as
    `current_claim().idempotency_key`. A consumer whose store has no namespace refuses a key with `#`.
    """
    return {STAMP: {"DataType": "String", "StringValue": Stamp(key=key, original_id=key).to_json()}}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


class NoRoom(ValueError):
    """The message has no room for the stamp, so it must stay where it is."""


class OwnQueue(ValueError):
    """The dead-letter queue is the queue that the message came from, so it must stay there."""


def names_queue(url: str, arn: str) -> bool:
    """Whether a queue's URL and ARN name the same queue, for one client: it sends each request to its own region and
    endpoint, whatever the URL's host.
    """
    return url.split("/")[-2:] == arn.split(":")[-2:]


def send(sqs: "SQSClient", queue_url: str, message: Message, failure: Failure, function: str) -> None:
    """Send a copy of the message, stamped with the reason, to the dead-letter queue. Returns once SQS has confirmed it.

    Raises OwnQueue for the message's own queue, NoRoom if the stamp does not fit, and the client's error if SQS did
    not confirm.
    """
    if names_queue(queue_url, message.queue_arn):
        raise OwnQueue("it is the queue that the message came from, which would deliver it again; name another queue")
    # SQS drops a send whose deduplication id was used in the last five minutes. That would lose the message, so each
    # send gets its own id.
    own_id = f"{message.id}-{message.receive_count}" if queue_url.endswith(".fifo") else None
    sqs.send_message(QueueUrl=queue_url, **copy_of(message, _stamp(message, failure, function), own_id))


def copy_of(message: Message, stamp: Stamp, deduplication_id: str | None) -> dict[str, Any]:
    """SendMessage's arguments for a stamped copy: the message's body, attributes, group and trace header are unchanged.

    A FIFO queue needs a `deduplication_id`. Raises NoRoom if the stamp does not fit.
    """
    attributes = {name: raw_attribute(value) for name, value in message.message_attributes.items()}
    attributes[STAMP] = {"DataType": "String", "StringValue": stamp.to_json()}
    if len(attributes) > MOST_ATTRIBUTES:
        raise NoRoom(f"it already has {MOST_ATTRIBUTES} attributes, which is SQS's limit")
    if size_of(message.raw_body, attributes) > MOST_BYTES:
        raise NoRoom("with its stamp it would exceed SQS's limit of 1 MiB")
    arguments: dict[str, Any] = {"MessageBody": message.raw_body, "MessageAttributes": attributes}
    if message.group_id is not None:
        arguments["MessageGroupId"] = message.group_id
    if deduplication_id is not None:
        arguments["MessageDeduplicationId"] = deduplication_id
    trace = message.attributes.get("AWSTraceHeader")
    if trace is not None:
        arguments["MessageSystemAttributes"] = {"AWSTraceHeader": {"DataType": "String", "StringValue": trace}}
    return arguments


def _stamp(message: Message, failure: Failure, function: str) -> Stamp:
    before = stamp_of(message.message_attributes) or Stamp(key=message.id, original_id=message.id)
    received = message.first_received_at
    return Stamp(
        key=message.key or before.key,
        original_id=before.original_id,
        reason=failure.reason,
        error_type=failure.type,
        at=failure.at,
        first_received=before.first_received or (None if received is None else received.isoformat()),
        function=function,
        queue=message.queue_arn or None,
        charged=failure.count or None,
        exhausted=failure.exhausted or None,
    )


def size_of(body: str, attributes: Mapping[str, Mapping[str, Any]]) -> int:
    """A message's size in bytes, as SQS counts it: the body plus each attribute's name, type and value."""
    parts: list[str | bytes] = [part for name, value in attributes.items() for part in (name, *value.values())]
    return sum(len(part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part) for part in (body, *parts))
