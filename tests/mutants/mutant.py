"""What a planted bug is: an address in the library, and what changes there."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.mutants.change import Change

PROMISES = ("tests/test_promises.py",)
CALLED = ("tests/simulation/test_simulate_calls.py",)
EXPLORED = ("tests/simulation/test_explore_worlds.py",)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bug. `at` is the module and the qualified name of a function or of a constant: "protocol.store:record_id".

    `promise` is the number of the promise that it breaks, or 0. `where` are the files whose tests should see it, beside
    the scenarios' tests that name it; where it is empty, those alone.
    """

    at: str
    change: Change
    _: KW_ONLY
    promise: int = 0
    where: tuple[str, ...] = PROMISES
    name: str = ""


def unit(*names: str) -> tuple[str, ...]:
    """Files of unit tests, by what they test: "clock", "batch/executor"."""
    paths = [PurePosixPath("tests/unit", name) for name in names]
    return tuple(str(path.with_name(f"test_{path.name}.py")) for path in paths)


def simulated(*names: str) -> tuple[str, ...]:
    """Files of scenarios that run in the simulation."""
    return tuple(f"tests/simulation/test_scenarios_{name}.py" for name in names)
