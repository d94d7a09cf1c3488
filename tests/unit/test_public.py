"""The public contract: its names are there, no others, and they are all that anybody outside the library imports."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from importlib import import_module
from pathlib import Path

import pytest

import idempotent_receiver
from idempotent_receiver import errors

ROOT = Path(__file__).resolve().parents[2]

PUBLIC = [
    "idempotent_receiver",
    "idempotent_receiver.dynamodb",
    "idempotent_receiver.http",
    "idempotent_receiver.protocol",
    "idempotent_receiver.sql",
    "idempotent_receiver.testing",
    "idempotent_receiver.workflow",
]
"""The packages whose `__all__` is the contract."""

USERS = [*sorted((ROOT / "src" / "app").rglob("*.py")), ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", PUBLIC)
def test_all_names_what_is_there(name: str) -> None:
    """Complete, and importable; some are loaded when they are first asked for."""
    package = import_module(name)
    there = {name for name, value in vars(package).items() if not name.startswith("_") and not inspect.ismodule(value)}

    assert there <= set(package.__all__)
    assert len(set(package.__all__)) == len(package.__all__)
    assert all(hasattr(package, name) for name in package.__all__)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_says_what_it_promises(name: str) -> None:
    """A docstring each."""
    package = import_module(name)
    for each in package.__all__:
        value = getattr(package, each)
        assert not callable(value) or inspect.getdoc(value), f"{each} has no docstring"


def test_the_package_says_which_names_are_public() -> None:
    """One sentence, with each package in it."""
    assert set(PUBLIC[1:]) == {
        f"idempotent_receiver.{name}"
        for name in re.findall(
            r"`(\w+)`", (idempotent_receiver.__doc__ or "").split("public names are")[1].split(".\n")[0]
        )
    } - {"idempotent_receiver.__all__"}


def imports_of(file: Path) -> list[tuple[str, str]]:
    """What a program, or a document's examples, import of the library: module and name."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".md":
        found = re.findall(r"from (idempotent_receiver[\w.]*) import ([\w, ]+)", text)
        whole = re.findall(r"^import (idempotent_receiver\.[\w.]+)", text, re.MULTILINE)
        return [(module, name.strip()) for module, names in found for name in names.split(",")] + [
            (module, "") for module in whole
        ]
    pairs = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            pairs += [(node.module or "", alias.name) for alias in node.names]
        elif isinstance(node, ast.Import):
            pairs += [(alias.name, "") for alias in node.names]
    return [(module, name) for module, name in pairs if module.partition(".")[0] == "idempotent_receiver"]


@pytest.mark.parametrize("file", USERS, ids=lambda file: str(file.relative_to(ROOT)))
def test_the_application_and_the_documents_use_public_names_alone(file: Path) -> None:
    """What an example imports, a user copies."""
    internal = [
        (module, name)
        for module, name in imports_of(file)
        if module not in PUBLIC or name not in import_module(module).__all__
    ]

    assert internal == []


INTERNAL_ERRORS = {"NoRoom", "OwnQueue", "UnreadableAnswer"}
"""Those that the library itself catches wherever it raises them."""


def drawn() -> set[tuple[str, str]]:
    """The tree in the docstring of `errors`: each class with the one above it."""
    pairs, above = set(), {0: "Exception"}
    for line in (errors.__doc__ or "").splitlines():
        branch = re.match(r"([│ ]*)[├└]── (\w+)", line)
        if branch is not None:
            depth = len(branch[1]) // 4 + 1
            above[depth] = branch[2]
            pairs.add((branch[2], above[depth - 1]))
    return pairs


def test_the_tree_of_errors_is_drawn_whole() -> None:
    """Every exception that a user may meet, in its place. Those of the command line and the local cloud stay there."""
    names = [module.name for module in pkgutil.walk_packages(idempotent_receiver.__path__, "idempotent_receiver.")]
    modules = [
        import_module(name)
        for name in names
        if not name.startswith(
            ("idempotent_receiver.local", "idempotent_receiver.operations", "idempotent_receiver.__main__")
        )
    ]
    defined = {
        (name, value.__bases__[0].__name__)
        for module in modules
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == module.__name__
    }

    public = {name for package in PUBLIC for name in import_module(package).__all__}
    assert {name for name, _ in drawn()} <= public | {"ValueError"}
    assert {pair for pair in drawn() if pair != ("ValueError", "Exception")} == {
        (name, base) for name, base in defined if name not in INTERNAL_ERRORS
    }
