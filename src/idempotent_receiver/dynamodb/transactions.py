"""A handler's actions as TransactWriteItems takes them, and what of them it would refuse anyway. Sends nothing."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

from idempotent_receiver.protocol.store import NotApplied
from idempotent_receiver.protocol.transaction import Action

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

MOST_BYTES = 4 * 1024 * 1024
"""The most that the items of a transaction may hold together."""

_VALUES = ("Item", "Key", "ExpressionAttributeValues")
"""The arguments that hold values; the others are names and expressions, and go out as they are."""


def transact_items(actions: Sequence[Action], *, table: str, id: str) -> "list[TransactWriteItemTypeDef] | NotApplied":
    """The actions with their values typed, or why no transaction may hold them beside the record `id` of `table`."""
    items: list[TransactWriteItemTypeDef] = []
    for number, action in enumerate(actions, 1):
        try:
            _bytes_of(action.arguments)  # for its UnicodeEncodeError alone
            arguments = {name: _typed(name, value) for name, value in action.arguments.items()}
        except (ArithmeticError, UnicodeEncodeError):
            return _refused(
                f"{named(number, action)} holds a value that DynamoDB cannot store: a number has at most 38 digits and"
                f" is below 1E+126, a text has no lone surrogates"
            )
        items.append(cast("TransactWriteItemTypeDef", {action.kind: arguments}))
    size = sum(_bytes_of(action.arguments.get(name)) for action in actions for name in _VALUES)
    if size > MOST_BYTES:
        return _refused(f"its values have {size} bytes; DynamoDB takes 4 MB in a transaction")
    clash = _clash(actions, table=table, id=id)
    return items if clash is None else _refused(clash)


def _refused(why: str) -> NotApplied:
    return NotApplied(f"the transaction was not sent: {why}", retry=False)


def named(number: int, action: Action) -> str:
    """An action for people to find: its number from 1, its kind and its table."""
    return f"action {number} ({action.kind} on {action.arguments['TableName']})"


def _typed(name: str, value: Any) -> Any:
    if name not in _VALUES:
        return value
    # Imported where it is used: only a handler that writes by its transaction needs it.
    from boto3.dynamodb.types import TypeSerializer  # noqa: PLC0415

    serializer = TypeSerializer()
    return {attribute: serializer.serialize(held) for attribute, held in value.items()}


def _bytes_of(value: object) -> int:
    """At least how many bytes DynamoDB counts for a plain value. Text without UTF-8 raises UnicodeEncodeError."""
    match value:
        case str():
            return len(value.encode())
        case bytes():
            return len(value)
        case dict():
            return sum(_bytes_of(name) + _bytes_of(held) for name, held in value.items())
        case list() | set():
            return sum(_bytes_of(held) for held in value)
        case _:
            return 0


def _clash(actions: Sequence[Action], *, table: str, id: str) -> str | None:
    """The first action on the record itself, or on an item that an earlier action is on already."""
    key_names = _key_names(actions) | {table: ("id",)}
    taken: list[tuple[str, list[object]]] = []
    for number, action in enumerate(actions, 1):
        name = action.arguments["TableName"]
        source = action.arguments["Item" if action.kind == "Put" else "Key"]
        if _bare(name) == table and source.get("id") == id:
            return f"{named(number, action)} is on the message's own record, which the transaction writes already"
        # A table that is only put to does not tell its key: then DynamoDB finds out.
        key = [source.get(part) for part in key_names[name]] if name in key_names else [number]
        if (name, key) in taken:
            earlier = taken.index((name, key)) + 1
            return f"actions {earlier} and {number} are on one item of {name}; DynamoDB takes one an item"
        taken.append((name, key))
    return None


def _key_names(actions: Iterable[Action]) -> dict[str, tuple[str, ...]]:
    """The key's attributes of each table for which an action names a key."""
    keyed = [action.arguments for action in actions if action.kind != "Put"]
    return {arguments["TableName"]: tuple(sorted(arguments["Key"])) for arguments in keyed}


def _bare(table: str) -> str:
    """A table's name, where it is given as an ARN."""
    return table.rpartition("/")[2]
