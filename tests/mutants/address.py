"""Finding what an address names, and changing it there.

An address is a module of the library and the qualified name of a function or constant in it, without `<locals>`:
"batch.settlements:Settlements.flush", "function:_Wrapped.coroutine.called", "protocol.store:WRITES_A_CALL".
"""

from __future__ import annotations

import ast
import builtins
import symtable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.mutants.change import NotThere

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.mutants.mutant import Mutant

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path("src") / "idempotent_receiver"


class DoesNotApply(Exception):
    """A planted bug no longer fits the code: the code has moved on, and the catalogue must follow."""


def file_of(mutant: Mutant) -> Path:
    """The file in which the bug is planted, from the repository's root. Raises DoesNotApply where there is none."""
    module = LIBRARY.joinpath(*mutant.at.partition(":")[0].split("."))
    for path in (module.with_suffix(".py"), module / "__init__.py"):
        if (ROOT / path).is_file():
            return path
    raise DoesNotApply(f"{mutant.name!r}: there is no module {mutant.at.partition(':')[0]!r}")


def mutated(mutant: Mutant, source: str) -> str:
    """The module's source with the bug in it, without its comments. Raises DoesNotApply."""
    tree = ast.parse(source)
    try:
        mutant.change(definition(tree, mutant.at.partition(":")[2]))
    except NotThere as error:
        raise DoesNotApply(f"{mutant.name!r} at {mutant.at}: {error}") from None
    text = ast.unparse(tree)
    if text == _plain(source):
        raise DoesNotApply(f"{mutant.name!r} at {mutant.at}: nothing changes")
    unknown = _unknown(text) - _unknown(source)
    if unknown:
        raise DoesNotApply(f"{mutant.name!r} at {mutant.at}: nothing is called {', '.join(sorted(unknown))}")
    return text


@cache
def _plain(source: str) -> str:
    return ast.unparse(ast.parse(source))


def definition(tree: ast.AST, name: str) -> ast.AST:
    """The function or constant of this qualified name. Raises NotThere."""
    for part in name.split("."):
        found = [node for node in _definitions(tree) if part in _names_of(node)]
        if len(found) != 1:
            raise NotThere(f"{part} is defined {len(found)} times, not once")
        (tree,) = found
    return tree


def _definitions(tree: ast.AST) -> Iterator[ast.AST]:
    """What is defined in a module, class or function, but in none within it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign):
            yield node
        elif isinstance(node, ast.stmt | ast.match_case | ast.ExceptHandler):
            yield from _definitions(node)


def _names_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case _:
            return []


@cache
def _unknown(source: str) -> frozenset[str]:
    """Names that are used as global, and are neither defined in the module nor built in."""
    module = symtable.symtable(source, "a module", "exec")
    known = {symbol.get_name() for symbol in module.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    known |= {symbol.get_name() for symbol in module.get_symbols() if symbol.is_namespace()} | set(dir(builtins))
    used = {symbol.get_name() for table in _tables(module) for symbol in table.get_symbols() if symbol.is_global()}
    return frozenset(used - known - {"__name__", "__file__"})


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)
