"""One write of an item: the item it meets, its condition, and the result. `Tables` applies it.

Sources: Amazon DynamoDB API Reference, PutItem, UpdateItem, DeleteItem and TransactWriteItem.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from harness.dynamodb.partiql import Insert
from harness.dynamodb.units import Item, TooLong, item_bytes
from harness.dynamodb.values import plain, typed
from idempotent_receiver.testing.expressions import holds, updated, validate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harness.dynamodb.partiql import Update

    Request = Mapping[str, Any]

MOST_ITEM_BYTES = 400 * 1024
MOST_KEY_BYTES = 2048
CONDITION_FAILED = "The conditional request failed"

CONDITION = {
    "ConditionExpression",
    "ExpressionAttributeNames",
    "ExpressionAttributeValues",
    "ReturnValuesOnConditionCheckFailure",
}
"""The arguments of a condition."""

Kind = Literal["Put", "Update", "Delete", "ConditionCheck"]
_ACTIONS: dict[str, set[str]] = {
    "Put": {"TableName", "Item"},
    "Update": {"TableName", "Key", "UpdateExpression"},
    "Delete": {"TableName", "Key"},
    "ConditionCheck": {"TableName", "Key"},
}
"""The actions of a transaction, each with its required arguments."""


class Refused(Exception):
    """An error that DynamoDB would return: its code, its message, and further fields of its body. In a batch of
    statements, it concerns one statement; in a transaction, it refuses the whole without naming an action.
    """

    def __init__(self, code: str, message: str, **beside: Any) -> None:
        super().__init__(message)
        self.code = code
        self.beside = beside


class Misfit(Refused):
    """Cancels a transaction and names the action."""


class KeyChanged(Refused):
    """Cancels a transaction with a single reason, however many actions it has."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An item in a table, and its size."""

    item: Item
    bytes: int


@dataclass(slots=True)
class Table:
    """One table: the names of its key's attributes, and its items by their values."""

    name: str
    key: tuple[str, ...]
    items: dict[tuple[str, ...], Stored] = field(default_factory=dict)

    def place(self, source: Request) -> tuple[str, ...]:
        """The key of an item. Only strings are supported as keys."""
        if missing := [name for name in self.key if name not in source]:
            raise Refused("ValidationException", f"One of the required keys was not given a value: {missing}")
        try:
            place = tuple([source[name]["S"] for name in self.key])
        except KeyError:
            kinds = {kind for name in self.key for kind in source[name]}
            error = Misfit if kinds <= {"S", "N", "B"} else Refused
            raise error("ValidationException", "Type mismatch for key") from None
        for text in place:
            if not text:
                raise Refused("ValidationException", "A key is not empty")
            if len(text.encode()) > MOST_KEY_BYTES:
                raise Misfit("ValidationException", f"A key has at most {MOST_KEY_BYTES} bytes")
        return place


@dataclass(frozen=True, slots=True)
class Write:
    """A write decided but not yet applied. `allowed` tells whether its condition held."""

    table: Table
    place: tuple[str, ...]
    before: Stored | None
    after: Stored | None
    allowed: bool

    @property
    def bytes(self) -> int:
        """The size charged."""
        return max(self.before.bytes if self.before else 0, self.after.bytes if self.after else 0)

    def apply(self) -> None:
        """Apply the write."""
        if self.after is None:
            self.table.items.pop(self.place, None)
        else:
            self.table.items[self.place] = self.after

    def old_item(self, request: Request) -> dict[str, Any]:
        """The item that a failed condition's error returns, if the request asks for it."""
        wanted = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        return {"Item": self.before.item} if wanted and self.before else {}

    def reason(self, request: Request) -> dict[str, Any]:
        """The cancellation reason of this write."""
        if self.allowed:
            return {"Code": "None"}
        return {"Code": "ConditionalCheckFailed", "Message": CONDITION_FAILED, **self.old_item(request)}


def action_of(action: Request) -> tuple[Kind, Request]:
    """The kind and arguments of a transaction's action. Raises Refused if it is not supported here."""
    for kind in get_args(Kind):
        if (arguments := action.get(kind)) is not None and len(action) == 1:
            if arguments.keys() - CONDITION == _ACTIONS[kind]:
                return kind, arguments
            unsupported = ", ".join(sorted(arguments.keys() - CONDITION ^ _ACTIONS[kind]))
            raise Refused("ValidationException", f"{kind}: missing, or not supported here: {unsupported}")
    raise Refused("ValidationException", f"an action has one of {', '.join(_ACTIONS)}")


def decided(kind: Kind, table: Table, request: Request) -> Write:
    """The write that a request asks for. Raises Refused and ExpressionError."""
    if kind != "Put" and request["Key"].keys() - set(table.key):
        raise Refused("ValidationException", "The number of conditions on the keys is invalid")
    place = table.place(request["Item" if kind == "Put" else "Key"])
    before = table.items.get(place)
    item = None if before is None else plain(before.item)
    names, values = request.get("ExpressionAttributeNames", {}), plain(request.get("ExpressionAttributeValues", {}))
    condition = request.get("ConditionExpression")
    validate(condition, request.get("UpdateExpression"), names, values)
    allowed = condition is None or holds(condition, item, names, values)
    match kind:
        case "Put":
            after: Stored | None = _sized(request["Item"])
        case "Delete":
            after = None
        case "Update" if allowed:
            old = plain(request["Key"]) if item is None else item
            new = typed(updated(request["UpdateExpression"], old, names, values))
            after = _changed(table, place, new)
        case _:
            after = before
    return Write(table, place, before, after, allowed)


@dataclass(frozen=True, slots=True)
class Asked:
    """A statement of a batch: its item, how to decide it, and the code of a failed condition."""

    table: Table
    place: tuple[str, ...]
    decide: Callable[[], Write]
    conflict: str


def asked(table: Table, meaning: Insert | Update, values: Sequence[Any]) -> Asked:
    """The meaning of a statement. Raises Refused."""
    if isinstance(meaning, Insert):
        _refuse_other_count(len(meaning.names), values)
        item = dict(zip(meaning.names, values, strict=True))
        place = table.place(item)
        return Asked(table, place, partial(_inserted, table, place, item), "DuplicateItem")
    _refuse_other_count(len(meaning.put) + len(meaning.expected), values)
    put = dict(zip(meaning.put, values, strict=False))
    expected = dict(zip(meaning.expected, values[len(put) :], strict=True))
    place = table.place(expected)
    return Asked(table, place, partial(_replaced, table, place, meaning, put, expected), "ConditionalCheckFailed")


def _inserted(table: Table, place: tuple[str, ...], item: Item) -> Write:
    before = table.items.get(place)
    return Write(table, place, before, _sized(item), allowed=before is None)


def _replaced(table: Table, place: tuple[str, ...], update: Update, put: Item, expected: Item) -> Write:
    before = table.items.get(place)
    old = before.item if before else {}
    allowed = before is not None and not any(name in old for name in update.missing)
    if not allowed or not all(name in old and _same(old[name], value) for name, value in expected.items()):
        return Write(table, place, before, before, allowed=False)
    kept = {name: value for name, value in old.items() if name not in update.removed}
    return Write(table, place, before, _changed(table, place, kept | put), allowed=True)


def _refuse_other_count(wanted: int, values: Sequence[Any]) -> None:
    if len(values) != wanted:
        raise Refused("ValidationException", "Number of parameters in request and statement don't match.")


def _changed(table: Table, place: tuple[str, ...], item: Item) -> Stored:
    """The result of an update."""
    if [item.get(name, {}).get("S") for name in table.key] != [*place]:
        raise KeyChanged("ValidationException", f"Cannot update attributes that are part of the key: {table.key}")
    return _sized(item, Misfit)


def _sized(item: Item, error: type[Refused] = Refused) -> Stored:
    try:
        size = item_bytes(item)
    except TooLong as long:
        raise Refused("ValidationException", str(long)) from long
    if size > MOST_ITEM_BYTES:
        raise error("ValidationException", "Item size has exceeded the maximum allowed size")
    return Stored(item, size)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one == other or ("N" in one and "N" in other and plain({"": one}) == plain({"": other}))
