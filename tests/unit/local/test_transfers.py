"""The workload is known before it is sent: by its seed alone, and whatever the order in which it is handled."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from app.transfers import Transfer
from local.workload.transfers import APART, CHAOS, FAILING, RUN, WORKFLOW, Kind, generate, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from local.workload.transfers import TransferMessage

SEEDS = range(1, 21)
MIXES = {"run": RUN, "chaos": CHAOS, "workflow": WORKFLOW}
LEAST = {"run": 20, "chaos": 20, "workflow": 17}


def honest(messages: Iterable[TransferMessage], opening: Mapping[str, int]) -> frozenset[str]:
    """What an honest bookkeeper can post, one after the other, reading the bodies as the application does."""
    balances, posted = dict(opening), set()
    for message in messages:
        if message.kind is Kind.GARBAGE:
            continue
        each = Transfer.model_validate_json(message.body)
        known = each.from_account in balances and each.to_account in balances
        if known and balances[each.from_account] >= each.amount:
            balances[each.from_account] -= each.amount
            balances[each.to_account] += each.amount
            posted.add(message.name)
    return frozenset(posted)


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


@pytest.mark.parametrize("seed", SEEDS)
def test_how_a_message_ends_follows_from_its_kind_and_not_from_the_order(seed: int) -> None:
    workload = generate(seed, 500)
    assert workload.dead_lettered == {message.name for message in workload.messages if message.kind in FAILING}
    for order in (
        workload.messages,
        reversed(workload.messages),
        sorted(workload.messages, key=lambda each: each.body),
    ):
        assert honest(order, workload.opening) == workload.completed == set(workload.by_name) - workload.dead_lettered


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("seed", SEEDS)
def test_the_application_reads_the_bodies_as_the_workload_says(seed: int, mix: str) -> None:
    for message in generate(seed, 200, MIXES[mix]).messages:
        assert kind_of(message.name) is message.kind
        if message.kind is Kind.GARBAGE:
            with pytest.raises(ValueError, match="Transfer"):
                Transfer.model_validate_json(message.body)
        else:
            found = Transfer.model_validate_json(message.body)
            assert found.model_dump(exclude={"receipt"}) == message.transfer


@pytest.mark.parametrize("seed", SEEDS)
def test_what_kills_a_batch_is_sent_far_apart(seed: int) -> None:
    """Ten messages are the most that the local cloud puts into a batch."""
    places = [place for place, message in enumerate(generate(seed, 500).messages) if message.kind in APART]
    assert all(after - before > 10 for before, after in pairwise(places))


def test_a_workload_too_short_for_every_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="N must be at least 20"):
        generate(1, RUN.fewest - 1)
