"""Key strategies for messages, and the fingerprints that distinguish payloads under one key."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any

from jmespath.exceptions import JMESPathError

from idempotent_receiver.errors import PermanentError, UnusableKey, blames_input, misuse, text_of
from idempotent_receiver.json_numbers import EXACT, Inexact, exact_text, has_inexact
from idempotent_receiver.options import key_for, made
from idempotent_receiver.payload import EVERYTHING, Document, Payload, compiled, json_of, require_taken
from idempotent_receiver.protocol.record import usable
from idempotent_receiver.sqs.dead_letter import stamp_of
from idempotent_receiver.sqs.message import Message

KeyStrategy = Callable[[Message], str]
OpenEnvelope = Callable[[str], str]
"""Extracts a body from its envelope, the body as it was sent."""


@dataclass(frozen=True, slots=True)
class Made:
    """A key strategy made by a function in this module: the function's name and argument, and the lookup."""

    by: str
    argument: str
    find: KeyStrategy = field(compare=False, repr=False)

    def __call__(self, message: Message) -> str:
        """The message's key. Raises UnusableKey."""
        return self.find(message)


@key_for("sqs_consumer")
def message_id(message: Message) -> str:
    """The messageId: stable across redeliveries and across SQS's own move to the dead-letter queue.

    A message that was sent again, by a redrive or to the dead-letter queue, has a new messageId and carries its
    original key. Only this strategy uses the original key.
    """
    stamp = stamp_of(message.message_attributes) if message.message_attributes else None
    return message.id if stamp is None else stamp.key


@key_for()
def message_attribute(name: str) -> KeyStrategy:
    """The string value of the message attribute `name`."""
    if not name or not isinstance(name, str):
        raise ValueError(f"message_attribute needs the attribute's name; it is {name!r}")

    def key(message: Message) -> str:
        if name not in message.message_attributes:
            raise UnusableKey(f"the message has no attribute {name!r}")
        return message.message_attributes[name].get("stringValue")  # type: ignore[return-value]  # checked by usable

    return Made("message_attribute", name, key)


@key_for()
def body_field(path: str) -> KeyStrategy:
    """A string or whole number in the JSON body, found by a JMESPath expression: `transfer_id`, `detail.order.id`.

    A number's key is its digits: 42, 42.0 and 4.2e1 give `42`, as in RFC 8785. So does the string "42": producers that
    disagree about the type still mean the same key. Their payloads differ, so the second message is refused, not run.

    A body with a repeated name in one object has no usable key, because readers differ in which value they take. Raises
    ValueError at once for a path that is not valid JMESPath. A name with a hyphen needs quotes: `'"order-id"'`.
    """
    expression = compiled(path, "body_field")

    def key(message: Message) -> str:
        found = _found(repr(path), lambda: expression.search(json_of(message.body), EXACT))
        if found is None:
            raise UnusableKey(f"the body has no {path!r} to take as the key")
        if isinstance(found, bool) or not isinstance(found, str | int | float):
            raise UnusableKey(f"{path!r} finds a {type(found).__name__}: a key is a string or a whole number")
        require_taken(path, found)
        return found if isinstance(found, str) else _digits(found, path)

    return Made("body_field", path, key)


def _found(what: str, find: Callable[[], Any]) -> Any:
    """The value that `find` returns. Raises UnusableKey for a body that cannot be read."""
    try:
        return find()
    except (ValueError, RecursionError, JMESPathError):
        reason = "the body is not JSON, or an object in it repeats a name"
        raise UnusableKey(f"no {what} to take as the key: {reason}") from None


_INEXACT = 2**53
"""From this number on, JSON readers may round different whole numbers to the same float."""


def _digits(number: float, path: str) -> str:
    """The canonical form of a whole number. Raises UnusableKey for a fraction, or for a number that JSON readers may
    round.
    """
    if isinstance(number, int):
        return str(number)
    if isinstance(number, Inexact) or not number.is_integer() or abs(number) >= _INEXACT:
        raise UnusableKey(
            f"{path!r} finds a number with a fraction, or too large to be exact: "
            "a key is a string or a whole number; send it as a string"
        )
    return str(int(number))


@key_for("sqs_consumer", "idempotent")
def event_id(event: Any, *_: object) -> str:
    """The id that EventBridge or SNS gave an event: the same on every delivery and every route. S3's own notifications
    have no id, so their key is a SHA-256 of bucket, object key, event name, sequencer and version.

    Takes an SQS message with the event in its body, or the event that a function behind EventBridge, SNS or S3
    receives. Raises UnusableKey for anything else, for several S3 events in one message, and for an S3 event without a
    sequencer. S3 adds a sequencer when an object is created or deleted; EventBridge gives an id to every event.
    Source: https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html

    A consumer with this strategy completes the `s3:TestEvent` that S3 sends when a notification is configured, without
    running the function.
    """
    if isinstance(event, Message):
        event = _found("event's id", partial(json_of, event.raw_body))
    match event:
        case {"detail-type": _, "id": str(id)} | {"Type": _, "MessageId": str(id)}:
            return id
        case {"Records": [{"Sns": {"MessageId": str(id)}}]}:
            return id
        case {"Records": [{"eventSource": "aws:s3"} as record]}:
            return _s3_event_id(record)
        case {"Records": [{"eventSource": "aws:s3"}, *_]}:
            raise UnusableKey("the message has several S3 events and would need several keys: send each one separately")
    raise UnusableKey("no event id to take as the key: this is not an event from EventBridge, SNS or S3")


def _s3_event_id(record: Mapping[str, Any]) -> str:
    match record:
        case {
            "eventName": str(name),
            "s3": {"bucket": {"name": str(bucket)}, "object": {"key": str(key), "sequencer": str(sequencer)} as found},
        } if sequencer and isinstance(version := found.get("versionId"), str | None):
            # As JSON, so that no two different events produce the same text; hashed, because a URL-encoded object key
            # may be too long for a record's id.
            return sha256(json.dumps([bucket, key, name, sequencer, version]).encode()).hexdigest()
    raise UnusableKey(
        "no sequencer to make the S3 event's key from: S3 gives one to objects created or deleted; "
        "have S3 send other events to EventBridge, which gives each an id"
    )


def fingerprint_by(strategy: KeyStrategy, message: Message, payload: Payload = EVERYTHING) -> str:
    """The fingerprint of a message's payload, for a key strategy.

    For messageIds, it covers the body's bytes, because SQS ties a messageId to one exact body. For other keys, it
    covers the canonical form, because producers may write one payload in several ways. For S3's own notifications, it
    covers only the parts of their key, because AWS promises no more to be the same. Raises UnusableKey if a field to
    compare is missing.
    """
    if strategy is message_id:
        return sha256(message.raw_body.encode("utf-8", "surrogatepass")).hexdigest()
    if strategy is event_id and payload == EVERYTHING:
        match json_of(message.raw_body):
            case {"Records": [{"eventSource": "aws:s3"}]}:
                return event_id(message)
    return payload.fingerprint(Document.of_text(message.body))


def keyed(
    message: Message, by: KeyStrategy, payload: Payload, open_envelope: OpenEnvelope, id_of: Callable[[str], str]
) -> tuple[Message, str, str]:
    """The message with its body, its key, and its payload's fingerprint. Raises UnusableKey for a key that cannot be
    used, and whatever the envelope or the strategy raises.
    """
    body = open_envelope(message.raw_body)
    if body is not message.body:
        message = replace(message, body=body)
    key = usable(by(message), id_of)
    return message, key, fingerprint_by(by, message, payload)


def in_code(key: KeyStrategy, payload: Payload | None, envelope: str | OpenEnvelope | None) -> bool:
    """Whether a user's own callable takes part in `keyed`: it may take time, and only its code says what it does."""
    known = key is message_id or key is event_id or isinstance(key, Made) or type(key) is Payload
    return not known or type(payload) not in (Payload, type(None)) or not isinstance(envelope, str | None)


def envelope_opener(envelope: str | OpenEnvelope | None) -> OpenEnvelope:
    """A function that extracts a body from its envelope: a user's callable, or a JMESPath expression's, which leaves
    a body that does not match unchanged. A callable's error that blames the message becomes an UnusableKey.
    """
    if envelope is None:
        return lambda body: body
    if not isinstance(envelope, str):
        return partial(_opened, envelope)
    expression = compiled(envelope, "envelope")

    def open_envelope(body: str) -> str:
        try:
            document = json_of(body)
            found = expression.search(document, EXACT)
            if found is None or found is document:
                return body
            require_taken(envelope, found)
            if isinstance(found, str):
                return found
            return exact_text(found) if has_inexact(found) else json.dumps(found)
        except Exception:  # noqa: BLE001  # JMESPath's functions also raise TypeError and OverflowError
            return body

    return open_envelope


def _opened(envelope: OpenEnvelope, body: str) -> str:
    found: object = made("body", "the envelope", partial(envelope, body))
    if not isinstance(found, str):
        # Not the message's fault: once the code is corrected, it will do.
        raise misuse(RuntimeError(f"the envelope returned {type(found).__name__}: return the body as a str"))
    return found


def why_unusable(error: BaseException) -> str:
    """The log text for a message without a usable key. A custom strategy's own error text may contain secrets."""
    if isinstance(error, UnusableKey | PermanentError):
        cause = error.__cause__
        return text_of(error) if cause is None else f"{text_of(error)}: {type(cause).__name__}"
    what = "the key strategy" if blames_input(error) else "no key could be made now: the envelope or the key strategy"
    return f"{what} raised {type(error).__name__}"
