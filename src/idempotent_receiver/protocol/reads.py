"""What a handler read through its transaction, and the condition that it has not changed since.

Values are compared as DynamoDB compares them: `1` equals `1.0`, and `True` equals neither. Nothing is sent here.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from idempotent_receiver.errors import misuse

MOST_OPERATORS = 300
"""DynamoDB's maximum number of operators and functions in an expression."""

MOST_EXPRESSION_BYTES = 4096
"""DynamoDB's maximum length of an expression."""

_MOST_INT = 10**38
"""DynamoDB stores every smaller whole number exactly."""

PlainItem = Mapping[str, Any]
"""An item in plain Python values; a whole number is an int, any other a Decimal."""


class ReadItem(dict[str, Any]):
    """A handler's own copy of the item read. It reports to its `Read` the missing names that the handler looks up."""

    def __init__(self, content: PlainItem, ask: Callable[[object], None]) -> None:
        super().__init__(content)
        self._ask = ask

    def __missing__(self, name: str) -> Any:
        self._ask(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or self._ask(name) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """The attribute, or `default` if it is missing."""
        return super().get(name, default) if name in self else default

    def pop(self, name: str, *default: Any) -> Any:
        """Remove the attribute from this copy and return it; if it is missing, return `default` or raise KeyError."""
        if name not in self and default:
            return default[0]
        return super().pop(name)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The attribute; if it is missing, `default`, which is then set on this copy."""
        if name not in self:
            self[name] = default
        return self[name]

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # a copy does not report to the read


@dataclass(slots=True, eq=False)
class Read:
    """One read: `item` is the item found, or None; the handler gets only copies.

    Once the read is `checked`, `names` are the attributes that must not change, present or absent; None means all of
    the item's attributes and the `missing` ones that the handler looked up.
    """

    table: str
    key: PlainItem
    item: PlainItem | None
    names: frozenset[str] | None = frozenset()
    missing: set[str] = field(default_factory=set)
    checked: bool = False
    ended: bool = False
    """The handler has ended: later lookups add no checks."""

    def covers(self, table: str, source: PlainItem) -> bool:
        """Whether an action on this table, with this Key or Item, targets the item read."""
        here = table_name(table) == table_name(self.table)
        return here and all(name in source and source[name] == value for name, value in self.key.items())

    def taken(self, names: frozenset[str] | None, *, check: bool) -> ReadItem | None:
        """A copy for the handler with the attributes `names`, or all if that is None. If `check`, they must not change.

        Raises ValueError if the condition on them would exceed DynamoDB's limits.
        """
        if check:
            checked = None if names is None or self.names is None else self.names | names
            wider = Read(self.table, self.key, self.item, checked, self.missing)
            require_expressible(wider.condition(), self.table)
            self.names, self.checked = checked, True
        if self.item is None:
            return None
        held = {name: with_ints(value) for name, value in self.item.items() if names is None or name in names}

        def ask(name: object) -> None:
            if self.ended:
                return
            if names is not None and name not in names:
                raise misuse(LookupError(f"{self.table} was read without {name!r}: add it to `attributes=`"))
            if check and isinstance(name, str) and self.item is not None and name not in {*self.item, *self.missing}:
                self.missing.add(name)
                require_expressible(self.condition(), self.table)

        return ReadItem(held, ask)

    def condition(self, used: Collection[str] = ()) -> dict[str, Any]:
        """The condition that the data read is unchanged, as an action's arguments. Avoids placeholders in `used`."""
        mark = "r"
        while any(placeholder[1:].startswith(mark) for placeholder in used):
            mark += "_"
        present, absent = self._expected()
        places = {name: f"{mark}{number}" for number, name in enumerate((*present, *absent))}
        parts = [f"#{places[name]} = :{places[name]}" for name in present]
        parts += [f"attribute_not_exists(#{places[name]})" for name in absent]
        if self.item is not None and not present:
            places[next(iter(self.key))] = mark
            parts.append(f"attribute_exists(#{mark})")
        values = {f":{places[name]}": value for name, value in present.items()}
        return {
            "ConditionExpression": " AND ".join(parts),
            "ExpressionAttributeNames": {f"#{place}": name for name, place in places.items()},
            **({"ExpressionAttributeValues": values} if values else {}),
        }

    def stands(self, found: PlainItem | None) -> bool:
        """Whether the item found still matches the data read."""
        if found is None or self.item is None:
            return found is self.item
        present, absent = self._expected()
        same = all(name in found and _same(value, found[name]) for name, value in present.items())
        return same and absent.isdisjoint(found)

    def _expected(self) -> tuple[PlainItem, frozenset[str]]:
        """The attributes that must still have these values, and the names that must still be absent."""
        if self.item is None:
            return {}, frozenset(list(self.key)[:1])
        names = (self.item.keys() if self.names is None else self.names) - self.key.keys()
        absent = {name for name in {*names, *self.missing} if name not in self.item}
        return {name: self.item[name] for name in self.item if name in names}, frozenset(absent)


def table_name(given: str) -> str:
    """The table's name, which may be given as an ARN."""
    return given.rpartition("/")[2]


def with_ints(value: Any) -> Any:
    """A copy of a plain value with each whole number as an int, if DynamoDB stores it exactly."""
    match value:
        case dict():
            return {name: with_ints(held) for name, held in value.items()}
        case list():
            return [with_ints(held) for held in value]
        case set():
            return {with_ints(held) for held in value}
        case Decimal() if abs(value) < _MOST_INT and value == value.to_integral_value():
            return int(value)
    return value


def names_of(attributes: Any) -> frozenset[str] | None:
    """The attributes that `attributes=` names: for a pydantic model, its fields and all their aliases; None means all.

    Raises TypeError for anything but names or a model, and ValueError if there are no names.
    """
    if attributes is None:
        return None
    fields = getattr(attributes, "model_fields", None)
    if isinstance(attributes, type) and fields is not None:
        return frozenset(name for field_name, field in fields.items() for name in _aliases(field_name, field))
    if isinstance(attributes, str | bytes | Mapping) or not isinstance(attributes, Iterable):
        raise misuse(TypeError("Transaction.get: attributes takes a list of names, or a pydantic model"))
    names = frozenset(attributes)
    if not names or not all(isinstance(name, str) and name for name in names):
        raise misuse(ValueError("Transaction.get: attributes takes attribute names: omit it for all"))
    return names


def with_condition(arguments: PlainItem, read: Read) -> dict[str, Any]:
    """The arguments of a write to an item that was read, with its own condition and the condition that the data read is
    unchanged. A failure returns the item, which shows which of the two failed.
    """
    own, names, values = (arguments.get(name) for name in _EXPRESSION)
    added = read.condition([*(names or ()), *(values or ())])
    condition, more_names, more_values = (added.get(name) for name in _EXPRESSION)
    if own is not None:
        condition = f"{condition} AND {own if _is_enclosed(own) else f'({own})'}"
    merged = (condition, {**(names or {}), **(more_names or {})}, {**(values or {}), **(more_values or {})})
    given = {name: value for name, value in zip(_EXPRESSION, merged, strict=True) if value}
    return {**arguments, **given, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


_EXPRESSION = ("ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues")


def _aliases(name: str, field: Any) -> list[str]:
    """The names that a pydantic field accepts."""
    alias = field.validation_alias
    choices = getattr(alias, "choices", [alias])
    return [name, *(one if isinstance(one, str) else one.path[0] for one in choices if one is not None)]


def require_expressible(arguments: PlainItem, table: str) -> None:
    """Raise ValueError if the condition on the data read exceeds DynamoDB's limits."""
    expression = arguments["ConditionExpression"]
    operators = 2 * expression.count(" AND ") + 1
    if operators > MOST_OPERATORS or len(expression) > MOST_EXPRESSION_BYTES:
        text = (
            f"the item read from {table} has more attributes than one condition can check (DynamoDB allows "
            f"{MOST_OPERATORS} operators and {MOST_EXPRESSION_BYTES} bytes): select some with `attributes=`"
        )
        raise misuse(ValueError(text))


def _is_enclosed(expression: str) -> bool:
    """Whether one pair of parentheses encloses the whole expression: DynamoDB refuses a second pair around it."""
    text, depth = expression.strip(), 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[0] == "(" and place == len(text) - 1
    return False


def _same(one: Any, other: Any) -> bool:
    """Whether DynamoDB considers two plain values equal."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
        case list(), list():
            return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and bool(one == other)
