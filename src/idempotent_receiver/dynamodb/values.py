"""A record as DynamoDB's typed values and back, and what must not be sent at all. Nothing here talks to anybody."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.record import ATTRIBUTES, Record, from_attributes

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import UniversalAttributeValueTypeDef

MOST_KEY_BYTES = 2048
MOST_DIGITS = 38
_LARGEST_NUMBER = 10**MOST_DIGITS - 1


def typed(value: str | int) -> "UniversalAttributeValueTypeDef":
    """A value as DynamoDB takes it. boto3's TypeSerializer does more than a record needs, and costs an import."""
    return {"S": value} if isinstance(value, str) else {"N": str(value)}


def record_in(item: Mapping[str, Any]) -> Record:
    """The record that an item holds; what else the item carries is no matter of ours."""
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


def unsendable(id: str, values: Iterable[str | int | None] = ()) -> str | None:
    """Why a record with these values must not be sent: DynamoDB would refuse its whole batch with it, or mix up keys.

    A lone surrogate has no UTF-8, and AWS's own engine takes all of them for one "?": two keys would be one.
    """
    texts = [id]
    for value in values:
        if isinstance(value, str):
            texts.append(value)
        elif value is not None and abs(value) > _LARGEST_NUMBER:
            return f"a number of the record has more than {MOST_DIGITS} digits: DynamoDB stores none such"
    try:
        size = len(id.encode())
        "".join(texts).encode()
    except UnicodeEncodeError:
        return "the record's key or one of its values holds a lone surrogate: it is not text that DynamoDB stores"
    if not 0 < size <= MOST_KEY_BYTES:
        return f"the record's key has {size} bytes: DynamoDB takes 1 to {MOST_KEY_BYTES}; choose another key"
    return None
