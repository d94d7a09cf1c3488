"""The table of a batch's items, against what the rest of `batch/` does with it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from idempotent_receiver import MemoryStore, batch
from idempotent_receiver.batch.items import TABLE, Do, Event, Stage
from idempotent_receiver.batch.progress import LETS_GO
from idempotent_receiver.batch.receiver import Batch
from idempotent_receiver.batch.settings import Settings
from idempotent_receiver.clock import Deadline
from tests.manual_clock import ManualClock
from tests.unit.batch.at_once import AtOnce

FIRST = {Stage.UNKEYED, Stage.WAITING, Stage.KEYLESS}


def after(stage: Stage) -> set[Stage]:
    """The stages that may follow."""
    return {step.stage for (before, _), step in TABLE.items() if before is stage}


def test_what_cannot_happen_is_refused_by_an_error_that_names_both() -> None:
    with pytest.raises(AssertionError, match="claimed cannot happen to an item that is ended"):
        TABLE[Stage.ENDED, Event.CLAIMED]


def test_every_stage_is_reached_and_left_towards_an_end() -> None:
    """Nothing waits for an event that nobody sends, however long the way. What has ended is told once, and stays."""
    assert after(Stage.ENDED) == set()
    assert all((step.do is Do.END) == (step.stage is Stage.ENDED) for step in TABLE.values())
    reached, fresh = set[Stage](), set(FIRST)
    while fresh:
        reached |= fresh
        fresh = {stage for before in fresh for stage in after(before)} - reached
    assert reached == set(Stage)

    ending = {Stage.ENDED}
    while more := {stage for stage in Stage if after(stage) & ending} - ending:
        ending |= more
    assert ending == set(Stage)


def test_every_event_is_sent_by_some_module_and_every_action_is_done_by_one() -> None:
    """No name is left that nothing uses, and no action that nobody does."""
    texts = [each.read_text() for each in Path(batch.__file__).parent.glob("*.py") if each.name != "items.py"]
    assert {event for _, event in TABLE} == {Event[each] for each in re.findall(r"\bEvent\.([A-Z_]+)", "".join(texts))}
    assert {event for _, event in TABLE} == set(Event)
    made = Batch([], Settings(store=MemoryStore(), executor=AtOnce()), Deadline.after(ManualClock(), 30_000))
    assert {step.do for step in TABLE.values()} == set(Do)
    assert made._progress.actions.keys() == set(Do) - {Do.NOTHING}


def test_whatever_stage_the_batch_stops_or_answers_in_the_table_lets_it() -> None:
    """`Progress` stops what has not started, and `Runs` what is ready. The answer leaves before the deadline, when no
    handler runs: what then waits for the store or SQS ends.
    """
    stoppable = {stage for stage in Stage if (stage, Event.STOPPED) in TABLE}
    assert stoppable == {*LETS_GO, Stage.READY}
    assert {stage for stage in Stage if (stage, Event.TIME_OVER) in TABLE} == set(Stage) - stoppable - {Stage.ENDED}


def test_only_what_was_claimed_is_completed_failed_or_released() -> None:
    """A settlement needs a claim, and a claim is had by one event alone."""
    claiming = {pair for pair, step in TABLE.items() if step.stage is Stage.HELD}
    assert {event for _, event in claiming} == {Event.CLAIMED}
    settled = {Stage.READY, Stage.COMPLETING, Stage.FAILING, Stage.RELEASING}
    into = {
        (before, event) for (before, event), step in TABLE.items() if step.stage in settled and before not in settled
    }
    assert {before if before is Stage.HELD else event for before, event in into} == {Stage.HELD, Event.CLAIMED_LATE}
