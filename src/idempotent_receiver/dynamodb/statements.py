"""The statements and expressions that write a record, and their values. No I/O.

A text depends on which attributes are present, not on their values. A consumer needs only a few texts, each built once.

Every name is quoted or replaced by a placeholder, because `status`, `data`, `owner` and `error` are reserved words.
PartiQL uses single quotes for names in an INSERT, double quotes in an UPDATE, and one clause per attribute.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.html
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from idempotent_receiver.protocol.record import ATTRIBUTES, Change, Record, from_attributes

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import (
        BatchStatementRequestTypeDef,
        PutItemInputTypeDef,
        UniversalAttributeValueTypeDef,
        UpdateTypeDef,
    )

RecordItem = dict[str, str | int]
"""A record's attributes, as plain values."""


class Shape(NamedTuple):
    """The attributes that a change sets, removes, expects to be as seen, or expects to be absent."""

    put: tuple[str, ...]
    removed: tuple[str, ...]
    standing: tuple[str, ...]
    missing: tuple[str, ...]


class Replacement(NamedTuple):
    """A change that replaces a record, as sent: its shape, and its values in the order of the shape's names."""

    id: str
    shape: Shape
    put: dict[str, str | int]
    standing: dict[str, str | int]

    @property
    def sent(self) -> tuple[str | int, ...]:
        """The values, starting with the id."""
        return self.id, *self.put.values(), *self.standing.values()


def replacement_of(change: Change) -> Replacement:
    """The replacement to send for a change.

    If the expected version is still there, nothing else in the record has changed, so only differences are written. A
    record without a version is written in full, because the condition does not cover all of its attributes.
    """
    seen, new = change.seen, change.new
    assert seen is not None  # a change that replaces nothing is an insert
    whole = seen.version is None
    put: dict[str, str | int] = {}
    removed: list[str] = []
    for name, old, value in zip(ATTRIBUTES, seen, new, strict=False):
        if (whole and name != "id") or old != value:
            if value is None:
                removed.append(name)
            else:
                put[name] = value
    expected = change.expected
    standing = {name: value for name, value in expected.items() if value is not None}
    missing = tuple([name for name in expected if name not in standing])
    return Replacement(new.id, Shape(tuple(put), tuple(removed), tuple(standing), missing), put, standing)


def insert(table: str, item: RecordItem) -> "BatchStatementRequestTypeDef":
    """The statement that inserts an item if it does not exist."""
    return {"Statement": _insert(table, tuple(item)), "Parameters": attribute_values(item.values())}


def put_item(table: str, item: RecordItem) -> "PutItemInputTypeDef":
    """The same insert, as PutItem arguments."""
    return {
        "TableName": table,
        "Item": dict(zip(item, attribute_values(item.values()), strict=True)),
        "ConditionExpression": "attribute_not_exists(#id)",
        "ExpressionAttributeNames": {"#id": "id"},
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def update(table: str, replacement: Replacement) -> "BatchStatementRequestTypeDef":
    """The statement that replaces a record if it is as expected."""
    id, shape, put, standing = replacement
    return {
        "Statement": _update(table, shape),
        "Parameters": attribute_values((*put.values(), id, *standing.values())),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


def update_item(table: str, replacement: Replacement) -> "UpdateTypeDef":
    """The same replacement, as arguments for UpdateItem or for a transaction's Update."""
    id, shape, put, standing = replacement
    values = {f":{name}": value for name, value in put.items()}
    values |= {f":expected_{name}": value for name, value in standing.items()}
    return {
        "TableName": table,
        "Key": {"id": {"S": id}},
        "UpdateExpression": _update_expression(shape),
        "ConditionExpression": _condition_expression(shape),
        "ExpressionAttributeNames": {f"#{name}": name for name in ("id", *shape.put, *shape.removed)},
        "ExpressionAttributeValues": dict(zip(values, attribute_values(values.values()), strict=True)),
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
    }


@lru_cache
def _insert(table: str, names: tuple[str, ...]) -> str:
    values = ", ".join(f"'{name}': ?" for name in names)
    return f'INSERT INTO "{table}" VALUE {{{values}}}'


@lru_cache
def _update(table: str, shape: Shape) -> str:
    clauses = [f'SET "{name}"=?' for name in shape.put] + [f'REMOVE "{name}"' for name in shape.removed]
    conditions = ['"id"=?', *(f'"{name}"=?' for name in shape.standing)]
    conditions += [f'"{name}" IS MISSING' for name in shape.missing]
    return f'UPDATE "{table}" {" ".join(clauses)} WHERE {" AND ".join(conditions)}'


@lru_cache
def _update_expression(shape: Shape) -> str:
    """`#name` is the attribute, `:name` its new value."""
    put = "SET " + ", ".join(f"#{name} = :{name}" for name in shape.put)
    return f"{put} REMOVE {', '.join(f'#{name}' for name in shape.removed)}" if shape.removed else put


@lru_cache
def _condition_expression(shape: Shape) -> str:
    """`:expected_name` is the value that the attribute must still have.

    The record must exist, because UpdateItem would otherwise create it.
    """
    conditions = ["attribute_exists(#id)", *(f"#{name} = :expected_{name}" for name in shape.standing)]
    conditions += [f"attribute_not_exists(#{name})" for name in shape.missing]
    return " AND ".join(conditions)


def attribute_values(values: Iterable[str | int]) -> "list[UniversalAttributeValueTypeDef]":
    """Values in DynamoDB's format. boto3's TypeSerializer does more than a record needs, and takes time to import."""
    return [{"S": value} if isinstance(value, str) else {"N": str(value)} for value in values]


def record_in(item: Mapping[str, Any]) -> Record:
    """The record in an item; other attributes are ignored."""
    return from_attributes({name: _plain(item[name]) for name in ATTRIBUTES if name in item})


def _plain(value: Mapping[str, Any]) -> object:
    """The string or number; otherwise the typed value itself, which `from_attributes` marks as foreign."""
    match value:
        case {"S": str(text)}:
            return text
        case {"N": str(number)}:
            return Decimal(number)
        case _:
            return value
