"""A DynamoDB with faults, for the tests of packs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.engines.faulty import Faults, faulty_dynamodb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.engines.engine import DynamoDB


@pytest.fixture
def server() -> Iterator[tuple[DynamoDB, Faults]]:
    with faulty_dynamodb() as started:
        yield started


@pytest.fixture
def engine(server: tuple[DynamoDB, Faults]) -> DynamoDB:
    """The store under test, and its tables."""
    return server[0]


@pytest.fixture
def faults(server: tuple[DynamoDB, Faults]) -> Faults:
    """How it answers, and what was sent."""
    return server[1]
