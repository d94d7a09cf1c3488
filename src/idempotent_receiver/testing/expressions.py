"""What a DynamoDB expression means, over items in plain Python values.

`_MEANINGS` has a line for every comparator, logical evaluation, function and action. `ABSENT` stands for an attribute
that is not there. Syntax belongs to the grammar, tables and transactions to the store: nothing is stored here.

Sources: Amazon DynamoDB Developer Guide, "Condition and filter expressions, operators, and functions", "Using update
expressions", "Expression attribute names" and "Using expression attribute values"; API reference, UpdateItem. Where
they are silent, this follows the service: `<>` is true of an absent operand, and a :value of a type that its operator
cannot take is refused whatever the item holds. Nested attributes can be added to.
"""

import operator
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from copy import deepcopy
from decimal import Context, Decimal, Inexact, Overflow
from functools import partial
from typing import Final, TypeAlias

from idempotent_receiver.testing import expression_grammar as grammar
from idempotent_receiver.testing.expression_grammar import ExpressionError, Node, Operation, Path, Value

__all__ = ["ExpressionError", "holds", "updated"]

Attributes: TypeAlias = Mapping[str, object]
Names: TypeAlias = Mapping[str, str]
ABSENT: Final = object()


def holds(
    condition: str, item: Attributes | None, names: Names, values: Attributes, *, shared_with: str | None = None
) -> bool:
    """Whether a ConditionExpression is true of an item; `None` is an item that is not there.

    `names` and `values` are the request's ExpressionAttributeNames and ExpressionAttributeValues. `shared_with` is its
    UpdateExpression, if it has one, which may use what the condition does not.

    Raises `ExpressionError` for bad syntax, an undefined or unused #name or :value, or a :value of a wrong type.
    """
    _refuse_bad_references(condition, shared_with, names, values)
    tree = grammar.parsed_condition(condition, tuple(sorted(names.items())))
    return _evaluate(tree, {} if item is None else item, values) is True


def updated(
    expression: str, item: dict[str, object], names: Names, values: Attributes, *, shared_with: str | None = None
) -> dict[str, object]:
    """The item that an UpdateExpression makes of this one, which stays as it is and shares nothing with the new one.

    Every operand is read from the item as it was. An item that is not there yet is given as its key attributes; the
    caller sees to it that an update leaves those alone. `names`, `values` and `shared_with`, here the request's
    ConditionExpression, are as in `holds`.

    Raises `ExpressionError` for bad syntax, an undefined or unused #name or :value, paths that overlap, conflict or
    lead nowhere, an operand that is absent or of a wrong type, or a sum of more than DynamoDB's 38 digits.
    """
    _refuse_bad_references(expression, shared_with, names, values)
    actions = grammar.parsed_update(expression, tuple(sorted(names.items())))
    changes = [(path, _evaluate(operation, item, values)) for path, operation in actions]
    removed = [path for path, value in changes if value is ABSENT and _look_up(item, path) is not ABSENT]
    new = deepcopy(item)
    for path, value in changes:  # by rising index: what lies past a list's end is appended in that order
        if path not in removed:
            _change(new, path, value)
    for path in reversed(removed):  # last, by falling index: an index means what it meant in the old item
        _change(new, path, ABSENT)
    return new


def _refuse_bad_references(expression: str, other: str | None, names: Names, values: Attributes) -> None:
    used, defined = grammar.references(expression), names.keys() | values.keys()
    if undefined := used - defined:
        raise ExpressionError(f"not defined: {', '.join(sorted(undefined))}")
    if unused := defined - used - grammar.references(other or ""):
        raise ExpressionError(f"unused in expressions: {', '.join(sorted(unused))}")
    for value in values.values():
        _type_of(value)


def _evaluate(node: Node, item: Attributes, values: Attributes) -> object:
    match node:
        case Path():
            return _look_up(item, node)
        case Value():
            return values[node]
        case Operation(name, operands):
            arguments = [_evaluate(operand, item, values) for operand in operands]  # all: any may be an error
            _refuse_wrong_operands(node, arguments)
            return _MEANINGS[name](*arguments)


def _refuse_wrong_operands(node: Operation, arguments: list[object]) -> None:
    """A condition refuses only :values: an attribute that is absent or of another type makes it false."""
    types = _OPERAND_TYPES.get(node.name, _TYPES)
    for operand, argument in zip(node.operands, arguments, strict=True):
        if node.name in _NEEDS_ATTRIBUTES and argument is ABSENT:
            raise ExpressionError(f"{node.name} refers to an attribute that does not exist in the item")
        if (node.name in _NEEDS_ATTRIBUTES or isinstance(operand, Value)) and _type_of(argument) not in types:
            raise ExpressionError(f"incorrect operand type for {node.name}: {_type_of(argument)}")
    if node.name in ("ADD", "DELETE") and arguments[0] is not ABSENT:
        attribute, value = map(_type_of, arguments)
        if attribute != value:
            raise ExpressionError(f"incorrect operand type for {node.name}: {value} on {attribute}")
    between_values = node.name == "BETWEEN" and all(isinstance(bound, Value) for bound in node.operands[1:])
    if between_values and not _less_or_equal(*arguments[1:]):
        raise ExpressionError("the bounds of BETWEEN must have one type, and the lower come first")


def _look_up(document: object, parts: tuple[str | int, ...]) -> object:
    for part in parts:
        match document, part:
            case Mapping() as attributes, str():
                document = attributes.get(part, ABSENT)
            case list() as elements, int() if part < len(elements):
                document = elements[part]
            case _:
                return ABSENT
    return document


def _change(document: dict[str, object], path: Path, value: object) -> None:
    """Put a copy of `value` where `path` leads, or at the end of the list that it leads beyond; `ABSENT` removes."""
    match _look_up(document, path[:-1]), path[-1]:
        case dict() as attributes, str() as name if value is ABSENT:
            attributes.pop(name, None)
        case dict() as attributes, str() as name:
            attributes[name] = deepcopy(value)
        case list() as elements, int() as index:
            elements[index : index + 1] = [] if value is ABSENT else [deepcopy(value)]
        case _:
            raise ExpressionError(f"the document path is invalid for update: {path}")


def _type_of(value: object) -> str:
    """A plain value's DynamoDB type, by its descriptor; `ABSENT` has none."""
    if value is ABSENT:
        return ""
    for kind, descriptor in _DESCRIPTORS.items():
        if isinstance(value, kind):
            return descriptor
    if isinstance(value, AbstractSet):
        types = {_type_of(element) for element in value}
        if types in ({"S"}, {"N"}, {"B"}):
            return types.pop() + "S"
    raise ExpressionError(f"no DynamoDB value: {type(value).__name__} (a float, or an empty or mixed set?)")


def _equal(left: object, right: object) -> bool:
    if left is ABSENT or _type_of(left) != _type_of(right):
        return False
    match left, right:
        case list(), list():
            return len(left) == len(right) and all(map(_equal, left, right))
        case Mapping(), Mapping():
            return left.keys() == right.keys() and all(_equal(left[name], right[name]) for name in left)
    return left == right


def _of_one_type(types: AbstractSet[str], compare: Callable[..., bool]) -> Callable[[object, object], bool]:
    """A comparison that is false of operands of different types, or of others than these."""
    return lambda left, right: _type_of(left) == _type_of(right) in types and compare(left, right)


def _contains(value: object, operand: object) -> bool:
    match value, operand:
        case str() as text, str() as part:
            return part in text
        case bytes() as octets, bytes() as part:
            return part in octets
        case (list() | AbstractSet()) as elements, _:
            return any(_equal(element, operand) for element in elements)
    return False


def _is_of_type(value: object, descriptor: object) -> bool:
    if descriptor not in _TYPES:
        raise ExpressionError(f"attribute_type knows no type {descriptor}")
    return _type_of(value) == descriptor


def _total(compute: Callable[[Decimal, Decimal], Decimal], left: int | Decimal, right: int | Decimal) -> int | Decimal:
    """A sum or a difference as exact as DynamoDB's; of two ints it is an int."""
    try:
        result = compute(Decimal(left), Decimal(right))
    except (Inexact, Overflow) as error:
        raise ExpressionError("number overflow: more than 38 digits, or 1E+126 and more") from error
    return int(result) if isinstance(left, int) and isinstance(right, int) else result


def _added(old: object, value: object) -> object:
    if old is ABSENT:
        return value
    return _plus(old, value) if _type_of(value) == "N" else operator.or_(old, value)


_NUMBERS = Context(prec=38, Emin=-130, Emax=125, traps=[Inexact, Overflow])
# bool comes first, since to Python it is an int.
_DESCRIPTORS = {bool: "BOOL", int | Decimal: "N", str: "S", bytes: "B", list: "L", Mapping: "M", type(None): "NULL"}
_SCALARS = frozenset({"S", "N", "B"})
_SETS = frozenset({"SS", "NS", "BS"})
_TYPES = _SCALARS | _SETS | {"BOOL", "NULL", "L", "M"}
_NEEDS_ATTRIBUTES = frozenset({"SET", "+", "-", "list_append"})
_OPERAND_TYPES = {
    **dict.fromkeys(("<", "<=", ">", ">=", "BETWEEN"), _SCALARS),
    "begins_with": frozenset({"S", "B"}),
    "size": _TYPES - {"N", "BOOL", "NULL"},
    **dict.fromkeys(("+", "-"), frozenset({"N"})),
    "list_append": frozenset({"L"}),
    "ADD": _SETS | {"N"},
    "DELETE": _SETS,
}

_plus: Callable[..., object] = partial(_total, _NUMBERS.add)
_less_or_equal = _of_one_type(_SCALARS, operator.le)
_MEANINGS: Mapping[str, Callable[..., object]] = {
    "()": lambda condition: condition,
    "=": _equal,
    "<>": lambda left, right: not _equal(left, right),
    "<": _of_one_type(_SCALARS, operator.lt),
    "<=": _less_or_equal,
    ">": _of_one_type(_SCALARS, operator.gt),
    ">=": _of_one_type(_SCALARS, operator.ge),
    "BETWEEN": lambda value, low, high: _less_or_equal(low, value) and _less_or_equal(value, high),
    "IN": lambda value, *among: any(_equal(value, other) for other in among),
    "NOT": operator.not_,
    "AND": operator.and_,
    "OR": operator.or_,
    "attribute_exists": lambda value: value is not ABSENT,
    "attribute_not_exists": lambda value: value is ABSENT,
    "attribute_type": _is_of_type,
    "begins_with": _of_one_type(frozenset({"S", "B"}), lambda value, start: value.startswith(start)),
    "contains": _contains,
    "size": lambda value: len(value) if isinstance(value, str | bytes | AbstractSet | list | Mapping) else ABSENT,
    "if_not_exists": lambda value, default: default if value is ABSENT else value,
    "list_append": operator.add,
    "+": _plus,
    "-": partial(_total, _NUMBERS.subtract),
    "SET": lambda value: value,
    "REMOVE": lambda: ABSENT,
    "ADD": _added,
    "DELETE": lambda old, value: ABSENT if old is ABSENT else old - value or ABSENT,  # no set is empty
}
