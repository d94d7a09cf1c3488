"""Explores the small worlds of what lies beyond one consumer: shared dicts, other consumers and payloads, and time.

A handler shares one dict among its actions and messages, or is a coroutine; two consumers receive the same messageIds;
two payloads come under one key; a bucket for large results is away; records expire and are deleted; a dead letter is
redriven beside a late duplicate.
"""

from __future__ import annotations

import pytest

from tests.simulation import invariants
from tests.simulation.explore import explored
from tests.simulation.search import Search
from tests.simulation.setups import SETUPS
from tests.simulation.test_explore_planted import replaces_what_it_finds


@pytest.mark.parametrize(
    ("setup", "faults"),
    [
        ("2x1-shares", 1),
        ("2x2-shares", 0),
        ("3x1-consumers", 0),
        ("2x1-payloads", 1),
        ("3x1-payloads", 0),
        ("2x1-http-payloads", 1),
        ("2x1-http-expires", 0),
        ("2x1-http-large", 0),
        ("2x1-http-expires", 1),
        ("2x1-http-large", 1),
        ("2x1-coroutine", 1),
        ("2x1-coroutine-transaction", 1),
        ("3x1-redriven", 1),
    ],
)
def test_every_schedule_keeps_the_invariants(setup: str, faults: int) -> None:
    found = explored(setup, faults, seconds=300)

    assert found.violation is None
    assert found.finished


def test_done_and_dead_lettered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its own rule, where leases are not looked at: a worker that was thought dead completes what another one has
    dead-lettered.
    """
    replaces_what_it_finds(monkeypatch)
    monkeypatch.setattr(invariants, "live", lambda item, now_ms: False)
    monkeypatch.setattr(invariants, "check_progress", lambda worker, failed: None)

    found = Search(SETUPS["2x1-letters"], 2, seconds=60).run()

    assert found.violation is not None
    assert found.violation.rule == "BOTH", found.violation
