"""The plain Python values that a transaction may hold, and copies of them that nobody else can change.

Limits that only an engine knows (on digits, texts and bytes) are not checked here.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from decimal import Decimal
from typing import Any

MOST_LEVELS = 32
"""How deep lists and maps may nest in an argument, as in DynamoDB. This also stops a value that contains itself."""

_LONGEST_PLACE = 80
_KEPT = frozenset({str, int, bytes, bool, type(None)})
"""The types of most values: nobody can change them, so they are their own copies."""

Place = str | tuple["Place", str | int]
"""Where a value is: a name, or a name or index within another place. It is put into words only to refuse a value,
because names may be long, and a list may hold thousands.
"""


def plain_copy(value: object, place: Place, levels: int = MOST_LEVELS) -> Any:
    """A copy of `value` that shares nothing with it, made of str, int, Decimal, bytes, bool, None, list, dict and set:
    a tuple becomes a list, a subclass its plain type, boto3's Binary bytes.

    Raises TypeError for anything else, and ValueError for more than `levels` levels below this one. The message names
    the place (`Item.lines[0].price`, if `place` is "Item") and never the value.
    """
    if type(value) in _KEPT:
        return value
    if (scalar := _scalar(value, place)) is not None:
        return scalar
    if isinstance(value, AbstractSet):
        return _set(value, place)
    if not isinstance(value, Mapping | list | tuple):
        raise TypeError(f"{_text_of(place)} is {_refused(value)}")
    if levels < 0:
        place_text = _text_of(place)[:_LONGEST_PLACE]
        raise ValueError(f"{place_text}... nests more than {MOST_LEVELS} levels: does it hold itself?")
    if isinstance(value, Mapping):
        return {_name(name, place): plain_copy(held, (place, name), levels - 1) for name, held in value.items()}
    return [plain_copy(held, (place, index), levels - 1) for index, held in enumerate(value)]


def named_type(value: object) -> str:
    """A value's type in words: "an int", "None"."""
    if value is None:
        return "None"
    name = type(value).__name__
    return f"{'an' if name[:1] in tuple('aeiouAEIOU') else 'a'} {name}"


def _text_of(place: Place) -> str:
    parts: list[str] = []
    while isinstance(place, tuple):
        place, part = place
        parts.append(f"[{part}]" if isinstance(part, int) else f".{part}")
    return place + "".join(reversed(parts))


def _scalar(value: object, place: Place) -> str | int | Decimal | bytes | None:
    """The value without what a subclass has added; None if it is not a scalar."""
    match value:
        case str():
            return str.__str__(value)  # an enumeration's own str() may be its name
        case int():
            return int.__int__(value)
        case Decimal():
            if not value.is_finite():
                raise TypeError(f"{_text_of(place)} is a Decimal that is not finite, which DynamoDB cannot store")
            return Decimal(value)
        case bytes() | bytearray():
            return bytes(value)
    # boto3 reads bytes as its Binary. It is recognised by name, because importing boto3 costs a cold start 100 ms.
    held = getattr(value, "value", None) if type(value).__name__ == "Binary" else None
    return bytes(held) if isinstance(held, bytes | bytearray) else None


def _set(value: AbstractSet[object], place: Place) -> set[str | int | Decimal | bytes]:
    copied: set[str | int | Decimal | bytes] = set()
    kinds: set[str] = set()
    for held in value:
        scalar = None if isinstance(held, bool) else _scalar(held, place)
        if scalar is None:
            raise TypeError(f"{_text_of(place)} holds {named_type(held)}{_SETS}")
        copied.add(scalar)
        kinds.add("numbers" if isinstance(scalar, int | Decimal) else type(scalar).__name__)
    if len(kinds) > 1:
        raise TypeError(f"{_text_of(place)} mixes {' and '.join(sorted(kinds))}{_SETS}")
    if not kinds:
        raise TypeError(f"{_text_of(place)} is an empty set, which DynamoDB cannot store: leave the attribute out")
    return copied


_SETS = ": a set is of str, of numbers (int, Decimal) or of bytes"


def _name(name: object, place: Place) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{_text_of(place)} has a name that is {named_type(name)}: names are str")
    return str.__str__(name)


def _refused(value: object) -> str:
    if isinstance(value, float):
        return "a float: write Decimal(str(x))"
    return f"{named_type(value)}: plain values are str, int, Decimal, bytes, bool, None, list, dict and set"
