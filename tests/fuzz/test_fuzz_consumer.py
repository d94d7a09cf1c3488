"""Any event, any table, any handler: the answer is well formed, and acknowledges nothing that is not done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from idempotent_receiver.sqs.message import InvalidEvent
from tests.fuzz import hostile
from tests.fuzz.consumers import received, setups
from tests.fuzz.flaky_store import MUTE, FlakyStore, fault_sequences
from tests.fuzz.oracle import judge, judge_safety

if TYPE_CHECKING:
    from tests.fuzz.consumers import Setup

# A failing example may be long; it is still the example.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

tables = st.lists(hostile.items, max_size=6)


@given(setups, hostile.batches(), tables)
def test_whatever_sqs_delivers_is_answered_truly(setup: Setup, batch: list[Any], items: list[Any]) -> None:
    """Messages of the right form, at their worst: none raises, none is acknowledged unless it is done."""
    judge(received(setup, {"Records": batch}, items))


@given(setups, hostile.events, tables)
def test_what_is_no_batch_is_refused_before_anything_happens(setup: Setup, event: Any, items: list[Any]) -> None:
    """An event is answered like a batch, or raises InvalidEvent and nothing else, with no trace."""
    seen = received(setup, event, items)

    if isinstance(seen.raised, InvalidEvent):
        assert seen.runs == []
        assert seen.queues.calls == []
        assert seen.store.items == seen.before
    else:
        judge(seen)


@given(setups, hostile.batches(), tables)
def test_a_store_that_does_not_say_what_is_there_is_asked(setup: Setup, batch: list[Any], items: list[Any]) -> None:
    """Without what a conflict has found, the answer is as true as with it: a done message is acknowledged."""
    judge(received(setup, {"Records": batch}, items, lambda store: FlakyStore(store, [MUTE])))


@given(setups, hostile.batches(), tables, fault_sequences)
def test_a_store_in_a_mood_makes_no_answer_untrue(
    setup: Setup, batch: list[Any], items: list[Any], fault_sequences: list[str]
) -> None:
    """Whatever a store leaves open, refuses or raises: nothing is acknowledged that is not done, nothing runs twice."""
    judge_safety(received(setup, {"Records": batch}, items, lambda store: FlakyStore(store, fault_sequences)))


@pytest.mark.parametrize(
    "ending",
    [
        "completed",
        "duplicate of a completed message",
        "in progress elsewhere",
        "not started: no time left, or an earlier message of its group failed",
        "failed, to be tried again",
        "failed for good",
        "failed for good and sent to the dead-letter queue",
        "not run: its record is not one that this version knows",
    ],
)
def test_the_examples_reach_every_ending(ending: str) -> None:
    """Where all that is tried were refused at the door, the tests above would say little."""
    tried = st.tuples(setups, hostile.batches(), tables)
    once = settings(max_examples=500, phases=[Phase.generate], suppress_health_check=list(HealthCheck))

    find(tried, lambda one: ending in received(one[0], {"Records": one[1]}, one[2]).logs.texts, settings=once)
