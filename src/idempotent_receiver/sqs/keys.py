"""Where a message's key comes from, and the fingerprint that tells two payloads under one key apart."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from jmespath.exceptions import JMESPathError

from idempotent_receiver.errors import UnusableKey
from idempotent_receiver.payload import EVERYTHING, Document, Payload, compiled, json_of
from idempotent_receiver.sqs.dead_letter import stamp_of
from idempotent_receiver.sqs.message import Message

KeyStrategy = Callable[[Message], str]

MOST_KEY_BYTES = 2048
"""DynamoDB's limit for a partition key; emulators take more."""


def message_id(message: Message) -> str:
    """The messageId: stable over redeliveries, and over SQS's own move to the dead-letter queue.

    A message that our redriver or our fast path to the dead-letter queue has sent again has a new id; it carries its
    original key, which is honoured here and nowhere else.
    """
    stamp = stamp_of(message.message_attributes)
    return message.id if stamp is None else stamp.key


def message_attribute(name: str) -> KeyStrategy:
    """The string value of a message attribute."""
    if not name:
        raise ValueError(f"message_attribute wants the attribute's name; it is {name!r}")

    def key(message: Message) -> str:
        if name not in message.message_attributes:
            raise UnusableKey(f"the message has no attribute {name!r}")
        return message.message_attributes[name].get("stringValue")  # type: ignore[return-value]  # checked by usable

    return key


def body_field(path: str) -> KeyStrategy:
    """A string or a whole number in the JSON body, found by a JMESPath expression: `transfer_id`, `detail.order.id`.

    A number's key is its digits: 42, 42.0 and 4.2e1 are `42`, as RFC 8785 has them. So is the string "42": producers
    that disagree about the type mean the same order. Their payloads differ, so the second is refused, not run.

    A body that has a name twice in one object has no usable key: another reader may take the other one.
    Raises ValueError at once for a path that is no JMESPath; a name with a hyphen wants quotes: `'"order-id"'`.
    """
    expression = compiled(path, "body_field")

    def key(message: Message) -> str:
        try:
            found = expression.search(json_of(message.body))
        except (ValueError, RecursionError, JMESPathError):
            raise UnusableKey(
                f"no {path!r} to take as the key: the body is not JSON, or it has a name twice in one object"
            ) from None
        if found is None:
            raise UnusableKey(f"the body has no {path!r} to take as the key")
        if isinstance(found, bool) or not isinstance(found, str | int | float):
            raise UnusableKey(f"{path!r} finds a {type(found).__name__}: a key is a string or a whole number")
        return found if isinstance(found, str) else _digits(found, path)

    return key


_INEXACT = 2**53
"""From here on, several whole numbers are read as one float."""


def _digits(number: float, path: str) -> str:
    """A whole number's one form. Raises UnusableKey where it is none, or cannot be known for sure."""
    if isinstance(number, int):
        return str(number)
    if not number.is_integer() or abs(number) >= _INEXACT:
        raise UnusableKey(
            f"{path!r} finds a number with a fraction, or beyond 2**53 and inexact: "
            "a key is a string or a whole number; send it as a string"
        )
    return str(int(number))


def event_id(event: Any, *_: object) -> str:
    """The id that EventBridge or SNS gave an event: the same each time it is delivered, whatever carries it.

    Takes what an SQS consumer is given (a message with the event in its body), or what a function behind EventBridge
    or SNS is. Raises UnusableKey for anything else.
    """
    if isinstance(event, Message):
        try:
            event = json_of(event.raw_body)
        except (ValueError, RecursionError):
            raise UnusableKey(
                "no event's id to take as the key: the body is not JSON, or it has a name twice in one object"
            ) from None
    match event:
        case {"detail-type": _, "id": str(id)} | {"Type": _, "MessageId": str(id)}:
            return id
        case {"Records": [{"Sns": {"MessageId": str(id)}}]}:
            return id
    raise UnusableKey("no event's id to take as the key: this is neither EventBridge's event nor one of SNS")


def usable(key: object, record_id: Callable[[str], str]) -> str:
    """The key, if DynamoDB can hold the record's id; else UnusableKey with the reason."""
    if not isinstance(key, str):
        raise UnusableKey(f"the key is of type {type(key).__name__}, not a string")
    if not key:
        raise UnusableKey("the key is empty")
    try:
        size = len(record_id(key).encode())
    except UnicodeEncodeError:
        raise UnusableKey("the key has a lone surrogate, which no AWS service takes") from None
    if size > MOST_KEY_BYTES:
        raise UnusableKey(f"the key with its namespace has {size} bytes; DynamoDB takes {MOST_KEY_BYTES}: hash it")
    return key


def fingerprint_by(strategy: KeyStrategy, message: Message, payload: Payload = EVERYTHING) -> str:
    """The fingerprint that goes with a strategy's keys.

    SQS ties a messageId to one body, to the byte; producers may write one payload in several ways. Raises UnusableKey
    where the fields that should count are not in the body.
    """
    if strategy is message_id:
        return raw_fingerprint(message.raw_body)
    return payload.fingerprint(Document.of_text(message.body))


def raw_fingerprint(body: str) -> str:
    """SHA-256 of the body as it came: for keys that SQS itself ties to one body."""
    return sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def envelope_opener(path: str | None) -> Callable[[str], str]:
    """What takes a body out of its envelope by a JMESPath expression; a body it does not fit stays as it is."""
    if path is None:
        return lambda body: body
    expression = compiled(path, "envelope")

    def open_envelope(body: str) -> str:
        try:
            document = json_of(body)
            found = expression.search(document)
            # What is in no envelope stays as it came, to the byte: reading and writing would change its numbers.
            if found is None or found is document:
                return body
            return found if isinstance(found, str) else json.dumps(found)
        except Exception:  # noqa: BLE001  # JMESPath's functions raise TypeError and OverflowError, too, by what they meet
            return body

    return open_envelope
