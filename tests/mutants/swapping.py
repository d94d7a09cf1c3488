"""Planting a bug into the modules that are imported, by giving their functions other code."""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
from collections import Counter
from dataclasses import dataclass
from functools import cache
from types import CodeType, FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from types import ModuleType

    from tests.mutants.mutant import Mutant

Codes = dict[tuple[str, int], CodeType]
"""The functions' code in a module, by qualified name, and by number where several have the same."""


@dataclass(frozen=True, slots=True)
class Swap:
    """Functions, each with the code that it has, and with the other. `changed` names those with a bug in them."""

    functions: list[tuple[FunctionType, CodeType, CodeType]]
    changed: frozenset[str]

    def do(self) -> None:
        """Give them the other code; none of them, and ValueError is raised, if a closure needs other variables."""
        try:
            for function, _, other in self.functions:
                function.__code__ = other
        except ValueError:
            self.undo()
            raise

    def undo(self) -> None:
        """Give them back their own."""
        for function, own, _ in self.functions:
            function.__code__ = own


def swap_of(mutant: Mutant) -> Swap:
    """What plants the bug. Raises DoesNotApply where it is not in a function's body."""
    module = importlib.import_module(f"idempotent_receiver.{mutant.at.partition(':')[0]}".rstrip("."))
    swap = _swap(module, ast.parse(mutant.planted(inspect.getsource(module))))
    if not swap.changed or not swap.functions:
        raise mutant.misfit("no function's body changes")
    return swap


def observed(functions: Collection[str]) -> list[Swap]:
    """What makes these functions, such as `sqs.keys:event_id`, tell mutmut's state that they are called. A context of
    coverage would not know for which test a greenlet runs.
    """
    swaps = []
    for name in sorted({each.partition(":")[0] for each in functions}):
        module = importlib.import_module(f"idempotent_receiver.{name}".rstrip("."))
        tree = ast.parse(inspect.getsource(module))
        for node, qualified in _functions(tree, ""):
            if (label := f"{name}:{qualified}") in functions:
                tells = ast.parse(f"__import__('mutmut').state()._stats.add({label!r})").body[0]
                first = int(ast.get_docstring(node, clean=False) is not None)
                node.body.insert(first, ast.fix_missing_locations(ast.copy_location(tells, node.body[0])))
        swaps.append(_swap(module, tree))
    return swaps


def _swap(module: ModuleType, tree: ast.Module) -> Swap:
    file = module.__file__ or ""
    own = _codes(compile(inspect.getsource(module), file, "exec", dont_inherit=True))
    other = _codes(compile(tree, file, "exec", dont_inherit=True))
    places = Counter(map(_place, own.values()))
    keys = {_place(code): key for key, code in own.items() if places[_place(code)] == 1}
    named = module.__name__.removeprefix("idempotent_receiver").removeprefix(".")
    changed = {f"{named}:{key[0]}" for key in own if key in other and _part(own[key]) != _part(other[key])}
    functions = [
        (each, each.__code__, other[key])
        for each in _living(file)
        for key in [keys.get(_place(each.__code__))]
        if key in other
    ]
    return Swap(functions, frozenset(map(_enclosing, changed)))


@cache
def _living(file: str) -> list[FunctionType]:
    """The functions that were made of this file's code."""
    every = (each for each in gc.get_objects() if isinstance(each, FunctionType))
    return [each for each in every if each.__code__.co_filename == file]


def _codes(code: CodeType) -> Codes:
    found: Codes = {}
    for each in _inner(code):
        number = sum(name == each.co_qualname for name, _ in found)
        found[each.co_qualname, number] = each
    return found


def _inner(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if each.co_flags & inspect.CO_OPTIMIZED:
                yield each
            yield from _inner(each)


def _place(code: CodeType) -> tuple[str, int]:
    """What stays of a function in which pytest has rewritten an assertion."""
    return code.co_qualname, code.co_firstlineno


def _part(code: CodeType) -> tuple[object, ...]:
    """What it does itself, wherever it stands."""
    own = repr([each for each in code.co_consts if not isinstance(each, CodeType)])
    return code.co_code, own, code.co_names, code.co_varnames, code.co_freevars


def _enclosing(name: str) -> str:
    """The function that has a lambda or a comprehension."""
    return name.partition(".<locals>.<")[0]


def _functions(tree: ast.AST, within: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    for node in ast.iter_child_nodes(tree):
        inner = within
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node, within + node.name
            inner = f"{within}{node.name}.<locals>."
        elif isinstance(node, ast.ClassDef):
            inner = f"{within}{node.name}."
        yield from _functions(node, inner)
