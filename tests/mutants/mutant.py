"""What a planted bug is: a text of the source, and what it becomes."""

from __future__ import annotations

from dataclasses import dataclass

PROMISES = "tests/test_promises.py"
SCENARIOS = "tests/simulation/test_scenarios_{}.py"
UNIT = "tests/unit/{}.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One bug. `promise` is the number of the promise that it breaks, or 0; `where` is where tests should see it,
    beside the scenarios' tests that name it.
    """

    name: str
    file: str
    old: str
    new: str
    where: tuple[str, ...] = (PROMISES,)
    promise: int = 0
