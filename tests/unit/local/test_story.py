"""The story is known before it is played: by its seed alone, and whatever the order in which it is handled."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise

import pytest

from app.transfers import Transfer
from local.story import APART, FEWEST, SHARES, Kind, play_books, tell

SEEDS = range(1, 21)
DYING = {Kind.GARBAGE, Kind.OVERDRAWN, Kind.UNKNOWN}


def test_the_same_seed_tells_the_same_story() -> None:
    assert tell(7, 100) == tell(7, 100)
    assert tell(7, 100) != tell(8, 100)


@pytest.mark.parametrize("number", [FEWEST, 60, 500])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_kind_is_there_and_the_number_is_what_was_asked_for(seed: int, number: int) -> None:
    story = tell(seed, number)
    kinds = Counter(part.kind for part in story.parts)
    assert len(story.parts) == len(story.kinds) == number
    assert kinds == {**{kind: max(1, number // share) for kind, share in SHARES.items()}, Kind.GOOD: kinds[Kind.GOOD]}
    assert kinds[Kind.GOOD] > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_how_a_message_ends_follows_from_its_kind_and_not_from_the_order(seed: int) -> None:
    story = tell(seed, 500)
    assert story.completed == {part.name for part in story.parts if part.kind not in DYING}
    assert story.dead_lettered == {part.name for part in story.parts if part.kind in DYING}
    for order in (reversed(story.parts), sorted(story.parts, key=lambda part: part.body)):
        assert play_books(order, story.opening) == story.completed


@pytest.mark.parametrize("seed", SEEDS)
def test_the_application_reads_the_bodies_as_the_story_does(seed: int) -> None:
    for part in tell(seed, 200).parts:
        if part.kind is Kind.GARBAGE:
            with pytest.raises(ValueError, match="Transfer"):
                Transfer.model_validate_json(part.body)
        else:
            assert Transfer.model_validate_json(part.body).transfer_id == part.name


@pytest.mark.parametrize("seed", SEEDS)
def test_what_kills_a_batch_is_sent_far_apart(seed: int) -> None:
    """Ten messages are the most that the local cloud puts into a batch."""
    places = [place for place, part in enumerate(tell(seed, 500).parts) if part.kind in APART]
    assert all(after - before > 10 for before, after in pairwise(places))


def test_a_story_without_kills_has_none_and_names_of_its_own() -> None:
    story = tell(1, 100, prefix="ab12-", kills=False)
    assert not {part.kind for part in story.parts} & {Kind.KILLED_BEFORE, Kind.KILLED_AFTER}
    assert all(name.startswith("ab12-") for name in [*story.kinds, *story.opening])
    assert len(story.parts) == 100


def test_a_story_without_http_asks_for_nothing_over_it() -> None:
    assert Kind.POSTED in tell(1, 100).kinds.values()
    assert Kind.POSTED not in tell(1, 100, http=False).kinds.values()


def test_payer_and_payee_are_known_of_what_can_be_read() -> None:
    story = tell(3, 100)
    good = next(part for part in story.parts if part.kind is Kind.GOOD)
    transfer = json.loads(good.body)
    assert story.sides[good.name] == (transfer["from_account"], transfer["to_account"])
    assert not {part.name for part in story.parts if part.kind is Kind.GARBAGE} & set(story.sides)


def test_a_story_too_short_for_every_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="N must be at least 20"):
        tell(1, FEWEST - 1)
