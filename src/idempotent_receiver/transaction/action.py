"""A handler's own write or check, which commits together with the record, and the item that it targets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from idempotent_receiver.errors import misuse
from idempotent_receiver.transaction.operators import MOST_OPERATORS, too_many_operators
from idempotent_receiver.transaction.reads import PlainItem, Read, table_name
from idempotent_receiver.transaction.values import KEY_TYPES

ActionKind = Literal["Put", "Update", "Delete", "ConditionCheck"]

_WORDS = re.compile(r"#?\w+")


class ConditionFailed(Exception):
    """A condition of the handler's transaction failed without an `otherwise`, or an item read kept changing."""


@dataclass(frozen=True, slots=True)
class Action:
    """A write or check of one item: TransactWriteItems arguments as plain Python values, copied from the caller's."""

    kind: ActionKind
    arguments: Mapping[str, Any]
    otherwise: BaseException | None = None
    read: Read | None = None
    """The earlier read of the item. The action's condition includes a check that this read is still valid."""
    conditional: bool = True
    """Whether the handler gave a condition of its own, besides the one for the read."""

    def is_stale(self, found: PlainItem | None) -> bool:
        """Whether the condition failed on item `found` because the data read has changed."""
        return self.read is not None and not (self.conditional and self.read.stands(found))

    @property
    def changes(self) -> frozenset[str] | None:
        """The attributes that this action may change, plus other words in its expression; None means all."""
        if self.kind != "Update":
            return None
        names = self.arguments.get("ExpressionAttributeNames", {})
        return frozenset(names.get(word, word) for word in _WORDS.findall(self.arguments["UpdateExpression"]))

    def error(self, number: int, *, stale: bool = False) -> BaseException:
        """The error if this action's condition fails. `number` is its position in the transaction, from 1."""
        if stale:
            text = "kept changing before the commit: does the function itself write it with another client?"
            return misuse(ConditionFailed(f"the item of {self.named(number)} {text}"))
        if self.otherwise is not None:
            return self.otherwise
        return misuse(ConditionFailed(f"the condition of {self.named(number)} failed, and it has no `otherwise`"))

    def named(self, number: int) -> str:
        """The action as text: its number from 1, its kind and its table."""
        return f"action {number} ({self.kind} on {self.arguments['TableName']})"


ActionItem = tuple[object, ...] | None
"""An action's item, as the table name and the key values; None if unknown."""


class Items:
    """Finds the item of each action. A transaction may not have two actions on one item, and concurrent transactions on
    one item conflict.

    A Put does not say which of its attributes form the key, so they are learnt from earlier actions on that
    table. A read is the best source, because DynamoDB has accepted its key. `key_names` gives the key attributes
    of tables known in advance.
    """

    def __init__(self, key_names: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._key_names = dict(key_names or {})

    def of(self, actions: Sequence[Action]) -> list[ActionItem]:
        """Each action's item."""
        for action in actions:
            if action.read is not None:
                self._key_names[_table(action)] = tuple(sorted(action.read.key))
            elif "Key" in action.arguments:
                self._key_names.setdefault(_table(action), tuple(sorted(action.arguments["Key"])))
        return [self._item(action) for action in actions]

    def _item(self, action: Action) -> ActionItem:
        table, key = _table(action), action.arguments.get("Key")
        names = self._key_names.get(table, ()) if key is None else sorted(key)
        values = [source_of(action).get(name) for name in names]
        return (table, *values) if values and all(isinstance(value, KEY_TYPES) for value in values) else None


def _table(action: Action) -> str:
    return table_name(action.arguments["TableName"])


def source_of(action: Action) -> PlainItem:
    """The argument that contains the key of the action's item."""
    found: PlainItem = action.arguments["Item" if action.kind == "Put" else "Key"]
    return found


def require_few_operators(action: Action, number: int) -> None:
    """Raise ValueError for more operators than DynamoDB allows. The action has this number in its transaction."""
    for name in ("ConditionExpression", "UpdateExpression"):
        count = too_many_operators(action.arguments.get(name, ""), update=name == "UpdateExpression")
        if count:
            text = f"{name} has {count} operators and functions; DynamoDB allows {MOST_OPERATORS}"
            raise misuse(ValueError(f"{action.named(number)}: its {text}"))


def check_of(read: Read) -> Action:
    """The check that what was read still stands."""
    place = {"TableName": read.table, "Key": read.key}
    return Action("ConditionCheck", {**place, **read.condition()}, read=read, conditional=False)
