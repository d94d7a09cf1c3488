"""A record as DynamoDB's typed values and back, and what must not be sent at all. No I/O."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.record import ATTRIBUTES, MOST_KEY_BYTES, Record, from_attributes

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import UniversalAttributeValueTypeDef

MOST_DIGITS = 38
_LARGEST_NUMBER = 10**MOST_DIGITS - 1


def typed(values: Iterable[str | int]) -> "list[UniversalAttributeValueTypeDef]":
    """Values as DynamoDB takes them. boto3's TypeSerializer does more than a record needs, and costs an import."""
    return [{"S": value} if isinstance(value, str) else {"N": str(value)} for value in values]


def record_in(item: Mapping[str, Any]) -> Record:
    """The record that an item holds; other attributes of the item are ignored."""
    return from_attributes({name: _plain(item[name]) for name in ATTRIBUTES if name in item})


def _plain(value: Mapping[str, Any]) -> object:
    """A string, a number, or (for `from_attributes` to mark as foreign) the typed value itself."""
    match value:
        case {"S": str(text)}:
            return text
        case {"N": str(number)}:
            return Decimal(number)
        case _:
            return value


def unsendable(writes: Iterable[tuple[str, Iterable[str | int]]]) -> list[str | None]:
    """Why each record, given as its id and its values, must not be sent; None where it may be.

    DynamoDB would refuse its whole batch with it, or mix up keys: a lone surrogate has no UTF-8, and AWS's own engine
    takes each of them for a "?", so that two keys would be one.
    """
    reasons: list[str | None] = []
    for id, values in writes:
        reason, texts = None, [id]
        for value in values:
            if isinstance(value, str):
                texts.append(value)
            elif abs(value) > _LARGEST_NUMBER:
                reason = f"a number of the record has more than {MOST_DIGITS} digits: DynamoDB cannot store it"
        try:
            size = len(id.encode())
            "".join(texts).encode()
        except UnicodeEncodeError:
            reason = "the record's key or one of its values holds a lone surrogate: DynamoDB cannot store such text"
        else:
            if not 0 < size <= MOST_KEY_BYTES:
                reason = f"the record's key has {size} bytes: DynamoDB takes 1 to {MOST_KEY_BYTES}; choose another key"
        reasons.append(reason)
    return reasons
