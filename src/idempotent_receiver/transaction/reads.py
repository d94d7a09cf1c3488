"""What a handler read through its transaction, and the condition that it has not changed since.

Values are compared as DynamoDB compares them: `1` equals `1.0`, and `True` equals neither. Nothing is sent here.
"""

import re
from collections.abc import Collection, ItemsView, Iterable, KeysView, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from idempotent_receiver.errors import misuse
from idempotent_receiver.transaction.operators import MOST_OPERATORS, too_many_operators

MOST_EXPRESSION_BYTES = 4096
"""DynamoDB's maximum length of an expression."""

PlainItem = Mapping[str, Any]
"""An item in plain Python values; a whole number is an int, any other a Decimal."""


class ReadItem(dict[str, Any]):
    """A handler's own copy of the attributes that it named. Looking up another name raises LookupError until the
    handler has ended; then the copy may be its result.
    """

    def __init__(self, read: "Read", content: PlainItem, names: frozenset[str]) -> None:
        super().__init__({name: with_ints(value) for name, value in content.items() if name in names})
        self._read, self._names = read, names

    def __missing__(self, name: str) -> Any:
        self._require_named(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        self._require_named(name)
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The attribute, or `default` if it is missing."""
        self._require_named(name)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        """Remove the attribute from this copy and return it; if it is missing, return `default` or raise KeyError."""
        self._require_named(name)
        return super().pop(name, *default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The attribute; if it is missing, `default`, which is then set on this copy."""
        self._require_named(name)
        return super().setdefault(name, default)

    def keys(self) -> KeysView[str]:  # type: ignore[override]  # whose `in` would not ask this dict
        """The names that are there. Looking up another one in it asks this dict."""
        return KeysView(self)

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]  # as for `keys`
        """The names that are there with their values. Looking up another one in it asks this dict."""
        return ItemsView(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (dict(self),)  # a copy is an ordinary dict

    def _require_named(self, name: object) -> None:
        if not (name in self._names or super().__contains__(name) or self._read.ended):
            raise misuse(LookupError(f"{self._read.table} was read without {name!r}: name it in `attributes=`"))


@dataclass(slots=True, eq=False)
class Read:
    """One read: `item` is the item found, or None; the handler gets only copies.

    `names` are the attributes that must not change, present or absent; none if the read is not checked.
    """

    table: str
    key: PlainItem
    item: PlainItem | None
    names: frozenset[str] = frozenset()
    ended: bool = False
    """The handler has ended."""

    @property
    def checked(self) -> bool:
        """Whether the outcome commits only if this read still stands."""
        return bool(self.names)

    def covers(self, table: str, source: PlainItem) -> bool:
        """Whether an action on this table, with this Key or Item, targets the item read."""
        here = table_name(table) == table_name(self.table)
        return here and all(name in source and source[name] == value for name, value in self.key.items())

    def taken(self, names: frozenset[str], *, check: bool) -> ReadItem | None:
        """A copy for the handler with the attributes `names`. If `check`, they must not change, present or absent.

        Raises ValueError if the condition on them would exceed DynamoDB's limits.
        """
        if check:
            wider = replace(self, names=self.names | names)
            require_expressible(wider.condition(), self.table)
            self.names = wider.names
        return None if self.item is None else ReadItem(self, self.item, names)

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
        return same and found.keys().isdisjoint(absent)

    def _expected(self) -> tuple[PlainItem, Sequence[str]]:
        """The attributes that must still have these values, and the names that must still be absent. Both are sorted:
        equal reads have equal conditions, which commits in one request can share.
        """
        if self.item is None:
            return {}, list(self.key)[:1]
        item, names = self.item, sorted(self.names - self.key.keys())
        return {name: item[name] for name in names if name in item}, [name for name in names if name not in item]


def table_name(given: str) -> str:
    """The table's name, which may be given as an ARN."""
    return given.rpartition("/")[2]


def with_ints(value: Any) -> Any:
    """A copy of a plain value with each whole number as an int."""
    match value:
        case dict():
            return {name: with_ints(held) for name, held in value.items()}
        case list():
            return [with_ints(held) for held in value]
        case set():
            return {with_ints(held) for held in value}
        case Decimal() if value == value.to_integral_value():
            return int(value)
    return value


def names_of(attributes: Any) -> frozenset[str]:
    """The attributes that `attributes=` names: for a pydantic model, its fields and all their aliases.

    Raises TypeError for anything but names or a model that has them, and ValueError if there are no names.
    """
    if isinstance(attributes, type) and hasattr(attributes, "model_fields"):
        attributes = _names_of_model(attributes)
    if isinstance(attributes, str | bytes | Mapping) or not isinstance(attributes, Iterable):
        text = "a list of names, such as ['balance'], or a pydantic model; for any other class, list its names"
        raise misuse(TypeError(f"Transaction.get needs attributes to read: {text}"))
    names = [*attributes]
    if not names or not all(isinstance(name, str) and name for name in names):
        text = "takes attribute names; to read only whether the item is there, name its key"
        raise misuse(ValueError(f"Transaction.get: attributes {text}"))
    return frozenset(names)


def _names_of_model(model: Any) -> list[str]:
    """Its fields and all their aliases. Raises TypeError if it takes more than its fields, or has none."""
    if model.model_config.get("extra") == "allow" or model.__pydantic_root_model__:
        text = "takes any attribute (extra='allow' or a RootModel): give it a field for each one, or list the names"
        raise misuse(TypeError(f"Transaction.get: {model.__name__} {text}"))
    model.model_rebuild()  # aliases are generated once all the types of its fields are known
    by_name = any(model.model_config.get(option) for option in ("populate_by_name", "validate_by_name"))
    fields = model.model_fields.items()
    return [name for field_name, field in fields for name in _aliases(field_name, field, by_name=by_name)]


def with_condition(arguments: PlainItem, read: Read) -> dict[str, Any]:
    """The arguments of a write to an item that was read, with its own condition and the condition that the data read is
    unchanged. A failure returns the item, which shows which of the two failed.
    """
    own, names, values = (arguments.get(name) for name in _EXPRESSION)
    if own is not None and not _is_balanced(own):
        # Enclosed in parentheses, it could end the condition on the data read.
        raise misuse(ValueError(f"a transaction's ConditionExpression on {read.table} has an unpaired parenthesis"))
    # A placeholder that the handler uses and does not define is its mistake, and must not find one of these.
    used = _PLACEHOLDER.findall(f"{own} {arguments.get('UpdateExpression')}")
    added = read.condition([*used, *(names or ()), *(values or ())])
    condition, more_names, more_values = (added.get(name) for name in _EXPRESSION)
    if own is not None:
        condition = f"{condition} AND {own if _is_enclosed(own) else f'({own})'}"
    merged = (condition, {**(names or {}), **(more_names or {})}, {**(values or {}), **(more_values or {})})
    given = {name: value for name, value in zip(_EXPRESSION, merged, strict=True) if value}
    return {**arguments, **given, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}


_PLACEHOLDER = re.compile(r"[#:]\w+")
_EXPRESSION = ("ConditionExpression", "ExpressionAttributeNames", "ExpressionAttributeValues")


def _aliases(name: str, field: Any, *, by_name: bool) -> list[str]:
    """The names that a pydantic field accepts."""
    alias = field.validation_alias
    if alias is None:
        return [name]
    aliases = [one if isinstance(one, str) else one.path[0] for one in getattr(alias, "choices", [alias])]
    return [name, *aliases] if by_name else aliases


def require_expressible(arguments: PlainItem, table: str) -> None:
    """Raise ValueError if the condition on the data read exceeds DynamoDB's limits."""
    expression = arguments["ConditionExpression"]
    if too_many_operators(expression) or len(expression) > MOST_EXPRESSION_BYTES:
        text = (
            f"the item read from {table} has more attributes than one condition can check (DynamoDB allows "
            f"{MOST_OPERATORS} operators and {MOST_EXPRESSION_BYTES} bytes): name fewer in `attributes=`"
        )
        raise misuse(ValueError(text))


def _is_balanced(expression: str) -> bool:
    depth = 0
    for character in expression:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


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
