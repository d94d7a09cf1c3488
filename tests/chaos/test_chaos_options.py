"""What a run of chaos is told: whose effects its workers declare."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chaos.__main__ import chosen
from tests.chaos.settings import Cast, Effects


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
    effects = chosen(said, "EFFECTS", Effects)
    assert [effects.of_worker(number).value for number in (1, 2)] == of_workers


@pytest.mark.parametrize(
    ("name", "among", "choices"),
    [("EFFECTS", Effects, "any, transaction, mixed"), ("CAST", Cast, "standard, fifo, workflow")],
)
def test_another_choice_is_refused_with_those_there_are(name: str, among: type[Any], choices: str) -> None:
    with pytest.raises(ValueError, match=f"{name} is {choices}; it is 'none'"):
        chosen({name: "none"}, name, among)


def test_a_worker_has_none_that_a_consumer_would_not_take() -> None:
    """Mixed is for runs: a worker that was told so would not start."""
    assert Effects.MIXED not in {each.of_worker(number) for each in Effects for number in (1, 2)}
