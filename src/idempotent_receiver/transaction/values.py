"""The arguments of actions, and the plain values in them: str, int, Decimal, bytes, bool, None, list, dict and set.

DynamoDB's limits on digits, strings and bytes are not checked here.
"""

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

from idempotent_receiver.errors import misuse

MOST_LEVELS = 32
"""DynamoDB's maximum nesting depth of an item, including the item's own level. The limit also stops a value that
contains itself.
"""

_LONGEST_PLACE = 80
_KEPT = frozenset({str, int, bytes, bool, type(None)})
"""The most common types. Their values are immutable, so they need no copy."""

ValuePlace = str | tuple["ValuePlace", str | int]
"""Where a value is: a name, or a name or index within another place. It is made text only for an error, because names
may be long and a list may hold thousands of values.
"""

# The concrete types first, because checking an abstract class takes longer.
_MAPPINGS = (dict, Mapping)
_LISTS = (list, tuple)
_HOLDING = (dict, *_LISTS, Mapping)
"""The types of values that contain other values."""

KEY_TYPES = (str, int, Decimal, bytes)
"""The types that a key's values can have."""

_SETS = ": a set holds only str, only numbers (int, Decimal) or only bytes"
_PLAIN = ": plain values are str, int, Decimal, bytes, bool, None, list, dict and set"

_MOST_KEY_NAMES = 2
"""A table's key has one attribute or two."""


def checked_arguments(
    kind: str, required: tuple[str, ...], optional: frozenset[str], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Copies of the arguments of an action or a get, after checking that it accepts them."""
    api = "TransactWriteItems" if optional else "Transaction.get"
    missing = [name for name in required if name not in arguments]
    if missing:
        raise misuse(TypeError(f"a transaction's {kind} needs {', '.join(missing)}, as {api} does"))
    # A misspelled condition would be ignored.
    unknown = sorted(arguments.keys() - optional - set(required))
    if unknown:
        raise misuse(TypeError(f"a transaction's {kind} takes no {', '.join(unknown)}: see {api}"))
    return {name: _copied(kind, name, value) for name, value in arguments.items()}


def _copied(kind: str, name: str, value: object) -> Any:
    """A copy of an argument, after checking that the action accepts it under that name."""
    place = f"a transaction's {kind}: {name}"
    match name:
        case "TableName" | "ConditionExpression" | "UpdateExpression":
            _require(place, value, str, "a non-empty str", valid=bool)
        case "Key" | "Item":
            _require(place, value, _MAPPINGS, "a non-empty mapping", valid=bool)
        case "ReturnValuesOnConditionCheckFailure":
            _require(place, value, str, "ALL_OLD or NONE", valid=("ALL_OLD", "NONE").__contains__)
        case _:
            _require(place, value, _MAPPINGS, "a non-empty mapping: omit it", valid=bool)
    copy = plain_copy(value, place)
    if name in ("Item", "ExpressionAttributeValues"):
        _refuse_typed(place, value, copy, whole_item=name == "Item")
    if name == "ExpressionAttributeNames":
        for placeholder, attribute in copy.items():
            _require(f"{place}.{placeholder}", attribute, str, "a str")
    if name == "Key":
        takes = "a non-empty plain str, number or bytes"
        for attribute, part in copy.items():
            _require(f"{place}.{attribute}", part, KEY_TYPES, takes, valid=lambda part: part or part == 0)
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
        raise misuse(TypeError(f"{place} takes {takes}; it is {named_type(value)}{_remedy(value, kinds)}"))
    if not valid(value):
        raise misuse(ValueError(f"{place} takes {takes}"))


def _refuse_typed(place: str, given: Any, values: Mapping[str, Any], *, whole_item: bool) -> None:
    """Refuse values typed as boto3's client types them: DynamoDB would store them as maps.

    A single one may be a map. So it takes all of an expression's values, two at least, or all of an item's but its key.
    A map that is given as another type than dict is one.
    """
    typed = [name for name, value in values.items() if isinstance(given[name], dict) and _is_typed(value)]
    plain = len(values) - len(typed)
    if typed and (plain <= _MOST_KEY_NAMES if whole_item else plain == 0 and len(typed) > 1):
        (kind,) = values[typed[0]]
        what = (
            f" is {{'{kind}': ...}}, as boto3's client types values, and would be stored as a map: write the plain "
            "value, 'x' for {'S': 'x'}; for a map that looks like this, write types.MappingProxyType({'S': 'x'})"
        )
        raise _refusal(TypeError, (place, typed[0]), what)


def _is_typed(value: object) -> bool:
    """Whether a plain value is a pair of one of DynamoDB's types and content that fits it."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, held),) = value.items()
    match kind, held:
        case ("S", str()) | ("B", bytes()) | ("BOOL", bool()) | ("NULL", True):
            return True
        case "N", str():
            return _is_number(held)
        case "M", dict():
            return all(map(_is_typed, held.values()))
        case "L", list():
            return all(map(_is_typed, held))
        case "SS" | "NS" | "BS", [*members]:
            return bool(members) and all(_is_typed({kind[0]: member}) for member in members)
    return False


def _is_number(text: str) -> bool:
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False


def plain_copy(value: object, place: ValuePlace, levels: int = MOST_LEVELS - 1) -> Any:
    """A copy of `value` that shares nothing with it. It consists of str, int, Decimal, bytes, bool, None, list, dict
    and set: a tuple becomes a list, a subclass instance its plain type, and boto3's Binary bytes.

    Raises TypeError for anything else, and ValueError for more than `levels` levels below this one. The message names
    the place (`Item.lines[0].price` if `place` is "Item") but never the value.
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
        what = f"... nests more than {MOST_LEVELS} levels: does it contain itself?"
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
    """The error about a value, with its place cut to `longest` characters. Logs hide names inside an attribute's value:
    they may be data, as in a map keyed by customer.
    """
    text, shown = (f"{_text_of(place, hidden=hidden)[:longest]}{what}" for hidden in (False, True))
    return misuse(kind(text), shown=shown)


def _text_of(place: ValuePlace, *, hidden: bool) -> str:
    """A place as text; if `hidden`, "*" replaces every name except an attribute's own."""
    parts: list[str] = []
    while isinstance(place, tuple):
        place, part = place
        name = "*" if hidden and isinstance(place, tuple) else part
        parts.append(f"[{part}]" if isinstance(part, int) else f".{name}")
    return place + "".join(reversed(parts))


def _scalar(value: object, place: ValuePlace) -> str | int | Decimal | bytes | None:
    """The value as its plain type, without a subclass's additions; None if it is not a scalar."""
    match value:
        case str():
            return str.__str__(value)  # str() of an enum member may be its name
        case int():
            return int.__int__(value)
        case Decimal():
            if not value.is_finite():
                raise _refusal(TypeError, place, " is a Decimal that is not finite, which DynamoDB cannot store")
            return Decimal(value)
        case bytes() | bytearray():
            return bytes(value)
    # boto3 returns bytes as Binary, which is recognised by name, because importing boto3 adds 100 ms to a cold start.
    held = getattr(value, "value", None) if type(value).__name__ == "Binary" else None
    return bytes(held) if isinstance(held, bytes | bytearray) else None


def _set(value: AbstractSet[object], place: ValuePlace) -> set[str | int | Decimal | bytes]:
    copied: set[str | int | Decimal | bytes] = set()
    kinds: set[str] = set()
    for held in value:
        scalar = None if isinstance(held, bool) else _scalar(held, place)
        if scalar is None:
            raise _refusal(TypeError, place, f" holds {named_type(held)}{_remedy(held) or _SETS}")
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
    return f"{named_type(value)}{_remedy(value) or _PLAIN}"


def _remedy(value: object, kinds: object = None) -> str:
    """What to write instead, if there is one thing. `kinds` are the accepted types, if not all plain values."""
    remedies = {"Decimal(str(x))": isinstance(value, float)}
    remedies |= {f"x.{method}()": hasattr(type(value), method) for method in ("isoformat", "model_dump")}
    return next((f": write {what}" for what, fits in remedies.items() if fits and kinds is not str), "")
