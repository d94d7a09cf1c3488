"""The workload is known before it is sent: by its seed alone, and whatever the order in which it is handled."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from harness.workload.transfers import CHAOS, RUN, WORKFLOW, Kind, generate

if TYPE_CHECKING:
    pass

SEEDS = range(1, 21)
MIXES = {"run": RUN, "chaos": CHAOS, "workflow": WORKFLOW}
LEAST = {"run": 20, "chaos": 20, "workflow": 17}


@pytest.mark.parametrize("more", [0, 40, 480])
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_is_there_and_the_number_is_what_was_asked_for(seed: int, mix: str, more: int) -> None:
    number, shares = LEAST[mix] + more, MIXES[mix].shares
    workload = generate(seed, number, MIXES[mix])
    kinds = Counter(message.kind for message in workload.messages)
    assert len(workload.messages) == len(workload.by_name) == number
    assert kinds == {**{kind: max(1, number // share) for kind, share in shares.items()}, Kind.GOOD: kinds[Kind.GOOD]}
    assert kinds[Kind.GOOD] > 0


def test_a_workload_too_short_for_every_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="N must be at least 20"):
        generate(1, RUN.fewest - 1)
