"""The texts by which DynamoDB is asked to write a record, and which values go with them; nothing is sent here.

A text depends on which attributes are there, not on what they hold: a consumer needs a handful, each made once.

Every name is quoted or stands for itself by a placeholder: `status`, `data`, `owner` and `error` are reserved words.
PartiQL takes INSERT's names in single quotes, UPDATE's in double ones, and one clause for each attribute.
Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ql-reference.html
"""

from functools import lru_cache
from typing import NamedTuple

from idempotent_receiver.protocol.record import ATTRIBUTES, Change, values


class Shape(NamedTuple):
    """Which attributes a change sets and removes, and of which it expects a value, or that they are missing."""

    put: tuple[str, ...]
    removed: tuple[str, ...]
    standing: tuple[str, ...]
    missing: tuple[str, ...]


class Replacement(NamedTuple):
    """A change that replaces a record, as it is sent: its shape, and the values by the shape's names, in its order."""

    id: str
    shape: Shape
    put: dict[str, str | int]
    standing: dict[str, str | int]


def replacement_of(change: Change) -> Replacement:
    """What to send for a change that replaces a record.

    Where the version that it names still stands, so does all else that was seen, and only what differs is written. A
    record without a version is written whole: what it expects to stand is not all that the record holds.
    """
    seen, new = change.seen, change.new
    assert seen is not None, "what replaces nothing is an insert"
    whole = seen.version is None
    put: dict[str, str | int] = {}
    removed: list[str] = []
    for name, old, value in zip(ATTRIBUTES, values(seen), values(new), strict=True):
        if (whole and name != "id") or old != value:
            if value is None:
                removed.append(name)
            else:
                put[name] = value
    expected = change.expected
    standing = {name: value for name, value in expected.items() if value is not None}
    missing = tuple([name for name in expected if name not in standing])
    return Replacement(new.id, Shape(tuple(put), tuple(removed), tuple(standing), missing), put, standing)


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
