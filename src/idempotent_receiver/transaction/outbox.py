"""The messages that a handler sends and the calls that it requests, which stay in the record until they are done.

They are written together with the record of success, so they are sent and made if and only if the effect took place.
This module sends and calls nothing.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from idempotent_receiver.errors import misuse
from idempotent_receiver.transaction.values import named_type, plain_copy

MOST_OUTBOX_BYTES = 64 * 1024
"""The most bytes of an outbox. Writing the record and marking it as done each cost one write unit per KB."""

NOBODY_REDELIVERS = "this entry point has no outbox, because its calls are not redelivered: use an sqs_consumer"
NO_CLIENT = "pass the consumer a client: sqs_consumer(store, sqs=boto3.client('sqs'))"
"""Reasons why a transaction cannot send, or call."""

MOST_OTHER_ATTRIBUTES = 9
"""SQS allows ten attributes; the stamp is one of them."""

TOMBSTONE = None
"""What an outbox holds in place of a confirmed message or a call that was made, null in JSON. A release that does not
know it reads none of the messages, so it neither sends nor marks them. The same applies to calls.
"""

GIVEN_UP = "GivenUp"
"""The only name in a tombstone with a reason, for a message or call that an operator gave up. A release that does not
know it reads none of the messages.
"""

MOST_DELAY_SECONDS = 900
"""SQS's maximum delay."""

STAMP = "idempotent-receiver"
"""The name of the message attribute that holds a message's key, as a JSON object."""

_OPTIONAL = {
    "DelaySeconds": int,
    "MessageAttributes": Mapping,
    "MessageGroupId": str,
    "MessageSystemAttributes": Mapping,
}
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""The characters that an SQS message must not contain."""
_URL, _GROUP = re.compile(r"https?://[!-~]+"), re.compile("[!-~]{1,128}")
_NAME = re.compile(r"(?=.{1,256}\Z)(?!(?i:aws|amazon)\.)[\w-]+(?:\.[\w-]+)*", re.ASCII)
_TYPE = re.compile(r"(String|Number|Binary)(?:\.[\w.-]{1,249})?", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
"""Source: Amazon SQS Developer Guide, "Amazon SQS message metadata"."""


class Outgoing(NamedTuple):
    """One message to send: its queue, and SendMessage's other arguments except those derived from its key."""

    queue_url: str
    arguments: Mapping[str, Any]

    @property
    def fifo(self) -> bool:
        """Whether the queue is a FIFO queue."""
        return self.queue_url.endswith(".fifo")

    def with_attributes(self, attributes: Mapping[str, str], system_attributes: Mapping[str, str]) -> "Outgoing":
        """The message with these text attributes added, if they fit. The message's own attributes take precedence."""
        arguments, system = dict(self.arguments), "MessageSystemAttributes"
        arguments[system] = {**_texts(system_attributes), **arguments.get(system, {})}
        together = {**_texts(attributes), **arguments.get("MessageAttributes", {})}
        if len(together) <= MOST_OTHER_ATTRIBUTES:
            arguments["MessageAttributes"] = together
        return Outgoing(self.queue_url, arguments)


class OutboxCall(NamedTuple):
    """One call to make: the name of a function that the consumer declares, and the arguments in JSON's own values."""

    name: str
    arguments: Mapping[str, Any]


OutboxEntry = Outgoing | OutboxCall
"""What an outbox holds under a number."""


class Outbox:
    """What a transaction is to send and to call: its entries, in order."""

    def __init__(self) -> None:
        self.entries: list[OutboxEntry] = []
        self._bytes = 0

    def add(self, entry: OutboxEntry, method: str) -> None:
        """Add what `method` was given. Raises ValueError if there is no room."""
        size = len(to_text([entry]).encode("utf-8", "surrogatepass"))
        if self._bytes + size > MOST_OUTBOX_BYTES:
            text = f"the outbox of one transaction exceeds {MOST_OUTBOX_BYTES // 1024} KB: pass a reference"
            raise misuse(ValueError(f"Transaction.{method}: {text}"))
        self._bytes += size
        self.entries.append(entry)

    def pass_on(self, attributes: Mapping[str, str], system_attributes: Mapping[str, str]) -> None:
        """Add these text attributes to each message, if they fit."""
        for place, entry in enumerate(self.entries):
            if isinstance(entry, Outgoing):
                self.entries[place] = entry.with_attributes(attributes, system_attributes)


class GivenUp(NamedTuple):
    """A message that will never be sent, or a call that will never be made: `queue_url` is the queue's URL or the
    function's name. Who gave it up, and why.
    """

    queue_url: str
    operator: str
    why: str


def _texts(attributes: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {name: {"DataType": "String", "StringValue": text} for name, text in attributes.items()}


def outgoing(queue_url: object, body: object, arguments: Mapping[str, Any]) -> Outgoing:
    """The message, checked and copied. Raises TypeError or ValueError for anything that SQS would reject."""
    if not isinstance(queue_url, str) or not _URL.fullmatch(queue_url):
        raise misuse(TypeError(f"Transaction.send: QueueUrl takes a queue URL; it is {named_type(queue_url)}"))
    if "MessageDeduplicationId" in arguments:
        text = "takes no MessageDeduplicationId: the message's key is its deduplication id, the same on every send"
        raise misuse(TypeError(f"Transaction.send {text}"))
    for name, value in arguments.items():
        kind = _OPTIONAL.get(name)
        if kind is None:
            raise misuse(TypeError(f"Transaction.send takes no {name}: see SendMessage"))
        if isinstance(value, bool) or not isinstance(value, kind):
            raise misuse(TypeError(f"Transaction.send: {name} takes {_KINDS[kind]}; it is {named_type(value)}"))
    _check_delay(queue_url, arguments.get("DelaySeconds", 0))
    attributes = arguments.get("MessageAttributes", {})
    if STAMP in attributes or len(attributes) > MOST_OTHER_ATTRIBUTES:
        text = f"takes up to {MOST_OTHER_ATTRIBUTES} attributes besides {STAMP!r}, which holds the message's key"
        raise misuse(ValueError(f"Transaction.send: MessageAttributes {text}"))
    for name in ("MessageAttributes", "MessageSystemAttributes"):
        if not all(_is_name(key, of=name) and _is_attribute(one) for key, one in arguments.get(name, {}).items()):
            raise misuse(TypeError(f"Transaction.send: {name} takes names and values like {_LIKE[name]}"))
    if "MessageGroupId" in arguments and not _GROUP.fullmatch(arguments["MessageGroupId"]):
        raise misuse(ValueError("Transaction.send: MessageGroupId takes 1 to 128 letters, digits and punctuation"))
    if queue_url.endswith(".fifo") and "MessageGroupId" not in arguments:
        raise misuse(ValueError(f"Transaction.send: {queue_url} is a FIFO queue, so it needs a MessageGroupId"))
    text = _text_of(body)
    if not text or _FORBIDDEN.search(text):
        raise misuse(ValueError("Transaction.send: MessageBody is empty, or has characters that SQS rejects"))
    copied = {name: plain_copy(value, f"Transaction.send: {name}") for name, value in arguments.items()}
    return Outgoing(queue_url, {"MessageBody": text, **copied})


def _check_delay(queue_url: str, seconds: int) -> None:
    if not 0 <= seconds <= MOST_DELAY_SECONDS:
        raise misuse(ValueError(f"Transaction.send: DelaySeconds takes 0 to {MOST_DELAY_SECONDS}"))
    if seconds and queue_url.endswith(".fifo"):
        text = "is a FIFO queue, where only the queue sets the delay: leave out DelaySeconds"
        raise misuse(ValueError(f"Transaction.send: {queue_url} {text}"))


_LIKE = {
    "MessageAttributes": "{'a': {'DataType': 'String', 'StringValue': 'b'}}, or a Number, or a Binary's BinaryValue",
    "MessageSystemAttributes": "{'AWSTraceHeader': {'DataType': 'String', 'StringValue': 'Root=...'}}",
}


def _is_name(name: object, *, of: str) -> bool:
    if of == "MessageSystemAttributes":
        return name == "AWSTraceHeader"  # SQS supports no other
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _is_attribute(value: object) -> bool:
    match value:
        case {"DataType": str(kind), "StringValue": str(text), **rest}:
            fits = {"String": bool(text), "Number": _NUMBER.fullmatch(text) is not None}
            return not rest and fits.get(_type_of(kind), False) and not _FORBIDDEN.search(text)
        case {"DataType": str(kind), "BinaryValue": bytes(data), **rest}:
            return not rest and _type_of(kind) == "Binary" and bool(data)
    return False


def _type_of(kind: str) -> str:
    """SQS's data type, without a custom label; empty if it is invalid."""
    found = _TYPE.fullmatch(kind)
    return "" if found is None else found[1]


_KINDS: dict[type, str] = {int: "an int", str: "a str", Mapping: "a mapping"}


def _text_of(body: object) -> str:
    if isinstance(body, str):
        return body
    if body is None or isinstance(body, bytes | bytearray):
        text = "MessageBody takes a str, or a value that pydantic serialises to JSON"
        raise misuse(TypeError(f"Transaction.send: {text}; it is {named_type(body)}"))
    # Imported here because most handlers send nothing.
    from pydantic_core import to_json  # noqa: PLC0415

    try:
        text = to_json(body).decode()
        if "NaN" in text or "Infinity" in text:
            json.loads(text, parse_constant=_refuse)
    except Exception as error:
        told = f"MessageBody is {named_type(body)}, which pydantic cannot serialise to JSON"
        raise misuse(TypeError(f"Transaction.send: {told}")) from error
    return text


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def target_of(entry: OutboxEntry) -> str:
    """Where an entry goes: a queue's URL, or a function's name."""
    return entry.name if isinstance(entry, OutboxCall) else entry.queue_url


def to_text(entries: Sequence[OutboxEntry]) -> str:
    """The messages and calls as stored in a record."""
    return _compact([_stored(one) for one in entries])


def _stored(entry: OutboxEntry) -> dict[str, Any]:
    if isinstance(entry, OutboxCall):
        return {"Call": entry.name, "Arguments": entry.arguments}
    return {"QueueUrl": entry.queue_url, **_recoded(entry.arguments, _encoded)}


def from_text(text: str | None) -> dict[int, OutboxEntry]:
    """What is left of a record's outbox, by numbers. The key of a message or call has its number, which never changes.
    Raises an exception if someone has edited the outbox into an invalid form.
    """
    entries = json.loads(text or "")
    if not entries or not isinstance(entries, list):
        raise ValueError("the outbox is empty")
    return {number: _entry(entry) for number, entry in enumerate(entries, 1) if not _is_tombstone(entry)}


def sends_in(entries: Mapping[int, OutboxEntry]) -> dict[int, Outgoing]:
    """The messages among the entries."""
    return {number: entry for number, entry in entries.items() if isinstance(entry, Outgoing)}


def calls_in(entries: Mapping[int, OutboxEntry]) -> dict[int, OutboxCall]:
    """The calls among the entries."""
    return {number: entry for number, entry in entries.items() if isinstance(entry, OutboxCall)}


def _is_tombstone(entry: object) -> bool:
    return entry is TOMBSTONE or (isinstance(entry, dict) and entry.keys() == {GIVEN_UP})


def with_reason(text: str | None, number: int, why: GivenUp) -> str:
    """The outbox with a tombstone and its reason in place of the entry with this number."""
    entries = json.loads(text or "")
    entries[number - 1] = {GIVEN_UP: why._asdict()}
    return _compact(entries)


def given_up(text: str | None) -> dict[int, GivenUp]:
    """The entries that operators gave up, by their numbers. Empty if the outbox cannot be read."""
    try:
        entries = enumerate(json.loads(text or "[]"), 1)
        return {number: GivenUp(**entry[GIVEN_UP]) for number, entry in entries if entry and _is_tombstone(entry)}
    except (ValueError, TypeError, RecursionError):
        return {}


def without_messages(text: str | None) -> str | None:
    """What stays of an outbox in a COMPLETED record: its tombstones, if any has a reason."""
    if text is None or GIVEN_UP not in text or not (kept := given_up(text)):
        return None
    return _compact(
        [{GIVEN_UP: kept[number]._asdict()} if number in kept else TOMBSTONE for number in range(1, max(kept) + 1)]
    )


def confirmed(text: str | None, numbers: Collection[int]) -> str:
    """The outbox with tombstones in place of the entries with these numbers: SQS has confirmed them, or they were
    made.
    """
    entries = json.loads(text or "")
    return _compact([TOMBSTONE if number in numbers else entry for number, entry in enumerate(entries, 1)])


def _compact(entries: Sequence[Any]) -> str:
    return json.dumps(entries, ensure_ascii=False, separators=(",", ":"))


def _entry(entry: dict[str, Any]) -> OutboxEntry:
    if "Call" in entry:
        name, arguments = entry.pop("Call"), entry.pop("Arguments")
        if entry or not isinstance(name, str) or not isinstance(arguments, dict):
            raise ValueError("this is not a call")
        return OutboxCall(name, arguments)
    return outgoing(entry.pop("QueueUrl"), entry.pop("MessageBody"), _recoded(entry, b64decode))


def _encoded(value: bytes) -> str:
    return b64encode(value).decode()


def _recoded(arguments: Mapping[str, Any], code: Callable[[Any], Any]) -> dict[str, Any]:
    """The arguments with the attributes' bytes converted, because JSON has no bytes."""
    recoded = dict(arguments)
    for name in ("MessageAttributes", "MessageSystemAttributes"):
        if name in arguments:
            recoded[name] = {
                key: {part: code(value) if part == "BinaryValue" else value for part, value in attribute.items()}
                for key, attribute in arguments[name].items()
            }
    return recoded
