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
    outside = [node for node in tree.body if not isinstance(node, (*_FUNCTIONS, ast.ClassDef))]
    globals_ = {name for statement in outside for node in ast.walk(statement) for name in _set_by(node)}
    for node in ast.walk(tree):
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Module)) and ast.get_docstring(node) is not None:
            node.body[0] = ast.Expr(ast.Constant("Another text."))
    for function in _outermost(tree):
        nodes = list(ast.walk(function))
        kept = {node.arg for node in nodes if isinstance(node, ast.arg)} | globals_
        kept.update(name for node in nodes if isinstance(node, ast.Global | ast.Nonlocal) for name in node.names)
        _rename(nodes, {name for node in nodes for name in _set_by(node)} - kept)
    return ast.unparse(tree)


@cache
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


def _set_by(node: ast.AST) -> list[str]:
    """The name that a node sets: by an assignment, a loop, an `except … as`, a `case`."""
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            return [name]
        case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case _:
            return []


def _rename(nodes: list[ast.AST], names: set[str]) -> None:
    for node in nodes:
        field = "id" if isinstance(node, ast.Name) else "name"
        if isinstance(node, ast.Name | ast.ExceptHandler | ast.MatchAs | ast.MatchStar):
            name = getattr(node, field)
            if name in names and not name.endswith(_SUFFIX):
                setattr(node, field, name + _SUFFIX)
