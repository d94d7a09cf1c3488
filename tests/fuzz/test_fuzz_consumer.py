"""Any event, any table, any handler: the answer is valid, and acknowledges only what is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver.sqs.message import InvalidEvent
from tests.fuzz import hostile
from tests.fuzz.consumers import received, setups
from tests.fuzz.flaky_store import NO_RECORD, FlakyStore, fault_sequences
from tests.fuzz.oracle import check, check_safety

if TYPE_CHECKING:
    from tests.fuzz.consumers import Setup

# A failing example may be long.
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")

tables = st.lists(hostile.items, max_size=6)


@given(setups, hostile.batches(), tables)
def test_whatever_sqs_delivers_is_answered_correctly(setup: Setup, batch: list[Any], items: list[Any]) -> None:
    """Hostile messages of the right form: none raises, and none is acknowledged unless it is done."""
    check(received(setup, {"Records": batch}, items))


@given(setups, hostile.events, tables)
def test_an_invalid_event_is_refused_before_anything_happens(setup: Setup, event: Any, items: list[Any]) -> None:
    """An event is answered like a batch, or raises only InvalidEvent, without side effects."""
    seen = received(setup, event, items)

    if isinstance(seen.raised, InvalidEvent):
        assert seen.runs == []
        assert seen.queues.calls == []
        assert seen.store.items == seen.before
    else:
        check(seen)


@given(setups, hostile.batches(), tables)
def test_a_store_that_does_not_return_the_record_is_read(setup: Setup, batch: list[Any], items: list[Any]) -> None:
    """Without the record that a conflict has found, the answer is still correct: what is completed is acknowledged."""
    check(received(setup, {"Records": batch}, items, lambda store: FlakyStore(store, [NO_RECORD])))


@given(setups, hostile.batches(), tables, fault_sequences)
def test_a_flaky_store_makes_no_answer_incorrect(
    setup: Setup, batch: list[Any], items: list[Any], fault_sequences: list[str]
) -> None:
    """Whatever a store leaves unknown, refuses or raises: only what is done is acknowledged, and nothing runs twice."""
    check_safety(received(setup, {"Records": batch}, items, lambda store: FlakyStore(store, fault_sequences)))
