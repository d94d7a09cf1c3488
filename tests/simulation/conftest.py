"""What the scenarios share."""

from __future__ import annotations

import pytest

from idempotent_receiver import body_field
from tests.simulation.scenario import Scenario


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


@pytest.fixture
def by_key() -> Scenario:
    """The same, for messages whose key is their body's `k`."""
    return Scenario(namespace="n", key=body_field("k"))


@pytest.fixture(params=["any", "transaction"])
def either(request: pytest.FixtureRequest) -> Scenario:
    """With claims, and without."""
    return Scenario(effects=request.param)
