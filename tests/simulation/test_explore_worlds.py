"""Explores the small worlds of what lies beyond one consumer: shared dicts, other consumers and payloads, and time.

A handler shares one dict among its actions and messages, or is a coroutine; two consumers receive the same messageIds;
two payloads come under one key; a bucket for large results is away; records expire and are deleted; a dead letter is
redriven beside a late duplicate.
"""

from __future__ import annotations

import pytest

from tests.simulation.explore import explored


@pytest.mark.parametrize(
    ("setup", "faults"),
    [
        ("2x1-shares", 1),
        ("2x2-shares", 0),
        ("3x1-consumers", 0),
        ("2x1-payloads", 1),
        ("3x1-payloads", 0),
        ("2x1-http-payloads", 1),
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
