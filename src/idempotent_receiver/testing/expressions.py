"""The meaning of DynamoDB expressions, for items as plain Python values.

`_MEANINGS` has an entry for every comparator, logical evaluation, function and action. `ABSENT` stands for a missing
attribute. The grammar handles syntax, and the store handles tables and transactions: nothing is stored here.

Sources: Amazon DynamoDB Developer Guide, "Condition and filter expressions, operators, and functions", "Using update
expressions", "Expression attribute names", "Using expression attribute values" and "Quotas"; API reference, UpdateItem.
Where they are silent, this module follows the service: `<>` is true if an operand is absent, a :value of a type that
its operator cannot take is refused regardless of the item, and ADD accepts nested attributes.
"""

import operator
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from copy import deepcopy
from decimal import Context, Decimal, Inexact, Overflow
from functools import partial
from typing import Final, TypeAlias

from idempotent_receiver.protocol.limits import MOST_NAME_BYTES, item_bytes
from idempotent_receiver.testing import expression_grammar as grammar
from idempotent_receiver.testing.expression_grammar import ExpressionError, Node, OperatorNode, Path, Value

__all__ = ["ExpressionError", "holds", "updated", "validate", "written"]

ItemAttributes: TypeAlias = Mapping[str, object]
Names: TypeAlias = Mapping[str, str]
ABSENT: Final = object()


def validate(condition: str | None, update: str | None, names: Names, values: ItemAttributes) -> None:
    """Refuse a request's ConditionExpression and UpdateExpression as DynamoDB does, regardless of its item.

    `names` and `values` are the request's ExpressionAttributeNames and ExpressionAttributeValues.

    Raises `ExpressionError` for bad syntax, a reserved word, an undefined or unused #name or :value, a :value of a type
    that its operator cannot take, and for exceeding DynamoDB's quotas. Raises as `limits.bytes_of` does for a value
    that DynamoDB cannot store.
    """
    _refuse_bad_references([text for text in (condition, update) if text is not None], names, values)
    _refuse_bad_substitutes(names, values)
    if condition is not None:
        _refuse_wrong_types(_condition(condition, names), values)
    if update is not None:
        for _, operation in _actions(update, names):
            _refuse_wrong_types(operation, values)


def holds(condition: str, item: ItemAttributes | None, names: Names, values: ItemAttributes) -> bool:
    """Whether a ConditionExpression is true for an item; `None` means that there is no item.

    `names` and `values` are as in `validate`, which must have accepted the request.
    """
    return _evaluate(_condition(condition, names), {} if item is None else item, values) is True


def updated(expression: str, item: dict[str, object], names: Names, values: ItemAttributes) -> dict[str, object]:
    """A new item with an UpdateExpression applied. The given item is unchanged and shares nothing with the new one.

    Every operand is read from the given item. For an item that does not exist yet, pass its key attributes; the caller
    ensures that an update does not change them. `names` and `values` are as in `validate`, which must have accepted the
    request.

    Raises `ExpressionError` for an invalid path, an attribute that is absent or of the wrong type, or a sum with more
    than DynamoDB's 38 digits.
    """
    changes = [(path, _evaluate(operation, item, values)) for path, operation in _actions(expression, names)]
    removed = [path for path, value in changes if value is ABSENT and _look_up(item, path) is not ABSENT]
    new = deepcopy(item)
    for path, value in changes:  # by ascending index: values past a list's end are appended in that order
        if path not in removed:
            _change(new, path, value)
    for path in reversed(removed):  # last, by descending index: indexes refer to the given item
        _change(new, path, ABSENT)
    return new


def written(expression: str, names: Names) -> frozenset[str]:
    """The attributes that an UpdateExpression writes, whole or in part."""
    return frozenset(str(path[0]) for path, _ in _actions(expression, names))


def _condition(expression: str, names: Names) -> Node:
    return grammar.parsed_condition(expression, tuple(sorted(names.items())))


def _actions(expression: str, names: Names) -> tuple[grammar.UpdateAction, ...]:
    return grammar.parsed_update(expression, tuple(sorted(names.items())))


def _refuse_bad_references(expressions: list[str], names: Names, values: ItemAttributes) -> None:
    used = frozenset[str]().union(*map(grammar.references, expressions))
    defined = names.keys() | values.keys()
    if undefined := used - defined:
        raise ExpressionError(f"not defined: {', '.join(sorted(undefined))}")
    if unused := defined - used:
        raise ExpressionError(f"unused in expressions: {', '.join(sorted(unused))}")


def _refuse_bad_substitutes(names: Names, values: ItemAttributes) -> None:
    for placeholder in (*names, *values):
        if len(placeholder) > _LONGEST_PLACEHOLDER:
            raise ExpressionError(f"a #name or :value has at most {_LONGEST_PLACEHOLDER} characters: {placeholder}")
    for placeholder, name in names.items():
        if not 0 < len(name.encode()) <= MOST_NAME_BYTES:
            raise ExpressionError(
                f"{placeholder} stands for an empty name, or one of more than {MOST_NAME_BYTES} bytes"
            )
    for value in values.values():
        _type_of(value)
    size = item_bytes(names) + item_bytes(values)
    if size > _MOST_SUBSTITUTED_BYTES:
        raise ExpressionError(f"#names and :values have {size} bytes; DynamoDB allows 2 MB for an expression")


def _refuse_wrong_types(node: Node, values: ItemAttributes) -> None:
    """Refuse operands that are of the wrong type in the request itself. An attribute of the wrong type only makes a
    condition false.
    """
    if not isinstance(node, OperatorNode):
        return
    types = _OPERAND_TYPES.get(node.name, _TYPES)
    for operand in node.operands:
        given = _type_in_request(operand, values)
        if given is not None and given not in types:
            raise ExpressionError(f"incorrect operand type for {node.name}: {given}")
        _refuse_wrong_types(operand, values)
    given_values = [values[operand] for operand in node.operands[1:] if isinstance(operand, Value)]
    if node.name == "BETWEEN" and len(given_values) == 2 and not _less_or_equal(*given_values):
        raise ExpressionError("the bounds of BETWEEN must have the same type, with the lower bound first")
    if node.name == "attribute_type" and (_type_of(given_values[0]) != "S" or given_values[0] not in _TYPES):
        raise ExpressionError(f"attribute_type takes one of {', '.join(sorted(_TYPES))}")


def _type_in_request(operand: Node, values: ItemAttributes) -> str | None:
    match operand:
        case Value():
            return _type_of(values[operand])
        case OperatorNode("size"):
            return "N"
    return None


def _evaluate(node: Node, item: ItemAttributes, values: ItemAttributes) -> object:
    match node:
        case Path():
            return _look_up(item, node)
        case Value():
            return values[node]
        case OperatorNode(name, operands):
            arguments = [
                _evaluate(operand, item, values) for operand in operands
            ]  # evaluate every operand, because any of them can raise an error
            _refuse_wrong_operands(node, arguments)
            return _MEANINGS[name](*arguments)


def _refuse_wrong_operands(node: OperatorNode, arguments: list[object]) -> None:
    """Refuse an update if an attribute that it needs is absent or of the wrong type."""
    if node.name in _NEEDS_ATTRIBUTES:
        types = _OPERAND_TYPES.get(node.name, _TYPES)
        for argument in arguments:
            if argument is ABSENT:
                raise ExpressionError(f"{node.name} refers to an attribute that does not exist in the item")
            if _type_of(argument) not in types:
                raise ExpressionError(f"incorrect operand type for {node.name}: {_type_of(argument)}")
    if node.name in ("ADD", "DELETE") and arguments[0] is not ABSENT:
        attribute, value = map(_type_of, arguments)
        if attribute != value:
            raise ExpressionError(f"incorrect operand type for {node.name}: {value} on {attribute}")


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
    """Set a copy of `value` at `path`, or append it if the path is past a list's end. `ABSENT` removes the element."""
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
    """The descriptor of a plain value's DynamoDB type; empty for `ABSENT`."""
    if value is ABSENT:
        return ""
    for kind, descriptor in _DESCRIPTORS.items():
        if isinstance(value, kind):
            return descriptor
    if isinstance(value, AbstractSet):
        types = {_type_of(element) for element in value}
        if types in ({"S"}, {"N"}, {"B"}):
            return types.pop() + "S"
    raise ExpressionError(f"not a DynamoDB value: {type(value).__name__} (a float, or an empty or mixed set?)")


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
    """A comparison that is false for operands of different types, or of types not in `types`."""
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


def _total(compute: Callable[[Decimal, Decimal], Decimal], left: int | Decimal, right: int | Decimal) -> int | Decimal:
    """A sum or difference with DynamoDB's precision; an int for two ints."""
    try:
        result = compute(Decimal(left), Decimal(right))
    except (Inexact, Overflow) as error:
        raise ExpressionError("number overflow: more than 38 digits, or 1E+126 or more") from error
    return int(result) if isinstance(left, int) and isinstance(right, int) else result


def _added(old: object, value: object) -> object:
    if old is ABSENT:
        return value
    return _plus(old, value) if _type_of(value) == "N" else operator.or_(old, value)


_LONGEST_PLACEHOLDER = 255
_MOST_SUBSTITUTED_BYTES = 2 * 1024 * 1024
_NUMBERS = Context(prec=38, Emin=-130, Emax=125, traps=[Inexact, Overflow])
# bool first, because Python counts it as an int.
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
    "attribute_type": lambda value, descriptor: _type_of(value) == descriptor,
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
    "DELETE": lambda old, value: ABSENT if old is ABSENT else old - value or ABSENT,  # sets are never empty
}
