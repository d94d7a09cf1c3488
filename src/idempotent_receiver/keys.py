"""Where a message's key comes from, and the fingerprint that tells two payloads under one key apart."""

import json
from collections.abc import Callable
from hashlib import sha256

import jmespath
import rfc8785
from jmespath.exceptions import JMESPathError

from idempotent_receiver.deadletter import stamp_of
from idempotent_receiver.message import Message

KeyStrategy = Callable[[Message], str]

MOST_KEY_BYTES = 2048
"""DynamoDB's limit for a partition key; emulators take more."""


class UnusableKey(ValueError):
    """No key can be made of this message: it is never run unclaimed."""


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
    """A string in the JSON body, found by a JMESPath expression: `transfer_id`, `detail.order.id`.

    Raises ValueError at once for a path that is no JMESPath; a name with a hyphen wants quotes: `'"order-id"'`.
    """
    expression = _compiled(path, "body_field")

    def key(message: Message) -> str:
        try:
            found = expression.search(json.loads(message.body))
        except (ValueError, RecursionError, JMESPathError):
            raise UnusableKey(f"no {path!r} to take as the key: the body is not JSON") from None
        if found is None:
            raise UnusableKey(f"the body has no {path!r} to take as the key")
        return found  # type: ignore[no-any-return]  # checked by usable

    return key


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


def fingerprint_by(strategy: KeyStrategy, message: Message) -> str:
    """The fingerprint that goes with a strategy's keys.

    SQS ties a messageId to one body, to the byte; producers may write one payload in several ways.
    """
    return raw_fingerprint(message.raw_body) if strategy is message_id else fingerprint(message.body)


def raw_fingerprint(body: str) -> str:
    """SHA-256 of the body as it came: for keys that SQS itself ties to one body."""
    return sha256(body.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(body: str) -> str:
    """SHA-256 of the body's canonical JSON (RFC 8785), so that white space and the order of names do not matter.

    Bodies that have no canonical form (not JSON, integers over 2^53) count by their raw bytes.
    """
    try:
        canonical = rfc8785.dumps(json.loads(body))
    except (ValueError, RecursionError, rfc8785.CanonicalizationError):
        return raw_fingerprint(body)
    return sha256(canonical).hexdigest()


def envelope_opener(path: str | None) -> Callable[[str], str]:
    """What takes a body out of its envelope by a JMESPath expression; a body it does not fit stays as it is."""
    if path is None:
        return lambda body: body
    expression = _compiled(path, "envelope")

    def open_envelope(body: str) -> str:
        try:
            document = json.loads(body)
            found = expression.search(document)
            # What is in no envelope stays as it came, to the byte: reading and writing would change its numbers.
            if found is None or found is document:
                return body
            return found if isinstance(found, str) else json.dumps(found)
        except (ValueError, RecursionError, JMESPathError):
            return body

    return open_envelope


def _compiled(path: str, name: str) -> jmespath.parser.ParsedResult:
    try:
        return jmespath.compile(path)
    except (JMESPathError, TypeError, AttributeError):
        raise ValueError(
            f"{name}({path!r}) is not a JMESPath expression; a name with other signs than letters, digits and _ wants "
            "quotes inside: '\"order-id\"'"
        ) from None
