"""Source that does the same and reads differently, which no planted bug may notice; and source that lacks something."""

from __future__ import annotations

import ast
from functools import cache
from typing import TYPE_CHECKING

from tests.mutants.address import definition

if TYPE_CHECKING:
    from collections.abc import Iterator

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_SUFFIX = "_renamed"


@cache
def rewritten(source: str) -> str:
    """Every local variable has another name, and every docstring another text; comments and layout are gone."""
    tree = ast.parse(source)
    globals_ = set(_set_in(*(node for node in tree.body if not isinstance(node, (*_FUNCTIONS, ast.ClassDef)))))
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Module)) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant("Another text."))
    for function in _outermost(tree):
        parameters = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
        declared = {
            name for node in ast.walk(function) if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names
        }
        _Renaming(set(_set_in(*ast.iter_child_nodes(function))) - parameters - declared - globals_).visit(function)
    return ast.unparse(tree)


def without(source: str, name: str) -> str:
    """The source without the function or constant of this qualified name."""
    tree = ast.parse(source)
    removed = definition(tree, name)
    for node in ast.walk(tree):
        for _, held in ast.iter_fields(node):
            if isinstance(held, list) and removed in held:
                held[held.index(removed)] = ast.Pass()
    return ast.unparse(tree)


def _outermost(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, _FUNCTIONS):
            yield node
        else:
            yield from _outermost(node)


def _set_in(*nodes: ast.AST) -> Iterator[str]:
    """The names that are set here: assigned, imported, defined or captured."""
    for each in (each for node in nodes for each in ast.walk(node)):
        match each:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: set[str]) -> None:
        self.names = names

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Wherever a variable's name stands: in an expression, after `except … as`, in a `case`."""
        for field in ("id", "name"):
            name = getattr(node, field, None)
            variable = isinstance(node, ast.Name | ast.ExceptHandler | ast.MatchAs | ast.MatchStar)
            if variable and name in self.names and not name.endswith(_SUFFIX):
                setattr(node, field, name + _SUFFIX)
        return super().generic_visit(node)
