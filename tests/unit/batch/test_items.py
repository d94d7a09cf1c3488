"""The table of a batch's items: every pair of a stage and an event is either in it or refused."""

from __future__ import annotations

from itertools import product

import pytest

from idempotent_receiver.batch.items import TABLE, Do, Event, Stage

FIRST = {Stage.UNKEYED, Stage.WAITING, Stage.KEYLESS}


def after(stage: Stage) -> set[Stage]:
    """The stages that may follow."""
    return {step.stage for (before, _), step in TABLE.items() if before is stage}


@pytest.mark.parametrize(("stage", "event"), [*product(Stage, Event)])
def test_every_pair_is_in_the_table_or_refused(stage: Stage, event: Event) -> None:
    """By an error that names both."""
    if (stage, event) in TABLE:
        step = TABLE[stage, event]
        assert (step.do is Do.END) == (step.stage is Stage.ENDED)
    else:
        with pytest.raises(AssertionError, match=f"{event} cannot happen to an item that is {stage}"):
            TABLE[stage, event]


def test_every_stage_is_reached_and_left_towards_an_end() -> None:
    """Nothing waits for an event that nobody sends, however long the way. What has ended stays as it is."""
    assert after(Stage.ENDED) == set()
    reached, fresh = set[Stage](), set(FIRST)
    while fresh:
        reached |= fresh
        fresh = {stage for before in fresh for stage in after(before)} - reached
    assert reached == set(Stage)

    ending = {Stage.ENDED}
    while more := {stage for stage in Stage if after(stage) & ending} - ending:
        ending |= more
    assert ending == set(Stage)


def test_time_over_ends_what_waits_for_an_answer() -> None:
    """The answer leaves before the deadline. What had not started was stopped before, and no handler runs then."""
    over = {stage for stage in Stage if (stage, Event.TIME_OVER) in TABLE}
    assert over == set(Stage) - {*FIRST, Stage.HELD, Stage.READY, Stage.ENDED}


def test_every_event_and_every_action_has_its_place() -> None:
    """No name is left that nothing uses."""
    assert {event for _, event in TABLE} == set(Event)
    assert {step.do for step in TABLE.values()} == set(Do)


def test_only_what_was_claimed_is_completed_failed_or_released() -> None:
    """A settlement needs a claim, and a claim is had by one event alone."""
    claiming = {pair for pair, step in TABLE.items() if step.stage is Stage.HELD}
    assert claiming == {(stage, Event.CLAIMED) for stage in (Stage.ASKED, Stage.COMPLETING)}
    settled = {Stage.READY, Stage.COMPLETING, Stage.STORING, Stage.FAILING, Stage.RELEASING}
    into = {
        (before, event) for (before, event), step in TABLE.items() if step.stage in settled and before not in settled
    }
    assert into == {(Stage.HELD, Event.TURN), (Stage.HELD, Event.STOPPED), (Stage.ASKED, Event.CLAIMED_LATE)}
