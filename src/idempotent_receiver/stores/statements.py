"""The texts by which DynamoDB is asked to write a record; no values, and nothing that is sent.

A text depends on which attributes are there, not on what they hold: a consumer needs a handful, each made once.

Every name is quoted or stands for itself by a placeholder: `status`, `data`, `owner` and `error` are reserved words.
PartiQL takes INSERT's names in single quotes, UPDATE's in double ones, and one clause for each attribute.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.html
"""

from functools import lru_cache
from typing import NamedTuple

from idempotent_receiver.record import ATTRIBUTES, Change, attributes


class Shape(NamedTuple):
    """Which attributes a change sets and removes, and of which it expects a value, or that they are missing."""

    put: tuple[str, ...]
    removed: tuple[str, ...]
    standing: tuple[str, ...]
    missing: tuple[str, ...]


def shape_of(change: Change) -> Shape:
    """The shape of a change that replaces a record.

    Where the version that it names still stands, so does all else that was seen, and only what differs is written. A
    record without a version is written whole: what it expects to stand is not all that the record holds.
    """
    seen, new = change.seen, attributes(change.new)
    assert seen is not None, "what replaces nothing is an insert"
    old = {} if seen.version is None else attributes(seen)
    put = tuple(name for name, value in new.items() if name != "id" and old.get(name) != value)
    gone = ATTRIBUTES if seen.version is None else tuple(old)
    removed = tuple(name for name in gone if name != "id" and name not in new)
    expected = change.expected
    standing = tuple(name for name, value in expected.items() if value is not None)
    missing = tuple(name for name, value in expected.items() if value is None)
    return Shape(put, removed, standing, missing)


@lru_cache
def insert(table: str, names: tuple[str, ...]) -> str:
    """PartiQL that puts an item where there is none; parameters: the values of `names`."""
    values = ", ".join(f"'{name}': ?" for name in names)
    return f'INSERT INTO "{table}" VALUE {{{values}}}'


@lru_cache
def update(table: str, shape: Shape) -> str:
    """PartiQL that replaces a record that stands as expected; parameters: the values put, the id, those expected."""
    clauses = [f'SET "{name}"=?' for name in shape.put] + [f'REMOVE "{name}"' for name in shape.removed]
    conditions = ['"id"=?', *(f'"{name}"=?' for name in shape.standing)]
    conditions += [f'"{name}" IS MISSING' for name in shape.missing]
    return f'UPDATE "{table}" {" ".join(clauses)} WHERE {" AND ".join(conditions)}'


@lru_cache
def update_expression(shape: Shape) -> str:
    """The same replacement for UpdateItem: `#name` is the attribute, `:name` its new value."""
    put = "SET " + ", ".join(f"#{name} = :{name}" for name in shape.put)
    return f"{put} REMOVE {', '.join(f'#{name}' for name in shape.removed)}" if shape.removed else put


@lru_cache
def condition_expression(shape: Shape) -> str:
    """Its condition: `:expected_name` is the value that must stand.

    UpdateItem would create a record that has vanished, so its existence is part of it.
    """
    conditions = ["attribute_exists(#id)", *(f"#{name} = :expected_{name}" for name in shape.standing)]
    conditions += [f"attribute_not_exists(#{name})" for name in shape.missing]
    return " AND ".join(conditions)
