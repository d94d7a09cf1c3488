"""`equivalents.toml`: mutants that are the same program, and why."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant

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
    lines = get_diff_for_mutant(mutant, path=path).splitlines()[2:]
    was, now = ("\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return function(mutant), was, now


def mistakes(mutants: list[str], verdicts: dict[str, str]) -> list[str]:
    """Entries that fit no mutant, or one that is killed."""
    listed = entries()
    named = {each[0] for each in listed}
    fitting = {mutant: change(mutant) for mutant in mutants if function(mutant) in named}
    gone = listed - set(fitting.values())
    killed = [
        mutant
        for mutant, theirs in fitting.items()
        if theirs in listed and verdicts.get(mutant, "").startswith("killed")
    ]
    return [f"no mutant fits {each}" for each in sorted(gone)] + [f"a test kills {mutant}" for mutant in killed]
