"""The grammar of DynamoDB's condition and update expressions: turns text into a tree.

A tree consists of document paths, value placeholders and operations on them: comparators, logical evaluations,
functions and actions are all operations. `expressions.py` defines the meaning of each operation.

Sources: Amazon DynamoDB Developer Guide, "Condition and filter expressions, operators, and functions", "Using update
expressions", "Referring to item attributes when using expressions" and "Quotas". Where they are silent, this module
follows the service: in a condition's operations and if_not_exists, no other operand may repeat the first one if it is
a path; double parentheses are redundant; an update's functions do not accept list_append as an operand; and everything
except parentheses and clauses counts as an operator.
"""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import combinations
from typing import NamedTuple, NoReturn, TypeAlias, TypeVar

from idempotent_receiver.testing.reserved_words import RESERVED_WORDS

NamePairs: TypeAlias = tuple[tuple[str, str], ...]
"""ExpressionAttributeNames, hashable: sorted pairs of #name and attribute name."""


class ExpressionError(ValueError):
    """DynamoDB would answer this expression with a ValidationException."""


class Path(tuple[str | int, ...]):
    """A document path: attribute names and list indexes, with every #name replaced by its attribute name."""

    __slots__ = ()


class Value(str):
    """A :value placeholder."""

    __slots__ = ()


class OperatorNode(NamedTuple):
    """A comparator, logical evaluation, function or action, named as in the Developer Guide, or parentheses."""

    name: str
    operands: "tuple[Node, ...]"


Node: TypeAlias = Path | Value | OperatorNode
UpdateAction: TypeAlias = tuple[Path, OperatorNode]
"""The attribute that changes, and the operation that gives its new value."""

_Part = TypeVar("_Part")
_TOKEN = re.compile(r"[A-Za-z]\w*|[#:]\w+|\d+|<>|<=|>=|\S", re.ASCII)
_NAME = re.compile(r"[A-Za-z]\w*|#\w+", re.ASCII)
_VALUE = re.compile(r":\w+", re.ASCII)
_INDEX = re.compile(r"0|[1-9]\d*", re.ASCII)
_END = "<EOF>"
_MOST_BYTES = 4096
_MOST_IN_OPERANDS = 100
_MOST_OPERATORS = 300
_MOST_LEVELS = 32
_HIGHEST_INDEX = 2**31 - 1
_REDUNDANT = "the expression has redundant parentheses"

_Functions: TypeAlias = Mapping[str, tuple[type | tuple[type, ...], ...]]
"""The functions allowed in one position, and the kinds of operand that each takes."""

_ANY = (Path, Value, OperatorNode)
_PREDICATES: _Functions = {
    "attribute_exists": (Path,),
    "attribute_not_exists": (Path,),
    "attribute_type": (_ANY, Value),
    "begins_with": (_ANY, _ANY),
    "contains": (_ANY, _ANY),
}
_SIZE: _Functions = {"size": (_ANY,)}
_IF_NOT_EXISTS: _Functions = {"if_not_exists": (Path, _ANY)}
_SET_FUNCTIONS: _Functions = {**_IF_NOT_EXISTS, "list_append": (_ANY, _ANY)}
_MAY_REPEAT = frozenset({"+", "-", "list_append"})
"""The operations that accept the same document path twice."""


@lru_cache(maxsize=512)
def references(expression: str) -> frozenset[str]:
    """The #names and :values that an expression uses. Raises `ExpressionError` if it exceeds 4 KB."""
    return frozenset(token for token in _tokens(expression) if token[0] in "#:")


@lru_cache(maxsize=512)
def parsed_condition(expression: str, names: NamePairs) -> Node:
    """The tree of a ConditionExpression. Raises `ExpressionError` for bad syntax."""
    return _Parser(expression, names).whole(_Parser.condition)


@lru_cache(maxsize=512)
def parsed_update(expression: str, names: NamePairs) -> tuple[UpdateAction, ...]:
    """The actions of an UpdateExpression, in the order of their paths.

    Raises `ExpressionError` for bad syntax, and for paths that overlap (`a`, `a.b`) or conflict (`a.b`, `a[0]`).
    """
    actions = _Parser(expression, names).whole(_Parser.update)
    for (one, _), (other, _) in combinations(actions, 2):
        fork = next(((a, b) for a, b in zip(one, other, strict=False) if a != b), None)
        if fork is None:
            raise ExpressionError(f"two document paths overlap: {one} and {other}")
        if type(fork[0]) is not type(fork[1]):
            raise ExpressionError(f"two document paths conflict: {one} and {other}")
    return tuple(sorted(actions, key=lambda action: action[0]))


def _tokens(expression: str) -> list[str]:
    if len(expression.encode()) > _MOST_BYTES:
        raise ExpressionError(f"an expression can have at most {_MOST_BYTES} bytes")
    return _TOKEN.findall(expression)


class _Parser:
    """A recursive-descent parser with one method per grammar rule, loosest binding first."""

    def __init__(self, expression: str, names: NamePairs) -> None:
        self._tokens = [*_tokens(expression), _END]
        self._names = dict(names)
        self._at = 0
        self._operators = 0

    def whole(self, rule: "Callable[[_Parser], _Part]") -> _Part:
        try:
            parsed = rule(self)
        except RecursionError:
            raise ExpressionError("the expression is nested too deeply") from None
        self._expect(_END)
        return parsed

    def condition(self) -> OperatorNode:
        return self._joined("OR", partial(self._joined, "AND", self._negation))

    def _joined(self, word: str, part: Callable[[], OperatorNode]) -> OperatorNode:
        joined = part()
        while self._accept(word):
            joined = self._operation(word, joined, part())
        return joined

    def _negation(self) -> OperatorNode:
        return self._operation("NOT", self._negation()) if self._accept("NOT") else self._primary()

    def _primary(self) -> OperatorNode:
        if self._accept("("):
            inner = self.condition()
            self._expect(")")
            if inner.name == "()":
                raise ExpressionError(_REDUNDANT)
            return OperatorNode("()", (inner,))
        return self._call(_PREDICATES, _SIZE) if self._peek() in _PREDICATES else self._comparison()

    def _comparison(self) -> OperatorNode:
        left = self._operand(_SIZE)
        if self._accept("BETWEEN"):
            low = self._operand(_SIZE)
            self._expect("AND")
            return self._operation("BETWEEN", left, low, self._operand(_SIZE))
        if self._accept("IN"):
            among = self._arguments(_SIZE)
            if len(among) > _MOST_IN_OPERANDS:
                raise ExpressionError(f"IN takes at most {_MOST_IN_OPERANDS} operands")
            return self._operation("IN", left, *among)
        comparator = self._accept("=", "<>", "<", "<=", ">", ">=") or self._refuse()
        return self._operation(comparator, left, self._operand(_SIZE))

    def update(self) -> list[UpdateAction]:
        clauses: dict[str, list[UpdateAction]] = {}
        while keyword := self._accept("SET", "REMOVE", "ADD", "DELETE"):
            if keyword in clauses:
                raise ExpressionError(f"an update expression can have only one {keyword} clause")
            clauses[keyword] = self._listed(partial(self._action, keyword))
        return [action for clause in clauses.values() for action in clause] or self._refuse()

    def _action(self, keyword: str) -> UpdateAction:
        path = self._path()
        if keyword == "REMOVE":
            return path, OperatorNode("REMOVE", ())
        if keyword == "SET":
            self._expect("=")
            return path, OperatorNode("SET", (self._set_value(),))
        return path, OperatorNode(keyword, (path, Value(self._take(_VALUE))))

    def _set_value(self) -> Node:
        """A value, or the sum or difference of two values; parentheses may surround either form."""
        operand = partial(self._operand, _SET_FUNCTIONS, _IF_NOT_EXISTS)
        around = self._accept("(")
        doubled = around is not None and self._peek() == "("
        left = operand()
        if around and self._accept(")"):
            around = None
            if doubled:
                raise ExpressionError(_REDUNDANT)
        if sign := self._accept("+", "-"):
            left = self._operation(sign, left, operand())
        if around:
            self._expect(")")
        return left

    def _operand(self, functions: _Functions, inner: _Functions | None = None) -> Node:
        if self._accept("("):
            if self._peek() == "(":
                raise ExpressionError(_REDUNDANT)
            inside = self._operand(functions, inner)
            self._expect(")")
            return inside
        if self._peek(ahead=1) == "(":
            return self._call(functions, functions if inner is None else inner)
        return Value(self._take(_VALUE)) if self._peek().startswith(":") else self._path()

    def _call(self, functions: _Functions, inner: _Functions) -> OperatorNode:
        name = self._take()
        if name not in functions:
            raise ExpressionError(f"the function is unknown or not allowed here: {name}")
        arguments = self._arguments(inner)
        if len(arguments) != len(functions[name]) or not all(map(isinstance, arguments, functions[name])):
            raise ExpressionError(f"incorrect number or kind of operands: {name}")
        return self._operation(name, *arguments)

    def _operation(self, name: str, *operands: Node) -> OperatorNode:
        """Build a node that counts as an operator."""
        self._operators += 1
        if self._operators > _MOST_OPERATORS:
            raise ExpressionError(f"an expression can have at most {_MOST_OPERATORS} operators and functions")
        if name not in _MAY_REPEAT and isinstance(operands[0], Path) and operands[0] in operands[1:]:
            raise ExpressionError(f"the first operand of {name} must be distinct from the others")
        return OperatorNode(name, operands)

    def _arguments(self, functions: _Functions) -> tuple[Node, ...]:
        self._expect("(")
        arguments = self._listed(partial(self._operand, functions))
        self._expect(")")
        return tuple(arguments)

    def _listed(self, part: Callable[[], _Part]) -> list[_Part]:
        parts = [part()]
        while self._accept(","):
            parts.append(part())
        return parts

    def _path(self) -> Path:
        parts: list[str | int] = [self._name()]
        while separator := self._accept(".", "["):
            if separator == ".":
                parts.append(self._name())
            else:
                parts.append(self._index())
                self._expect("]")
        if len(parts) > _MOST_LEVELS:
            raise ExpressionError(f"a document path can have at most {_MOST_LEVELS} levels; this has {len(parts)}")
        return Path(parts)

    def _name(self) -> str:
        name = self._take(_NAME)
        if name.upper() in RESERVED_WORDS:
            raise ExpressionError(
                f"{name} is a DynamoDB reserved word: write #{name}, with ExpressionAttributeNames "
                f'{{"#{name}": "{name}"}}'
            )
        return self._names.get(name, name)

    def _index(self) -> int:
        index = int(self._take(_INDEX))
        if index > _HIGHEST_INDEX:
            raise ExpressionError(f"a list index can be at most {_HIGHEST_INDEX}; this is {index}")
        return index

    def _peek(self, ahead: int = 0) -> str:
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def _take(self, kind: re.Pattern[str] = _TOKEN) -> str:
        token = self._peek()
        if not kind.fullmatch(token):
            self._refuse()
        self._at += 1
        return token

    def _accept(self, *tokens: str) -> str | None:
        """Take the next token if it is one of `tokens`. Keywords are case-insensitive; function names are not."""
        token = self._peek().upper()
        if token not in tokens:
            return None
        self._at += 1
        return token

    def _expect(self, token: str) -> None:
        if self._accept(token) is None:
            self._refuse()

    def _refuse(self) -> NoReturn:
        near = " ".join(self._tokens[max(0, self._at - 2) : self._at + 2])
        raise ExpressionError(f"syntax error; token: {self._peek()}, near: {near}")
