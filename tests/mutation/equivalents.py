"""`equivalents.toml`: mutants that are the same program, and why."""

from __future__ import annotations

import tomllib
from difflib import unified_diff
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.mutation.file_mutation import create_mutations, deep_replace

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SOURCE = Path(__file__).resolve().parents[2] / "src"
LIST = Path(__file__).with_name("equivalents.toml")

Change = tuple[str, str, str]
"""The function, the lines that were in it, and those that the mutant has instead."""


def entries() -> set[Change]:
    """What is listed. Each entry gives its reason."""
    listed = tomllib.loads(LIST.read_text()).get("equivalent", [])
    assert all(set(each) == {"function", "was", "now", "why"} for each in listed)
    return {(each["function"], each["was"].strip(), now.strip()) for each in listed for now in each["now"]}


def function(mutant: str) -> str:
    """The function that a mutant changes, such as `protocol.record.Record.expired`."""
    module, _, mangled = mutant.rpartition("__mutmut_")[0].rpartition(".")
    name = mangled.removeprefix("x_") if "ǁ" not in mangled else mangled.removeprefix("xǁ").replace("ǁ", ".")
    return f"{module}.{name}".removeprefix("idempotent_receiver.")


@cache
def change(mutant: str) -> Change:
    """What a mutant changes. A line number would be another after each edit."""
    module = mutant.rpartition(".")[0].replace(".", "/")
    path = next(each for each in (f"src/{module}.py", f"src/{module}/__init__.py") if Path(each).exists())
    return function(mutant), *_sides(get_diff_for_mutant(mutant, path=path).splitlines())


def mistakes(mutants: list[str], verdicts: dict[str, str]) -> list[str]:
    """Entries that fit a mutant that is killed."""
    listed = entries()
    killed = [mutant for mutant in mutants if verdicts.get(mutant, "").startswith("killed")]
    named = {each[0] for each in listed}
    return [f"a test kills {each}" for each in killed if function(each) in named and change(each) in listed]


@cache
def changes(function: str) -> set[Change]:
    """What mutmut changes in a function, without writing its mutants. It makes the same ones of a function alone."""
    path, names = _place(function.split("."))
    module = libcst.parse_module(path.read_text())
    module = module.with_changes(body=[_alone(module.body, names)])
    _, mutations, *_ = create_mutations(str(path), module.code)
    found = set()
    for each in mutations:
        was = each.contained_by_top_level_function
        if isinstance(was, libcst.FunctionDef):
            now = deep_replace(was, each.original_node, each.mutated_node)
            found.add((function, *_sides(unified_diff(_lines(was), _lines(now), lineterm=""))))
    return found


def _sides(diff: Iterable[str]) -> tuple[str, str]:
    """The lines that were in it, and those that are instead. The first two of a diff name its files."""
    lines = list(diff)[2:]
    was, now = ("\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return was, now


def _place(parts: list[str]) -> tuple[Path, list[str]]:
    """The file of a function, and its name there with its class's."""
    root = SOURCE if parts[0] == "app" else SOURCE / "idempotent_receiver"
    files = {n: root.joinpath(*parts[:n]).with_suffix(".py") for n in range(len(parts), 0, -1)}
    last = next(n for n, file in files.items() if file.exists())
    return files[last], parts[last:]


def _alone(body: Sequence[Any], names: list[str]) -> Any:
    """The definition of that name, without its neighbours."""
    kinds = (libcst.FunctionDef, libcst.ClassDef)
    (found,) = (each for each in body if isinstance(each, kinds) and each.name.value == names[0])
    return found.with_deep_changes(found.body, body=[_alone(found.body.body, names[1:])]) if names[1:] else found


def _lines(function: Any) -> list[str]:
    return libcst.Module([function]).code.strip().splitlines()
