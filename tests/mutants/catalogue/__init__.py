"""The planted bugs, in files by the part of the library that they are planted in:

    == batch.runs:Runs._note                         the module and the function, class or constant in it
    the longest run is ignored | 0 | unit/batch/runs  its name, the promise that it breaks or 0, the tests that see it
    - max(self.longest, seconds)                    this text, which is there once
    + 0.0                                            becomes this, or nothing; more such pairs may follow

Tests are named without "test_" and ".py", or by a name of `GROUPS`; "scenarios" are only the scenarios' tests that name
the bug. In a text that is looked for, white space is any white space, and "…" is anything.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tests.mutants.mutant import Mutant

if TYPE_CHECKING:
    from collections.abc import Iterator

FUNCTION = ("unit/function/calls", "unit/function/transactions", "unit/function/deadlines")
GROUPS = {
    "scenarios": (),
    "function": FUNCTION,
    "calls": (*FUNCTION, "unit/http/endpoint"),
    "redrive": tuple(
        f"unit/operations/dead_letters/{name}" for name in ("redrive", "crashes", "selection", "queue", "following")
    ),
}


def mutants_of(text: str) -> Iterator[Mutant]:
    """The planted bugs of a file's text. Raises ValueError where it has another form."""
    address, begun = "", None
    for line in text.splitlines():
        mark, _, rest = line.partition(" ")
        if not mark or mark == "#":
            continue
        if mark == "==":
            address = rest
        elif mark not in {"-", "+"}:
            if begun is not None:
                yield begun
            name, promise, where = line.split(" | ")
            begun = Mutant(name, address, [], int(promise), tuple(_tests(where)))
        elif begun is None or (mark == "+" and not begun.edits):
            raise ValueError(f"{line!r} belongs to no planted bug")
        elif mark == "+":
            old, new = begun.edits.pop()
            begun.edits.append((old, rest if new is None else f"{new}\n{rest}"))
        else:
            begun.edits.append((rest, None))
    if begun is not None:
        yield begun


def _tests(where: str) -> Iterator[str]:
    for name in where.split():
        for each in GROUPS.get(name, (name,)):
            path = PurePosixPath("tests", each)
            yield str(path.with_name(f"test_{path.name}.py"))


MUTANTS = [
    mutant
    for file in sorted(Path(__file__).parent.glob("*.txt"))
    for mutant in mutants_of(file.read_text(encoding="utf-8"))
]
