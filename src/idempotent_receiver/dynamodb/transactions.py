"""A handler's actions as TransactWriteItems takes them, what DynamoDB would refuse of them, and why it cancelled one.

Nothing is sent here.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from idempotent_receiver.dynamodb.errors import ApiCall, conflict, explained, write_failed
from idempotent_receiver.protocol.record import Change
from idempotent_receiver.protocol.store import ActionFailed, NotApplied, Unknown, Written
from idempotent_receiver.protocol.transaction import Action

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.type_defs import TransactWriteItemTypeDef

MOST_BYTES = 4 * 1024 * 1024
"""The most that the items of a transaction may hold together."""

_VALUES = ("Item", "Key", "ExpressionAttributeValues")
"""The arguments that hold values; the others are names and expressions, and are sent as they are."""


def transact_items(actions: Sequence[Action], *, table: str, id: str) -> "list[TransactWriteItemTypeDef] | NotApplied":
    """The actions with their values typed, or why no transaction may hold them beside the record `id` of `table`."""
    items: list[TransactWriteItemTypeDef] = []
    for number, action in enumerate(actions, 1):
        try:
            _bytes_of(action.arguments)  # raises UnicodeEncodeError
            arguments = {name: _typed(name, value) for name, value in action.arguments.items()}
        except (ArithmeticError, UnicodeEncodeError):
            return _refused(
                f"{_named(number, action)} holds a value that DynamoDB cannot store: a number has at most 38 digits and"
                f" is below 1E+126, a text has no lone surrogates"
            )
        items.append(cast("TransactWriteItemTypeDef", {action.kind: arguments}))
    size = sum(_bytes_of(action.arguments.get(name)) for action in actions for name in _VALUES)
    if size > MOST_BYTES:
        return _refused(f"its values have {size} bytes; DynamoDB takes 4 MB in a transaction")
    clash = _clash(actions, table=table, id=id)
    return items if clash is None else _refused(clash)


def token_of(change: Change) -> str:
    """The token that makes a transaction sent twice one transaction: it names the claim that it ends, in the 36
    characters that DynamoDB allows.
    """
    assert change.seen is not None, "a commit replaces a claim"
    assert change.seen.version is not None, "a claim has a version"
    return hashlib.sha256(f"{change.new.id}\0{change.seen.version}".encode()).hexdigest()[:36]


def cancelled(reasons: Sequence[Mapping[str, Any]], call: ApiCall, actions: Sequence[Action]) -> Written | ActionFailed:
    """What a cancelled transaction answers. `reasons` are the record's own, then one an action.

    The record's own reason comes first: once the claim is lost, no condition of the handler's means anything.
    """
    codes = [reason.get("Code", "None") for reason in reasons]
    if codes and codes[0] == "ConditionalCheckFailed":
        return conflict(reasons[0])
    if codes and codes[0] == "None" and "ConditionalCheckFailed" in codes:
        return ActionFailed(codes.index("ConditionalCheckFailed") - 1)
    for number, code in enumerate(codes):
        if code != "None":
            where = _named(number, actions[number - 1]) if number else "the record itself"
            return write_failed(code, call, where=f", {where}")
    return Unknown(explained("TransactionCanceledException", call))


def _refused(why: str) -> NotApplied:
    return NotApplied(f"the transaction was not sent: {why}", retry=False)


def _named(number: int, action: Action) -> str:
    """An action in words: its number from 1, its kind and its table."""
    return f"action {number} ({action.kind} on {action.arguments['TableName']})"


def _typed(name: str, value: Any) -> Any:
    if name not in _VALUES:
        return value
    # Imported here, because only a handler that uses its transaction needs it.
    from boto3.dynamodb.types import TypeSerializer  # noqa: PLC0415

    serializer = TypeSerializer()
    return {attribute: serializer.serialize(held) for attribute, held in value.items()}


def _bytes_of(value: object) -> int:
    """The least that DynamoDB counts for a plain value. Raises UnicodeEncodeError for text that has no UTF-8."""
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
    """What is wrong with the first action on the record itself, or on the same item as an earlier action."""
    key_names = _key_names(actions) | {table: ("id",)}
    taken: list[tuple[str, list[object]]] = []
    for number, action in enumerate(actions, 1):
        name = action.arguments["TableName"]
        source = action.arguments["Item" if action.kind == "Put" else "Key"]
        # A table's name may be given as an ARN.
        if name.rpartition("/")[2] == table and source.get("id") == id:
            return f"{_named(number, action)} is on the message's own record, which the transaction writes already"
        # Puts alone do not tell the table's key: then DynamoDB finds the clash.
        key = [source.get(part) for part in key_names[name]] if name in key_names else [number]
        if (name, key) in taken:
            earlier = taken.index((name, key)) + 1
            return f"actions {earlier} and {number} are on one item of {name}; DynamoDB takes one action an item"
        taken.append((name, key))
    return None


def _key_names(actions: Iterable[Action]) -> dict[str, tuple[str, ...]]:
    """The key's attributes of each table for which an action names a key."""
    keyed = [action.arguments for action in actions if action.kind != "Put"]
    return {arguments["TableName"]: tuple(sorted(arguments["Key"])) for arguments in keyed}
