"""Random worlds of calls and of workflows keep the invariants, and everybody is answered in the end.

`make mutants` plants bugs that these seeds find; `make simulate KIND=calls` and `KIND=workflow` run more of them.
"""

from __future__ import annotations

import pytest

from tests.simulation.call_monitor import ANSWERS
from tests.simulation.plan import CLOCKS_OFF_SECONDS
from tests.simulation.simulate import played


@pytest.mark.parametrize(("kind", "seeds"), [("calls", 30), ("workflow", 30), ("calls", 150), ("workflow", 100)])
def test_random_worlds_keep_the_invariants_and_settle(kind: str, seeds: int) -> None:
    totals, failures = played(0, seeds, CLOCKS_OFF_SECONDS, kind=kind)

    assert failures == []
    assert totals.counts["requests"] > 10 * seeds
    answers = [place for place in totals.reached.worlds if place.startswith((*(f"{name}: " for name in ANSWERS), "tr"))]
    assert len(answers) >= {"calls": 16, "workflow": 8}[kind]
