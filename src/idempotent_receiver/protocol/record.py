"""The record of one key: what the table holds, when it expires, and how it is written.

`transitions.py` defines what may happen to a record. No I/O, clock, randomness or environment here.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from idempotent_receiver.errors import UnusableKey

DEFAULT_RETENTION_SECONDS = 30 * 24 * 60 * 60
"""Thirty days, because moves to and from a dead-letter queue restart SQS's own retention of up to fourteen days."""


class Status(StrEnum):
    """The states of a record."""

    INPROGRESS = "INPROGRESS"
    SENDING = "SENDING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"


class Record(NamedTuple):
    """What the table holds for one key; absent attributes are None. Pass fields by name: their order is not stable.

    `expiration` is in epoch seconds (the table's TTL attribute), `in_progress_expiration` in epoch milliseconds (the
    lease's end). `attempts` is the number of times that the handler may have started. `execution` is the ARN of the
    workflow execution that has the key, and `input` the input of one still to be started. `resent` is a `Resend` as
    JSON, `outbox` the messages that a SENDING record has to send; a COMPLETED record keeps which of them operators gave
    up. `charged` says what the message itself has cost, as JSON: see `charges.py`. `unreadable` is never stored: it
    says why the stored attributes are not a valid record, for `decide` to answer `Unreadable`.
    """

    id: str
    status: str
    version: str | None = None
    data: str | None = None
    validation: str | None = None
    error: str | None = None
    owner: str | None = None
    execution: str | None = None
    input: str | None = None
    resent: str | None = None
    outbox: str | None = None
    charged: str | None = None
    expiration: int | None = None
    in_progress_expiration: int | None = None
    attempts: int | None = None
    unreadable: str | None = None

    @property
    def lease_until_ms(self) -> int | None:
        """When the lease ends. Without a context, Powertools writes no lease, so the record's expiration counts."""
        if self.in_progress_expiration is not None:
            return self.in_progress_expiration
        return None if self.expiration is None else self.expiration * 1000

    def expired(self, now_ms: int) -> bool:
        """Whether the record counts as absent. `expiration` decides, because DynamoDB deletes items days later."""
        return self.expiration is not None and self.expiration * 1000 <= now_ms

    def differs(self, fingerprint: str | None) -> bool:
        """Whether the record is for a different payload. Powertools' MD5 fingerprints are not comparable to SHA-256."""
        if self.validation is None or fingerprint is None:
            return False
        incomparable = self.version is None and len(self.validation) == 32
        return self.validation != fingerprint and not incomparable

    @property
    def size_bytes(self) -> int:
        """The item's size by DynamoDB's rule: names and values; a number takes one byte per two digits, plus one."""
        # All strings are joined at once, because this runs for every message.
        text = "".join([f"{name}{value}" for name, value in zip(_STRINGS, self, strict=False) if value is not None])
        size = len(text) if text.isascii() else len(text.encode())
        for name, number in zip(_NUMBERS, self[len(_STRINGS) :], strict=False):
            if number is not None:
                size += len(name) + (len(str(number)) + 1) // 2 + 1
        return size


ATTRIBUTES = Record._fields[:-1]
"""The attributes of a record in the table; an item's other attributes are left alone."""

_STRINGS, _NUMBERS = ATTRIBUTES[:-3], ATTRIBUTES[-3:]


def attributes(record: Record) -> dict[str, str | int]:
    """The record as the table holds it: its attributes that are not None."""
    return {name: value for name, value in zip(ATTRIBUTES, record, strict=False) if value is not None}


def from_attributes(item: Mapping[str, object]) -> Record:
    """The record in an item. Without a status, or with attributes of unexpected types, it is `unreadable`."""
    strings = {name: value for name in _STRINGS if isinstance(value := item.get(name), str)}
    numbers = {name: value for name in _NUMBERS if (value := _whole(item.get(name))) is not None}
    foreign = [name for name in ATTRIBUTES if name in item and name not in strings and name not in numbers]
    unreadable = f"unexpected type of {', '.join(foreign)}" if foreign else None if "status" in item else "no status"
    strings.setdefault("status", "")
    return Record(**strings, **numbers, unreadable=unreadable)  # type: ignore[arg-type]  # the names imply the types


def error_of(record: Record) -> Mapping[str, Any]:
    """A FAILED record's error; empty if it cannot be read."""
    if record.status != Status.FAILED or record.error is None:
        return {}
    try:
        error = json.loads(record.error)
    except (ValueError, RecursionError):
        return {}
    return error if isinstance(error, dict) else {}


def permanent(record: Record) -> bool:
    """Whether the record says that a retry cannot help."""
    return error_of(record).get("permanent") is True


def exhausted(record: Record) -> bool:
    """Whether the record says that its message has used up its charged attempts."""
    return error_of(record).get("exhausted") is True


def _whole(value: object) -> int | None:
    """An integer, even if the engine returns it as a Decimal; None for anything else."""
    if isinstance(value, bool) or not hasattr(value, "__int__") or isinstance(value, str):
        return None
    try:
        number = int(value)
    except (ValueError, OverflowError):  # NaN and infinities
        return None
    return number if number == value else None


@dataclass(frozen=True, slots=True)
class Unread:
    """Stands in for a record that has not been read yet or is in doubt."""


class Change(NamedTuple):
    """One write: put `new`, provided that the table still holds `seen` (None: no record)."""

    new: Record
    seen: Record | None

    @property
    def expected(self) -> dict[str, str | int | None]:
        """The attributes seen that must still match; None means that the attribute must be absent.

        A version suffices. A record written by Powertools has no version: it is unchanged if none has appeared and its
        status and both expirations are the same.
        """
        seen = self.seen
        if seen is None:
            return {"id": None}
        if seen.version is not None:
            return {"version": seen.version}
        names = ("version", "status", "expiration", "in_progress_expiration")
        return {name: getattr(seen, name) for name in names}


def unchanged(seen: Record | None, standing: Record | None) -> bool:
    """Whether the record `seen` still matches `standing`."""
    if seen is standing or seen is None or standing is None:
        return seen is standing
    return all(getattr(seen, name) == value for name, value in Change(seen, standing).expected.items())


def idempotency_key(id: str) -> str:
    """The SHA-256 of a record's id, in hexadecimal."""
    return sha256(id.encode("utf-8", "surrogatepass")).hexdigest()


MOST_KEY_BYTES = 2048
"""DynamoDB's limit for a partition key; emulators allow more."""


def record_id(namespace: str | None, key: str) -> str:
    """The id of a key's record: the key, or `{namespace}#{key}`. No other pair of namespace and key has this id.

    Raises UnusableKey for a key that contains `#` if there is no namespace: it could be another record's id.
    """
    if namespace is not None:
        return f"{namespace}#{key}"
    if "#" in key:
        raise UnusableKey(
            "the key has a '#', so it could name another record: use a key without it, or give the store a namespace"
        )
    return key


def usable(key: object, id_of: Callable[[str], str]) -> str:
    """The key, if DynamoDB can store its record's id. Raises UnusableKey with the reason otherwise."""
    if not isinstance(key, str):
        raise UnusableKey(f"the key is of type {type(key).__name__}, not a string")
    if not key:
        raise UnusableKey("the key is empty")
    try:
        size = len(id_of(key).encode())
    except UnicodeEncodeError:
        raise UnusableKey("the key has a lone surrogate, which AWS services reject") from None
    if size > MOST_KEY_BYTES:
        raise UnusableKey(f"the key with its namespace has {size} bytes; DynamoDB allows {MOST_KEY_BYTES}: hash it")
    return key
