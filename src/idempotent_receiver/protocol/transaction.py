"""The writes that a handler wants committed together with its completion. Collected here; sent by a store.

Values are plain Python and copied, so that nobody else can change them. Limits that only an engine knows (on digits,
texts and bytes) are not checked here.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, TypeVar

from idempotent_receiver.errors import misuse

MOST_ACTIONS = 99
"""DynamoDB allows 100 actions in a transaction, and one is the record's own."""

ActionKind = Literal["Put", "Update", "Delete", "ConditionCheck"]

_OPTIONAL = frozenset(
    {
        "ConditionExpression",
        "ExpressionAttributeNames",
        "ExpressionAttributeValues",
        "ReturnValuesOnConditionCheckFailure",
    }
)

MOST_LEVELS = 32
"""DynamoDB's maximum nesting of an item's attributes, including the item's own level. This also stops a value that
contains itself.
"""

_LONGEST_PLACE = 80
_KEPT = frozenset({str, int, bytes, bool, type(None)})
"""The types of most values. They are immutable, so they need no copy."""

ValuePlace = str | tuple["ValuePlace", str | int]
"""Where a value is: a name, or a name or index within another place. It becomes text only for an error, because names
may be long and a list may hold thousands of values.
"""

# Most frequent type first, because checking an abstract class takes longer.
_MAPPINGS = (dict, Mapping)
_LISTS = (list, tuple)
_HOLDING = (dict, *_LISTS, Mapping)
"""The types of values that contain other values."""

_IN_KEYS = (str, int, Decimal, bytes)
"""The types of values that a key may hold."""

_SETS = ": a set is of str, of numbers (int, Decimal) or of bytes"


class ConditionFailed(Exception):
    """A condition of the handler's transaction failed, and the handler named no error for it."""


@dataclass(frozen=True, slots=True)
class Action:
    """One item's write or check: TransactWriteItems' arguments in plain Python values that nobody else holds."""

    kind: ActionKind
    arguments: Mapping[str, Any]
    otherwise: BaseException | None = None

    def error(self, number: int) -> BaseException:
        """The error for a failed condition of this action, which has this number in its transaction, from 1."""
        if self.otherwise is not None:
            return self.otherwise
        return misuse(
            ConditionFailed(f"the condition of {self.named(number)} did not hold, and it names no `otherwise`")
        )

    def named(self, number: int) -> str:
        """The action in words: its number from 1, its kind and its table."""
        return f"action {number} ({self.kind} on {self.arguments['TableName']})"


_ENDED = (
    "the handler has returned or raised, so this could no longer be committed; wait for threads and tasks before "
    "returning, and keep no transaction for another message"
)

ActionItem = tuple[object, ...] | None
"""The item of an action, as the table's name and the key's values; None if not known."""


class Items:
    """Finds the item of each action. A transaction may not have two actions on one item, and concurrent transactions on
    one item conflict.

    A Put does not say which of its attributes form the key, so it is learnt from other actions on that table, once
    there has been one. `key_names` are those of tables known in advance.
    """

    def __init__(self, key_names: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._key_names = dict(key_names or {})

    def of(self, actions: Sequence[Action]) -> list[ActionItem]:
        """Each action's item."""
        for action in actions:
            if action.kind != "Put" and (table := _table(action)) not in self._key_names:
                self._key_names[table] = tuple(sorted(action.arguments["Key"]))
        return [self._item(action) for action in actions]

    def _item(self, action: Action) -> ActionItem:
        table = _table(action)
        source = action.arguments["Item" if action.kind == "Put" else "Key"]
        key = [source.get(name) for name in self._key_names.get(table, ())]
        return (table, *key) if key and all(isinstance(value, _IN_KEYS) for value in key) else None


def _table(action: Action) -> str:
    """The table's name, which may be given as an ARN."""
    return str(action.arguments["TableName"]).rpartition("/")[2]


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
        self._sealed: str | None = None
        self._adding = threading.Lock()

    @property
    def actions(self) -> tuple[Action, ...]:
        """The actions requested so far, in order."""
        return tuple(self._actions)

    def seal(self, why: str = _ENDED) -> tuple[Action, ...]:
        """Accept no more actions, and return those requested. Called when the handler has returned or raised.

        `why` is the text of the RuntimeError that later calls raise.
        """
        with self._adding:
            self._sealed = why
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
        self, kind: ActionKind, required: tuple[str, ...], arguments: dict[str, Any], otherwise: BaseException | None
    ) -> None:
        missing = [name for name in required if name not in arguments]
        if missing:
            raise misuse(TypeError(f"a transaction's {kind} needs {', '.join(missing)}, as TransactWriteItems does"))
        # A misspelled condition would be ignored.
        unknown = sorted(arguments.keys() - _OPTIONAL - set(required))
        if unknown:
            raise misuse(TypeError(f"a transaction's {kind} takes no {', '.join(unknown)}: see TransactWriteItems"))
        if otherwise is not None and not isinstance(otherwise, BaseException):
            raise misuse(
                TypeError(
                    f"otherwise must be an error, like PermanentError('overdrawn'); it is {named_type(otherwise)}"
                )
            )
        action = Action(kind, {name: _copied(kind, name, value) for name, value in arguments.items()}, otherwise)
        # Under the same lock as `seal`, so that every action is either committed or refused.
        with self._adding:
            if self._sealed is not None:
                raise misuse(RuntimeError(f"a transaction's {kind}: {self._sealed}"))
            if len(self._actions) == MOST_ACTIONS:
                text = f"a transaction takes at most {MOST_ACTIONS} actions beside the message's own record"
                raise misuse(ValueError(text))
            self._actions.append(action)


def _copied(kind: ActionKind, name: str, value: object) -> Any:
    """A copy of an argument, after checking that the action accepts it under that name."""
    place = f"a transaction's {kind}: {name}"
    match name:
        case "TableName" | "ConditionExpression" | "UpdateExpression":
            _require(place, value, str, "a str that is not empty", valid=bool)
        case "Key" | "Item":
            _require(place, value, _MAPPINGS, "a mapping that is not empty", valid=bool)
        case "ReturnValuesOnConditionCheckFailure":
            _require(place, value, str, "ALL_OLD or NONE", valid=("ALL_OLD", "NONE").__contains__)
        case _:
            _require(place, value, _MAPPINGS, "a mapping that is not empty: leave it out", valid=bool)
    copy = plain_copy(value, place)
    if name == "ExpressionAttributeNames":
        for placeholder, attribute in copy.items():
            _require(f"{place}.{placeholder}", attribute, str, "a str")
    if name == "Key":
        takes = "a plain str, number or bytes, and not an empty one"
        for attribute, part in copy.items():
            _require(f"{place}.{attribute}", part, _IN_KEYS, takes, valid=lambda part: part or part == 0)
    return copy


def _require(
    place: str,
    value: object,
    kinds: type | tuple[type, ...],
    takes: str,
    *,
    valid: Callable[[Any], bool] = lambda value: True,
) -> None:
    # True is an int in Python but not a key in DynamoDB; no argument is a bool.
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise misuse(TypeError(f"{place} takes {takes}; it is {named_type(value)}"))
    if not valid(value):
        raise misuse(ValueError(f"{place} takes {takes}"))


def plain_copy(value: object, place: ValuePlace, levels: int = MOST_LEVELS - 1) -> Any:
    """A copy of `value` that shares nothing with it. It consists of str, int, Decimal, bytes, bool, None, list, dict
    and set; a tuple becomes a list, a subclass its plain type, boto3's Binary bytes.

    Raises TypeError for anything else, and ValueError for more than `levels` levels below this one. The message names
    the place (`Item.lines[0].price` if `place` is "Item") and never the value.
    """
    if type(value) in _KEPT:
        return value
    if not isinstance(value, _HOLDING):
        if (scalar := _scalar(value, place)) is not None:
            return scalar
        if isinstance(value, AbstractSet):
            return _set(value, place)
        raise _refusal(TypeError, place, f" is {_refused(value)}")
    if levels < 0:
        what = f"... nests more than {MOST_LEVELS} levels: does it hold itself?"
        raise _refusal(ValueError, place, what, _LONGEST_PLACE)
    if isinstance(value, _LISTS):
        return [plain_copy(held, (place, index), levels - 1) for index, held in enumerate(value)]
    return {_name(name, place): plain_copy(held, (place, name), levels - 1) for name, held in value.items()}


def named_type(value: object) -> str:
    """A value's type in words: "an int", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1] in tuple('aeiouAEIOU') else 'a'} {name}"


_Error = TypeVar("_Error", TypeError, ValueError)


def _refusal(kind: type[_Error], place: ValuePlace, what: str, longest: int | None = None) -> _Error:
    """The error about a value, with its place cut to `longest` characters. Logs hide the names inside an attribute's
    value, which may be data, as in a map by customer.
    """
    text, shown = (f"{_text_of(place, hidden=hidden)[:longest]}{what}" for hidden in (False, True))
    return misuse(kind(text), shown=shown)


def _text_of(place: ValuePlace, *, hidden: bool) -> str:
    """A place in words; if `hidden`, "*" replaces every name except an attribute's own."""
    parts: list[str] = []
    while isinstance(place, tuple):
        place, part = place
        name = "*" if hidden and isinstance(place, tuple) else part
        parts.append(f"[{part}]" if isinstance(part, int) else f".{name}")
    return place + "".join(reversed(parts))


def _scalar(value: object, place: ValuePlace) -> str | int | Decimal | bytes | None:
    """The value without anything a subclass added; None if it is not a scalar."""
    match value:
        case str():
            return str.__str__(value)  # an enumeration's own str() may be its name
        case int():
            return int.__int__(value)
        case Decimal():
            if not value.is_finite():
                raise _refusal(TypeError, place, " is a Decimal that is not finite, which DynamoDB cannot store")
            return Decimal(value)
        case bytes() | bytearray():
            return bytes(value)
    # boto3 reads bytes as its Binary. It is recognised by name, because importing boto3 adds 100 ms to a cold start.
    held = getattr(value, "value", None) if type(value).__name__ == "Binary" else None
    return bytes(held) if isinstance(held, bytes | bytearray) else None


def _set(value: AbstractSet[object], place: ValuePlace) -> set[str | int | Decimal | bytes]:
    copied: set[str | int | Decimal | bytes] = set()
    kinds: set[str] = set()
    for held in value:
        scalar = None if isinstance(held, bool) else _scalar(held, place)
        if scalar is None:
            raise _refusal(TypeError, place, f" holds {named_type(held)}{_SETS}")
        copied.add(scalar)
        kinds.add("numbers" if isinstance(scalar, int | Decimal) else type(scalar).__name__)
    if len(kinds) > 1:
        raise _refusal(TypeError, place, f" mixes {' and '.join(sorted(kinds))}{_SETS}")
    if not kinds:
        raise _refusal(TypeError, place, " is an empty set, which DynamoDB cannot store: leave the attribute out")
    return copied


def _name(name: object, place: ValuePlace) -> str:
    if not isinstance(name, str):
        raise _refusal(TypeError, place, f" has a name that is {named_type(name)}: names are str")
    return str.__str__(name)


def _refused(value: object) -> str:
    if isinstance(value, float):
        return "a float: write Decimal(str(x))"
    return f"{named_type(value)}: plain values are str, int, Decimal, bytes, bool, None, list, dict and set"
