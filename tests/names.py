"""Public names that more than one module of `src/` defines: `python -m tests.names` prints them as a table.

A class, a function or a constant counts if a module defines it at its top level, without an underscore. What a module
imports is not counted, nor is an attribute of a class.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"

MOST_REPEATED = 12
"""How many names may be repeated."""

_APP = "each folder of the example is deployed alone, so one shares no module with another"
_LAMBDA = "the name by which templates find a function's handler"
EXCUSES = {
    "T": "a type variable says nothing, and each is its module's own",
    "app": "typer's word for a command's root",
    "dynamodb": _APP,
    "idempotent_handler": _LAMBDA,
    "lambda_handler": _LAMBDA,
    "ledger": _APP,
    "logger": "the standard library's word for a module's own logger",
    "main": "where a program begins, one in each that can be run",
    "NotStarted": "an outcome, and the public error that tells a caller of it",
    "Result": "a type variable",
    "session": _APP,
    "store": _APP,
}
"""Why a name may be repeated."""


def defined(module: ast.Module) -> set[str]:
    """The public names that a module defines at its top level."""
    names: set[str] = set()
    for node in module.body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def repeated(source: Path = SOURCE) -> dict[str, list[str]]:
    """The names that several modules under `source` define, with those modules' paths, both in order."""
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(source.rglob("*.py")):
        for name in defined(ast.parse(path.read_text(encoding="utf-8"))):
            modules[name].append(path.relative_to(source).as_posix())
    return {name: paths for name, paths in sorted(modules.items()) if len(paths) > 1}


def main() -> None:
    """Print the table."""
    found = repeated()
    width = max(map(len, found), default=0)
    for name, paths in found.items():
        print(f"{name:{width}}  {', '.join(path.removeprefix('idempotent_receiver/') for path in paths)}")
    print(f"{len(found)} names are repeated; {MOST_REPEATED} may be")


if __name__ == "__main__":
    main()
