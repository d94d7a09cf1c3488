"""What a planted bug is, and the source with the bug in it."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
LIBRARY = Path("src") / "idempotent_receiver"


class DoesNotApply(Exception):
    """A planted bug no longer fits the code: the code has moved on, and the catalogue must follow."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug. `at` is a module and the qualified name, without `<locals>`, of a definition in it: "calls:Call.claim".
    In each of `edits`, the first text becomes the second, or nothing.

    `promise` is the number of the promise that it breaks, or 0. `where` are the files whose tests should see it, beside
    the scenarios' tests that name it; where it is empty, those alone.
    """

    name: str
    at: str
    edits: list[tuple[str, str | None]]
    promise: int = 0
    where: tuple[str, ...] = ()

    @property
    def file(self) -> Path:
        """The file in which the bug is planted, from the repository's root. Raises DoesNotApply."""
        module = LIBRARY.joinpath(*self.at.partition(":")[0].split("."))
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            if (ROOT / path).is_file():
                return path
        raise self.misfit("there is no such module")

    def planted(self, source: str) -> str:
        """The module's source with the bug in it. Raises DoesNotApply."""
        name = self.at.partition(":")[2]
        found = list(_definitions(_parsed(source), name))
        if len(found) != 1:
            raise self.misfit(f"it is defined {len(found)} times, not once")
        lines = source.splitlines(keepends=True)
        first, end = found[0].lineno - 1, found[0].end_lineno
        text = "".join(lines[first:end])
        for old, new in self.edits:
            text = self._edited(text, old, new or "")
        text = "".join([*lines[:first], text, *lines[end:]])
        try:
            changed = ast.parse(text)
        except SyntaxError as error:
            raise self.misfit(str(error)) from None
        if [ast.dump(each) for each in _definitions(changed, name)] == [ast.dump(found[0])]:
            raise self.misfit("nothing changes")
        unknown = _unknown(text) - _unknown(source)
        if unknown:
            raise self.misfit(f"nothing is called {', '.join(sorted(unknown))}")
        return text

    def misfit(self, why: str) -> DoesNotApply:
        """The error that says which bug does not fit, and where."""
        return DoesNotApply(f"{self.name!r} at {self.at}: {why}")

    def _edited(self, text: str, old: str, new: str) -> str:
        pattern = re.escape(old).replace(r"\ ", r"\s+").replace("…", ".*?")
        found = list(re.finditer(f"(?=({pattern}))", text, re.DOTALL))
        if len(found) != 1:
            raise self.misfit(f"{old!r} is there {len(found)} times, not once")
        start, end = found[0].span(1)
        indentation = re.match(" *", text[text.rfind("\n", 0, start) + 1 :])
        assert indentation is not None, "no blank is one, too"
        return text[:start] + new.replace("\n", f"\n{indentation[0]}") + text[end:]


@cache
def _parsed(source: str) -> ast.Module:
    return ast.parse(source)


def _definitions(tree: ast.AST, name: str) -> Iterator[ast.stmt]:
    """What has this qualified name; a function's own are found in whatever block they stand."""
    first, _, rest = name.partition(".")
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef(name=own) | ast.AsyncFunctionDef(name=own) | ast.ClassDef(name=own):
                if own == first:
                    yield from _definitions(node, rest) if rest else [node]
            case ast.Assign(targets=[ast.Name(id=own)]) | ast.AnnAssign(target=ast.Name(id=own)):
                if name == own:
                    yield node
            case ast.stmt() | ast.match_case() | ast.ExceptHandler():
                yield from _definitions(node, name)


@cache
def _unknown(source: str) -> frozenset[str]:
    """Names that are used as global, and are neither defined in the module nor built in."""
    module = symtable.symtable(source, "a module", "exec")
    known = {each.get_name() for each in module.get_symbols() if each.is_assigned() or each.is_imported()}
    known |= {each.get_name() for each in module.get_symbols() if each.is_namespace()} | set(dir(builtins))
    used = {each.get_name() for table in _tables(module) for each in table.get_symbols() if each.is_global()}
    return frozenset(used - known - {"__name__", "__file__"})


def _tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for child in table.get_children():
        yield from _tables(child)
