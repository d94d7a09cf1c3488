"""The capacity units that DynamoDB charges, by AWS's rules. They are computed here because emulators get them wrong.

An item's size is that of its attribute names and values. A write is charged by the larger of the item's sizes before
and after it, in steps of 1 KB; a read in steps of 4 KB; a missing item like the smallest item. A conditional write
costs the same whether or not its condition holds. In a transaction, everything counts twice. Sources: Amazon DynamoDB
Developer Guide, "DynamoDB item sizes and formats" and "DynamoDB read and write operations".
"""

from __future__ import annotations

from base64 import b64decode
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

Item = dict[str, dict[str, Any]]
"""An item on the wire: `{"id": {"S": "a"}}`."""


MOST_DIGITS = 38


class TooLong(ValueError):
    """A number has more digits than DynamoDB keeps."""


class Work(Enum):
    """The operations on one item: the bytes per step, and the units per step."""

    WRITE = (1024, 1.0)
    TRANSACTED_WRITE = (1024, 2.0)
    CONSISTENT_READ = (4096, 1.0)
    EVENTUAL_READ = (4096, 0.5)
    TRANSACTED_READ = (4096, 2.0)


def units(work: Work, bytes_: int) -> float:
    """The units charged for one item of this size; for a write, the larger of its sizes before and after."""
    step, price = work.value
    return price * max(1, -(-bytes_ // step))


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """The size of an item, names included."""
    return sum([len(name.encode()) + _value_bytes(value) for name, value in item.items()])


def _value_bytes(value: Mapping[str, Any]) -> int:
    ((kind, held),) = value.items()
    match kind:
        case "S":
            return len(held.encode())
        case "N":
            return _number_bytes(held)
        case "B":
            return len(b64decode(held))
        case "BOOL" | "NULL":
            return 1
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(part) for name, part in held.items())
        case "L":
            return 3 + sum(1 + _value_bytes(part) for part in held)
        case "SS" | "NS" | "BS":
            return sum(_value_bytes({kind[0]: part}) for part in held)
    raise ValueError(f"DynamoDB has no type {kind!r}")


def _number_bytes(text: str) -> int:
    """One byte per two significant digits, plus one, plus another for a minus sign."""
    digits = text.lower().partition("e")[0].lstrip("-+").replace(".", "").strip("0")
    if len(digits) > MOST_DIGITS:
        raise TooLong(f"DynamoDB only supports precision up to {MOST_DIGITS} digits")
    return (len(digits) + 1) // 2 + 1 + text.startswith("-")
