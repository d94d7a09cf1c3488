"""One write of an item: what it meets, whether its condition holds, and what it leaves. It is applied by `Tables`.

Sources: Amazon DynamoDB API Reference, PutItem, UpdateItem, DeleteItem and TransactWriteItem.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from benchmarks.units import Item, item_bytes
from benchmarks.values import plain, typed
from idempotent_receiver.testing.expressions import holds, updated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.partiql import Insert, Update

    Request = Mapping[str, Any]

MOST_ITEM_BYTES = 400 * 1024
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
"""The actions of a transaction, each with the arguments that it needs."""


class Refused(Exception):
    """An error that DynamoDB would return: its code, its message, and the other fields of its body."""

    def __init__(self, code: str, message: str, **beside: Any) -> None:
        super().__init__(message)
        self.code = code
        self.beside = beside


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
        try:
            return tuple([source[name]["S"] for name in self.key])
        except KeyError as missing:
            raise Refused("ValidationException", f"The key element {missing} does not match the schema") from None


@dataclass(frozen=True, slots=True)
class Write:
    """A write that has been decided and not yet applied. `allowed` says whether its condition held."""

    table: Table
    place: tuple[str, ...]
    before: Stored | None
    after: Stored | None
    allowed: bool

    @property
    def bytes(self) -> int:
        """The size that is billed."""
        return max(self.before.bytes if self.before else 0, self.after.bytes if self.after else 0)

    def apply(self) -> None:
        """Let the write take effect."""
        if self.after is None:
            self.table.items.pop(self.place, None)
        else:
            self.table.items[self.place] = self.after

    def old_item(self, request: Request) -> dict[str, Any]:
        """What the error for a failed condition returns of the item, if the request asks for it."""
        wanted = request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD"
        return {"Item": self.before.item} if wanted and self.before else {}

    def reason(self, request: Request) -> dict[str, Any]:
        """What a cancelled transaction says of this write."""
        if self.allowed:
            return {"Code": "None"}
        return {"Code": "ConditionalCheckFailed", "Message": CONDITION_FAILED, **self.old_item(request)}


def action_of(action: Request) -> tuple[Kind, Request]:
    """The kind of a transaction's action, and its arguments. Raises Refused for what is not supported here."""
    for kind in get_args(Kind):
        if (arguments := action.get(kind)) is not None and len(action) == 1:
            if arguments.keys() - CONDITION == _ACTIONS[kind]:
                return kind, arguments
            unsupported = ", ".join(sorted(arguments.keys() - CONDITION ^ _ACTIONS[kind]))
            raise Refused("ValidationException", f"{kind}: missing, or not supported here: {unsupported}")
    raise Refused("ValidationException", f"an action has one of {', '.join(_ACTIONS)}")


def decided(kind: Kind, table: Table, request: Request) -> Write:
    """The write that a request asks for. Raises Refused and ExpressionError."""
    place = table.place(request["Item" if kind == "Put" else "Key"])
    before = table.items.get(place)
    item = None if before is None else plain(before.item)
    names, values = request.get("ExpressionAttributeNames", {}), plain(request.get("ExpressionAttributeValues", {}))
    condition, update = request.get("ConditionExpression"), request.get("UpdateExpression")
    allowed = condition is None or holds(condition, item, names, values, shared_with=update)
    match kind:
        case "Put":
            after: Stored | None = _sized(request["Item"])
        case "Delete":
            after = None
        case "Update" if allowed:
            old = plain(request["Key"]) if item is None else item
            after = _sized(typed(updated(request["UpdateExpression"], old, names, values, shared_with=condition)))
        case _:
            after = before
    return Write(table, place, before, after, allowed)


def inserted(table: Table, insert: Insert, values: Sequence[Any]) -> Write:
    """The write of an INSERT."""
    item = dict(zip(insert.names, values, strict=True))
    place = table.place(item)
    before = table.items.get(place)
    return Write(table, place, before, _sized(item), allowed=before is None)


def replaced(table: Table, update: Update, values: Sequence[Any]) -> Write:
    """The write of an UPDATE."""
    put = dict(zip(update.put, values, strict=False))
    expected = dict(zip(update.expected, values[len(update.put) :], strict=True))
    place = table.place(expected)
    before = table.items.get(place)
    old = before.item if before else {}
    allowed = before is not None and not any(name in old for name in update.missing)
    if not allowed or not all(name in old and _same(old[name], value) for name, value in expected.items()):
        return Write(table, place, before, before, allowed=False)
    kept = {name: value for name, value in old.items() if name not in update.removed}
    return Write(table, place, before, _sized(kept | put), allowed=True)


def _sized(item: Item) -> Stored:
    size = item_bytes(item)
    if size > MOST_ITEM_BYTES:
        raise Refused("ValidationException", "Item size has exceeded the maximum allowed size")
    return Stored(item, size)


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one == other or ("N" in one and "N" in other and plain({"": one}) == plain({"": other}))
