"""Conversion between DynamoDB's wire format, with bytes as Base64, and the plain Python values that expressions use."""

from __future__ import annotations

from base64 import b64decode, b64encode
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.dynamodb.units import Item


class _FromWire(TypeDeserializer):
    def _deserialize_b(self, value: str) -> bytes:
        return b64decode(value)

    def _deserialize_n(self, value: str) -> Decimal:
        return Decimal(value)  # boto3's counts the zeros of 1E+40 as digits, and refuses it


class _ToWire(TypeSerializer):
    def _serialize_b(self, value: bytes) -> str:
        return b64encode(value).decode()

    def _serialize_n(self, value: int | Decimal) -> str:
        return str(value)


_VALUES = ("Item", "Key", "ExpressionAttributeValues")
"""The arguments that hold values."""

_from_wire, _to_wire = _FromWire(), _ToWire()


def plain(item: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """An item, a key or a request's values as plain values."""
    values: Any = item
    return {name: _plain(value) for name, value in values.items()}


def typed(item: Mapping[str, Any]) -> Item:
    """Plain values in wire format."""
    values: Any = {name: _typed(value) for name, value in item.items()}
    return cast("Item", values)


# boto3's converters are slow, and most values are texts.


def _plain(value: Any) -> Any:
    text = value.get("S")
    return _from_wire.deserialize(value) if text is None else text


def _typed(value: Any) -> Any:
    return {"S": value} if type(value) is str else _to_wire.serialize(value)


def wire(request: Mapping[str, Any]) -> dict[str, Any]:
    """A request with plain values, in wire format."""
    return {**request, **{name: typed(request[name]) for name in _VALUES if name in request}}
