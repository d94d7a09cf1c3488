"""DynamoDB's values as they are on the wire, and as plain Python values, which is what expressions are about."""

from __future__ import annotations

from base64 import b64decode, b64encode
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from benchmarks.units import Item


def plain(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An item, a key or a request's values in plain values."""
    return {name: _plain(value) for name, value in item.items()}


def typed(item: Mapping[str, Any]) -> Item:
    """Plain values as they go over the wire."""
    return {name: _typed(value) for name, value in item.items()}


def _plain(value: Mapping[str, Any]) -> Any:
    ((kind, held),) = value.items()
    match kind:
        case "S" | "BOOL":
            return held
        case "N":
            return Decimal(held)
        case "NULL":
            return None
        case "B":
            return b64decode(held)
        case "M":
            return plain(held)
        case "L":
            return [_plain(part) for part in held]
        case "SS" | "NS" | "BS":
            return {_plain({kind[0]: part}) for part in held}
    raise ValueError(f"DynamoDB has no type {kind!r}")


def _typed(value: object) -> dict[str, Any]:
    match value:
        case str():
            return {"S": value}
        case bool():
            return {"BOOL": value}
        case int() | Decimal():
            return {"N": str(value)}
        case None:
            return {"NULL": True}
        case bytes():
            return {"B": b64encode(value).decode()}
        case dict():
            return {"M": typed(value)}
        case list():
            return {"L": [_typed(part) for part in value]}
        case set() | frozenset():
            parts = [next(iter(_typed(part).items())) for part in value]
            return {parts[0][0] + "S": [held for _, held in parts]}
    raise ValueError(f"DynamoDB stores no {type(value).__name__}")
