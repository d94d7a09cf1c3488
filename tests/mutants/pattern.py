"""Finding a piece of a syntax tree by its shape, and filling another piece with what was found.

A pattern is Python with holes, as in Semgrep. `$X` is any expression, and the same one wherever `$X` occurs again.
`.name` at the start is the attribute `name` of any expression. `...` as a call's last positional argument stands for
any further arguments. In a replacement, `$X` is what the pattern found, and `$0` is the whole of it.

Layout and comments never matter. Local variables do not either, as long as each pattern has holes in their places.
"""

from __future__ import annotations

import ast
import re
from copy import deepcopy
from dataclasses import dataclass
from itertools import zip_longest

_HOLE = "__hole_"

Found = dict[str, ast.AST]
"""What each hole stands for; the whole is under "0"."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """The shape of an expression or of a statement."""

    shape: ast.AST

    def match(self, node: ast.AST) -> Found | None:
        """What the holes stand for, where the whole of `node` has this shape."""
        found: Found = {"0": node}
        return found if _same(self.shape, node, found) else None

    def within(self, *nodes: ast.AST | None) -> Found | None:
        """The first match in these trees."""
        matches = (self.match(each) for node in nodes if node is not None for each in ast.walk(node))
        return next((match for match in matches if match is not None), None)


def pattern(text: str) -> Pattern:
    """Raises SyntaxError for a text that is not one expression or statement."""
    (statement,) = _parsed(f"{_HOLE}any{text}" if text.startswith(".") else text)
    return Pattern(statement.value if isinstance(statement, ast.Expr) else statement)


def expression(text: str, found: Found) -> ast.AST:
    """A new expression, its holes filled."""
    (statement,) = statements(text, found)
    assert isinstance(statement, ast.Expr), f"{text!r} is not an expression"
    return statement.value


def statements(text: str, found: Found) -> list[ast.stmt]:
    """New statements, their holes filled."""
    return [_Filling(found).visit(statement) for statement in _parsed(text)]


def _parsed(text: str) -> list[ast.stmt]:
    return ast.parse(re.sub(r"\$(\w+)", rf"{_HOLE}\1", text)).body


def _hole(node: object) -> str | None:
    return node.id.removeprefix(_HOLE) if isinstance(node, ast.Name) and node.id.startswith(_HOLE) else None


class _Filling(ast.NodeTransformer):
    def __init__(self, found: Found) -> None:
        self.found = found

    def visit_Name(self, node: ast.Name) -> ast.AST:
        hole = _hole(node)
        return node if hole is None else deepcopy(self.found[hole])


def _same(shape: object, node: object, found: Found) -> bool:
    hole = _hole(shape)
    if hole is not None:
        return isinstance(node, ast.expr) and (
            hole == "any" or ast.unparse(found.setdefault(hole, node)) == ast.unparse(node)
        )
    if isinstance(shape, ast.Call) and isinstance(node, ast.Call) and _is_open(shape):
        return _same_opening(shape, node, found)
    if isinstance(shape, ast.expr_context):
        return True
    if isinstance(shape, ast.AST):
        fields = (name for name in shape._fields if name not in {"kind", "type_comment"})
        return type(shape) is type(node) and all(
            _same(getattr(shape, name, None), getattr(node, name, None), found) for name in fields
        )
    if isinstance(shape, list):
        return isinstance(node, list) and all(_same(*pair, found) for pair in zip_longest(shape, node))
    return type(shape) is type(node) and shape == node


def _is_open(call: ast.Call) -> bool:
    return bool(call.args) and isinstance(call.args[-1], ast.Constant) and call.args[-1].value is ...


def _same_opening(shape: ast.Call, node: ast.Call, found: Found) -> bool:
    """The arguments that the pattern names, in their places; its keywords among the others."""
    named = shape.args[:-1]
    return (
        _same(shape.func, node.func, found)
        and _same(named, node.args[: len(named)], found)
        and all(any(_same(keyword, each, found) for each in node.keywords) for keyword in shape.keywords)
    )
