"""The worlds that nobody had chosen: each occurs, beside each other one, and all keep the invariants.

The bugs of `tests/mutants/catalogue/worlds.txt` are planted against this file: each of them breaks one of these worlds.
"""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.simulation.casts import HABITS
from tests.simulation.invariants import Violation
from tests.simulation.plan import Plan
from tests.simulation.simulation import Simulation

if TYPE_CHECKING:
    from collections.abc import Iterable

SEEDS: dict[str, Iterable[int]] = {"few": (*range(20), 4929), "more": range(20, 150)}
"""In 4929 a wall clock stands still, and by it alone a handler would start after its claim had ended."""
WORLDS = {
    **{f"its function has the habit {habit!r}": lambda plan, habit=habit: habit in plan.habits for habit in HABITS},
    "on a FIFO queue": lambda plan: plan.fifo,
    "some processes claim nothing": lambda plan: plan.unclaimed > 0,
    "two functions have one table": lambda plan: plan.functions == 2,
    "one function has two queues": lambda plan: plan.functions < plan.queues,
    "some functions are coroutines": lambda plan: plan.asynchronous > 0,
    "two payloads come under one key": lambda plan: plan.keyed,
    "some keys cannot be used": lambda plan: plan.unusable > 0,
    "some results are large": lambda plan: "large" in plan.forms,
    "records expire": lambda plan: plan.expires,
    "TTL deletes": lambda plan: plan.deletions > 0,
    "a clock stands still": lambda plan: plan.still > 0,
    "duplicates come late": lambda plan: plan.late > 0,
    "dead letters are redriven": lambda plan: plan.redrives > 0,
    "a new version is deployed": lambda plan: plan.deploy_at is not None,
}


def test_each_world_occurs_beside_each_other() -> None:
    plans = [Plan(Random(seed), seed) for seed in range(1_500)]
    never = [
        (one, other)
        for one, other in combinations(WORLDS, 2)
        if not any(WORLDS[one](plan) and WORLDS[other](plan) for plan in plans)
    ]

    assert never == [
        ("two functions have one table", "one function has two queues"),
    ]


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_first_worlds_keep_the_invariants(seeds: str) -> None:
    for seed in SEEDS[seeds]:
        found = None
        try:
            Simulation(seed).run()
        except Violation as violation:
            found = f"seed {seed}: {violation}"

        assert found is None
