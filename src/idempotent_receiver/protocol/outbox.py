"""What a handler sends: messages that lie in its record until SQS has confirmed them.

They are written with the record that says that the effect is done, so they are sent if and only if it is. Nothing is
sent here.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from idempotent_receiver.errors import misuse
from idempotent_receiver.protocol.values import named_type, plain_copy

MOST_OUTBOX_BYTES = 64 * 1024
"""The most that one record has to send: the record's write and its mark each cost a unit a KB."""

NOBODY_REDELIVERS = "this entry point cannot send, because nobody redelivers its calls: only sqs_consumer can"
NO_CLIENT = "pass the consumer a client: sqs_consumer(store, sqs=boto3.client('sqs'))"
"""Why a transaction does not send."""

MOST_OTHER_ATTRIBUTES = 9
"""SQS allows ten attributes, and one is the stamp."""

STAMP = "idempotent-receiver"
"""The name of the message attribute that holds a message's key, as a JSON object."""

_OPTIONAL = {
    "DelaySeconds": int,
    "MessageAttributes": Mapping,
    "MessageGroupId": str,
    "MessageSystemAttributes": Mapping,
}
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that no SQS message may hold."""


class Outgoing(NamedTuple):
    """One message to send: its queue, and SendMessage's other arguments, without what its key adds."""

    queue_url: str
    arguments: Mapping[str, Any]

    @property
    def fifo(self) -> bool:
        """Whether its queue is a FIFO queue."""
        return self.queue_url.endswith(".fifo")

    def with_attributes(self, attributes: Mapping[str, str], system_attributes: Mapping[str, str]) -> "Outgoing":
        """The message with these text attributes too, where it has none of that name and room for them."""
        arguments, system = dict(self.arguments), "MessageSystemAttributes"
        arguments[system] = {**_texts(system_attributes), **arguments.get(system, {})}
        together = {**_texts(attributes), **arguments.get("MessageAttributes", {})}
        if len(together) <= MOST_OTHER_ATTRIBUTES:
            arguments["MessageAttributes"] = together
        return Outgoing(self.queue_url, arguments)


def _texts(attributes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"DataType": "String", "StringValue": text} for name, text in attributes.items()}


def outgoing(queue_url: object, body: object, arguments: Mapping[str, Any]) -> Outgoing:
    """The message, after checking and copying it. Raises TypeError or ValueError for what SQS would not take."""
    if not isinstance(queue_url, str) or not queue_url:
        raise misuse(TypeError(f"a transaction's send: QueueUrl takes a queue's URL; it is {named_type(queue_url)}"))
    if "MessageDeduplicationId" in arguments:
        text = (
            "takes no MessageDeduplicationId: the message's key is its deduplication id, the same whenever it is sent"
        )
        raise misuse(TypeError(f"a transaction's send {text}"))
    for name, value in arguments.items():
        kind = _OPTIONAL.get(name)
        if kind is None:
            raise misuse(TypeError(f"a transaction's send takes no {name}: see SendMessage"))
        if isinstance(value, bool) or not isinstance(value, kind):
            raise misuse(TypeError(f"a transaction's send: {name} takes {_KINDS[kind]}; it is {named_type(value)}"))
    attributes = arguments.get("MessageAttributes", {})
    if STAMP in attributes or len(attributes) > MOST_OTHER_ATTRIBUTES:
        text = f"takes up to {MOST_OTHER_ATTRIBUTES} attributes besides {STAMP!r}, which holds its key"
        raise misuse(ValueError(f"a transaction's send: MessageAttributes {text}"))
    for name in ("MessageAttributes", "MessageSystemAttributes"):
        if not all(map(_is_attribute, arguments.get(name, {}).values())):
            takes = "takes values like {'DataType': 'String', 'StringValue': 'a'}, or with a BinaryValue of bytes"
            raise misuse(TypeError(f"a transaction's send: {name} {takes}"))
    if queue_url.endswith(".fifo") and not arguments.get("MessageGroupId"):
        raise misuse(ValueError(f"a transaction's send: {queue_url} is a FIFO queue, so it needs a MessageGroupId"))
    text = _text_of(body)
    if not text or _FORBIDDEN.search(text):
        raise misuse(ValueError("a transaction's send: MessageBody is empty, or has characters that SQS does not take"))
    copied = {name: plain_copy(value, f"a transaction's send: {name}") for name, value in arguments.items()}
    return Outgoing(queue_url, {"MessageBody": text, **copied})


def _is_attribute(value: object) -> bool:
    match value:
        case {"DataType": str(), "StringValue": str(), **rest} | {"DataType": str(), "BinaryValue": bytes(), **rest}:
            return not rest
    return False


_KINDS: dict[type, str] = {int: "an int", str: "a str", Mapping: "a mapping"}


def _text_of(body: object) -> str:
    if isinstance(body, str):
        return body
    if body is None or isinstance(body, bytes | bytearray):
        text = "MessageBody takes a str, or what pydantic serialises to JSON"
        raise misuse(TypeError(f"a transaction's send: {text}; it is {named_type(body)}"))
    # Imported here, so that a handler that sends nothing never loads pydantic for it.
    from pydantic_core import to_json  # noqa: PLC0415

    try:
        return to_json(body).decode()
    except Exception as error:
        raise misuse(
            TypeError(f"a transaction's send: MessageBody is {named_type(body)}, which pydantic cannot serialise")
        ) from error


def to_text(sent: Sequence[Outgoing]) -> str:
    """The messages as a record holds them."""
    entries = [{"QueueUrl": one.queue_url, **one.arguments} for one in sent]
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"), default=_from_bytes)


def from_text(text: str) -> list[Outgoing]:
    """The messages in a record's outbox."""
    entries: Iterable[dict[str, Any]] = json.loads(text, object_hook=_to_bytes)
    return [Outgoing(entry.pop("QueueUrl"), entry) for entry in entries]


_BYTES = "base64"


def _from_bytes(value: object) -> dict[str, str]:
    assert isinstance(value, bytes)  # the only plain value in a message's arguments without a JSON form
    return {_BYTES: b64encode(value).decode()}


def _to_bytes(found: dict[str, Any]) -> Any:
    return b64decode(found[_BYTES]) if found.keys() == {_BYTES} else found
