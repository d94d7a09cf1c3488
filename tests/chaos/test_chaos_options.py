"""What a run of chaos is told: whose effects its workers declare."""

from __future__ import annotations

import pytest

from tests.chaos.__main__ import effects_of
from tests.chaos.settings import Effects


@pytest.mark.parametrize(
    ("said", "of_workers"),
    [
        ({}, ["any", "any"]),
        ({"EFFECTS": ""}, ["any", "any"]),
        ({"EFFECTS": "transaction"}, ["transaction", "transaction"]),
        ({"EFFECTS": "mixed"}, ["any", "transaction"]),
    ],
)
def test_all_workers_claim_or_none_or_every_other_one(said: dict[str, str], of_workers: list[str]) -> None:
    effects = effects_of(said)
    assert [effects.of_worker(number).value for number in (1, 2)] == of_workers


def test_other_effects_are_refused_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="EFFECTS is any, transaction, mixed; it is 'none'"):
        effects_of({"EFFECTS": "none"})


def test_a_worker_has_none_that_a_consumer_would_not_take() -> None:
    """Mixed is for runs: a worker that was told so would not start."""
    assert Effects.MIXED not in {each.of_worker(number) for each in Effects for number in (1, 2)}
