"""The writes that a handler wants to commit together with its completion: collected here, sent by a store."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import UnionType
from typing import Any, Literal

from idempotent_receiver.protocol.plain_values import named_type, plain_copy

MOST_ACTIONS = 99
"""DynamoDB takes 100 actions in a transaction, and one is the record's own."""

Kind = Literal["Put", "Update", "Delete", "ConditionCheck"]

_OPTIONAL = frozenset(
    {
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)


class ConditionFailed(Exception):
    """A condition of the handler's transaction did not hold, and the handler named no error for it."""


@dataclass(frozen=True, slots=True)
class Action:
    """One item's write or check: what TransactWriteItems takes, in plain Python values that nobody else holds."""

    kind: Kind
    arguments: Mapping[str, Any]
    otherwise: BaseException | None = None

    @property
    def error(self) -> BaseException:
        """What a failed condition of this action means."""
        if self.otherwise is not None:
            return self.otherwise
        return ConditionFailed(f"{self.kind} on {self.arguments['TableName']}: its condition did not hold")


class Transaction:
    """Writes that take effect exactly once: together with the message's completion, or not at all.

    Each method takes the arguments that DynamoDB's TransactWriteItems takes for that action (`TableName`, `Key` or
    `Item`, `ConditionExpression`, `UpdateExpression`, `ExpressionAttributeNames`, `ExpressionAttributeValues`) with
    plain Python values: str, int, Decimal, bytes, bool, None, list, dict, set. Each call checks and copies them: a
    wrong argument raises TypeError or ValueError there, and later changes to your dicts change nothing.

    Nothing is sent before the handler has returned. Conditions are evaluated then, so `otherwise` says what error a
    failed one means: a `PermanentError` goes to the dead-letter queue, anything else (the default) is retried. After
    the handler has returned, each method raises RuntimeError: an action that a thread or task adds later could not be
    committed.

    At most 99 actions, on distinct items, none on the message's own record.
    Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
    """

    def __init__(self) -> None:
        self._actions: list[Action] = []
        self._sealed = False
        self._adding = threading.Lock()

    @property
    def actions(self) -> tuple[Action, ...]:
        """What has been asked for so far, in order."""
        return tuple(self._actions)

    def seal(self) -> tuple[Action, ...]:
        """Accept nothing more, and return what was asked for. Called when the handler has returned or raised."""
        with self._adding:
            self._sealed = True
            return tuple(self._actions)

    def put(self, *, otherwise: BaseException | None = None, **arguments: Any) -> None:
        """Put an item: `TableName`, `Item`, and optionally a `ConditionExpression` with its names and values."""
        self._add("Put", ("TableName", "Item"), arguments, otherwise)

    def update(self, *, otherwise: BaseException | None = None, **arguments: Any) -> None:
        """Update an item: `TableName`, `Key`, `UpdateExpression`, and optionally a `ConditionExpression`."""
        self._add("Update", ("TableName", "Key", "UpdateExpression"), arguments, otherwise)

    def delete(self, *, otherwise: BaseException | None = None, **arguments: Any) -> None:
        """Delete an item: `TableName`, `Key`, and optionally a `ConditionExpression`."""
        self._add("Delete", ("TableName", "Key"), arguments, otherwise)

    def check(self, *, otherwise: BaseException | None = None, **arguments: Any) -> None:
        """Check a condition on an item that is not written: `TableName`, `Key`, `ConditionExpression`."""
        self._add("ConditionCheck", ("TableName", "Key", "ConditionExpression"), arguments, otherwise)

    def _add(
        self, kind: Kind, required: tuple[str, ...], arguments: dict[str, Any], otherwise: BaseException | None
    ) -> None:
        missing = [name for name in required if name not in arguments]
        if missing:
            raise TypeError(f"a transaction's {kind} needs {', '.join(missing)}, as TransactWriteItems does")
        # A misspelt condition would be no condition.
        unknown = sorted(arguments.keys() - _OPTIONAL - set(required))
        if unknown:
            raise TypeError(f"a transaction's {kind} takes no {', '.join(unknown)}: see TransactWriteItems")
        if otherwise is not None and not isinstance(otherwise, BaseException):
            raise TypeError(f"otherwise must be an error, like PermanentError('overdrawn'); it is {otherwise!r}")
        action = Action(kind, {name: _copied(kind, name, value) for name, value in arguments.items()}, otherwise)
        # Under the same lock as `seal`, so that each action is either committed or refused.
        with self._adding:
            if self._sealed:
                raise RuntimeError(
                    f"a transaction's {kind}: the handler has returned or raised, so this could no longer be committed;"
                    f" wait for threads and tasks before returning, and keep no transaction for another message"
                )
            if len(self._actions) == MOST_ACTIONS:
                raise ValueError(f"a transaction takes at most {MOST_ACTIONS} actions beside the message's own record")
            self._actions.append(action)


def _copied(kind: Kind, name: str, value: object) -> Any:
    """A copy of an argument, after checking that the action takes it under that name."""
    place = f"a transaction's {kind}: {name}"
    match name:
        case "TableName" | "ConditionExpression" | "UpdateExpression":
            _require(place, value, str, "a str that is not empty", valid=bool)
        case "Key" | "Item":
            _require(place, value, Mapping, "a mapping that is not empty", valid=bool)
        case "ReturnValuesOnConditionCheckFailure":
            _require(place, value, str, "ALL_OLD or NONE", valid=("ALL_OLD", "NONE").__contains__)
        case _:
            _require(place, value, Mapping, "a mapping that is not empty: leave it out", valid=bool)
    copy = plain_copy(value, place)
    if name == "ExpressionAttributeNames":
        for placeholder, attribute in copy.items():
            _require(f"{place}.{placeholder}", attribute, str, "a str")
    if name == "Key":
        takes = "a plain str, number or bytes, and not an empty one"
        for attribute, part in copy.items():
            _require(
                f"{place}.{attribute}", part, str | int | Decimal | bytes, takes, valid=lambda part: part or part == 0
            )
    return copy


def _require(
    place: str, value: object, kinds: type | UnionType, takes: str, *, valid: Callable[[Any], bool] = lambda value: True
) -> None:
    # True is an int to Python, but not a key to DynamoDB; no argument is a bool.
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise TypeError(f"{place} takes {takes}; it is {named_type(value)}")
    if not valid(value):
        raise ValueError(f"{place} takes {takes}")
