"""Messages of a FIFO group take effect in order, or are delivered again in order."""

from __future__ import annotations

import itertools
import json
from functools import partial

import pytest

from idempotent_receiver import PermanentError, RetryLater
from tests.simulation.faults import works
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, FIFO, sqs_record

DEAD_LETTERS_FIFO = DEAD_LETTERS + ".fifo"

record = partial(sqs_record, queue=FIFO)


def groups(receives: int = 1, **sizes: int) -> list[dict[str, object]]:
    """`groups(g=3, h=1)`: g1 g2 g3 h1."""
    places = [(name, place) for name, size in sizes.items() for place in range(1, size + 1)]
    return [record(f"{name}{place}", group=name, receives=receives) for name, place in places]


def keyed(*messages: str) -> list[dict[str, object]]:
    """`keyed("g:a", "h:")`: in group g a message 1 of key a, in group h a message 2 without a key."""
    parts = [message.split(":") for message in messages]
    bodies = [json.dumps({"k": key} if key else {}) for _, key in parts]
    return [
        record(str(place), body, group=group)
        for place, (body, (group, _)) in enumerate(zip(bodies, parts, strict=True), 1)
    ]


@pytest.mark.scenario("S56", mutant="a claimed message runs although its group has stopped")
def test_a_group_stops_at_its_failure_and_other_groups_go_on(either: Scenario) -> None:
    assert either.answer(either.taking(0, RuntimeError, "g2"), *groups(g=5, h=2)) == ["g2", "g3", "g4", "g5"]
    assert sorted(either.keys_run) == ["g1", "g2", "h1", "h2"]
    assert either.live_claims() == []


@pytest.mark.parametrize("concurrency", [1, 2, 5, 10])
def test_within_a_group_nothing_ever_overlaps_and_the_order_holds(scenario: Scenario, concurrency: int) -> None:
    assert scenario.answer(scenario.taking(1), *groups(g=4, h=3, i=3), concurrency=concurrency) == []
    for group in "ghi":
        runs = [run for run in scenario.runs if run.key[0] == group]
        assert [run.key for run in runs] == sorted(run.key for run in runs)
        assert all(run.ended <= following.started for run, following in itertools.pairwise(runs))
    assert scenario.world.now == pytest.approx({1: 10, 2: 6, 5: 4, 10: 4}[concurrency], abs=1.1)


@pytest.mark.scenario("S57", mutant="behind a failure what is done comes again")
@pytest.mark.parametrize("known", ["before", "after"])
def test_a_duplicate_of_a_completed_message_behind_a_failure_is_acknowledged(scenario: Scenario, known: str) -> None:
    """It is already done, so it overtakes nothing, whether this is known before the failure or only afterwards."""
    scenario.answer(scenario.taking(), *groups(g=1))
    fresh, between = partial(record, group="g"), [] if known == "before" else groups(h=24)
    records = [fresh("g2"), *between, fresh("g1", receives=2 if known == "before" else 1), fresh("g3")]
    scenario.store.next("insert", works, lambda call: [scenario.world.sleep(1), call.act()][1])

    assert scenario.answer(scenario.taking(0, RuntimeError, "g2"), *records) == ["g2", "g3"]
    assert [key for key in scenario.keys_run if key.startswith("g")] == ["g1", "g2"]


def test_a_failed_group_has_one_visibility_so_that_it_is_delivered_again_in_order(scenario: Scenario) -> None:
    behind = ["g2", "g3", "h1", "h2", "h3"]

    assert (
        scenario.answer(scenario.taking(0, RuntimeError, "g2", "h1"), *groups(3, g=3, h=3), queue_client=True) == behind
    )
    assert sorted(scenario.sqs.visibilities) == behind
    assert len({scenario.sqs.visibilities[id] for id in ("g2", "g3")}) == 1
    assert len({scenario.sqs.visibilities[id] for id in ("h1", "h2", "h3")}) == 1


@pytest.mark.parametrize(("confirmed", "answer"), [(True, []), (False, ["g2", "g3"])])
def test_a_dead_letter_blocks_its_group_unless_it_is_confirmed(
    scenario: Scenario, confirmed: bool, answer: list[str]
) -> None:
    if not confirmed:
        scenario.sqs.deny.add("send_message")
    refusing = scenario.taking(0, PermanentError, "g2")

    assert scenario.answer(refusing, *groups(g=3), dead_letter_queue=DEAD_LETTERS_FIFO) == answer
    assert scenario.keys_run == ["g1", "g2", *(["g3"] if confirmed else [])]
    assert list(scenario.dead_letters()) == (["g2"] if confirmed else [])


@pytest.mark.scenario("S68", mutant="a deduplication id that a second send shares")
def test_a_dead_letter_on_a_fifo_queue_is_not_dropped_when_it_is_sent_again_within_five_minutes(
    scenario: Scenario,
) -> None:
    """Each send has its own deduplication id, made of message and receive."""
    refusing = scenario.taking(0, PermanentError, "g1")
    for receives in (1, 2):
        assert scenario.answer(refusing, *groups(receives, g=1), dead_letter_queue=DEAD_LETTERS_FIFO) == []

    assert scenario.world.now < 300
    assert [sent["MessageDeduplicationId"] for sent in scenario.sqs.sent] == ["g1-1", "g1-2"]
    assert [sent["MessageGroupId"] for sent in scenario.sqs.sent] == ["g", "g"]


@pytest.mark.scenario("S67", mutant="whoever waits for another of its key is never told")
@pytest.mark.parametrize(
    ("messages", "concurrency"), [(["g:a", "h:b", "g:a"], 1), (["g:a", "h:b", "g:b", "h:a"], 4)], ids=["waits", "cross"]
)
def test_a_message_that_waits_for_another_of_its_key_occupies_no_thread(
    by_key: Scenario, messages: list[str], concurrency: int
) -> None:
    assert by_key.answer(by_key.taking(0.1), *keyed(*messages), concurrency=concurrency) == []
    assert sorted(by_key.keys_run) == ["a", "b"]
    assert by_key.world.now < 1


def test_messages_without_a_usable_key_fail_one_after_another_without_waiting_for_anything(by_key: Scenario) -> None:
    assert by_key.answer(by_key.taking(), *groups(g=3), seconds=30) == ["g1", "g2", "g3"]
    assert by_key.world.now < 0.1


@pytest.mark.parametrize(
    ("options", "answer", "keys"),
    [({"dead_letter_queue": DEAD_LETTERS_FIFO}, [], "abc"), ({}, ["2", "3"], "ab")],
    ids=["confirmed", "no dead letter"],
)
def test_an_unusable_key_stops_its_group_until_its_dead_letter_is_confirmed(
    by_key: Scenario, options: dict, answer: list[str], keys: str
) -> None:
    assert by_key.answer(by_key.taking(1), *keyed("g:a", "g:", "g:c", "h:b"), **options) == answer
    assert by_key.keys_run == list(keys)
    assert list(by_key.dead_letters()) == (["2"] if options else [])


def test_redelivered_messages_keep_their_place_among_fresh_ones(scenario: Scenario) -> None:
    assert scenario.answer(scenario.taking(), *groups(2, g=1), *groups(g=80)[1:]) == []
    assert scenario.keys_run == [f"g{n}" for n in range(1, 81)]


def test_a_group_that_the_deadline_cuts_comes_again_from_there(scenario: Scenario) -> None:
    assert scenario.answer(scenario.taking(2), *groups(g=4), seconds=7, concurrency=2) == ["g3", "g4"]
    assert scenario.keys_run == ["g1", "g2"]


def test_a_group_id_on_a_standard_queue_orders_nothing(either: Scenario) -> None:
    """It names a tenant of a fair queue: its messages run side by side, and a failure or a delay stops none of them."""
    records = [sqs_record(id, group="tenant") for id in "0123"]
    failing = either.taking(1, RetryLater("the shop is closed", seconds=3600), "1")

    assert either.answer(failing, *records, concurrency=4, queue_client=True) == ["1"]
    assert sorted(either.keys_run) == list("0123")
    assert either.world.now < 2
    assert either.sqs.visibilities == {"1": 3600}


def test_thousands_of_messages_behind_a_failure_are_answered_without_delay(scenario: Scenario) -> None:
    assert len(scenario.answer(scenario.taking(0, RuntimeError, "g1"), *groups(g=3000))) == 3000
    assert scenario.world.now < 0.2
    assert scenario.live_claims() == []


@pytest.mark.parametrize("done", [True, False])
def test_a_group_that_is_stopped_stops_no_other_through_a_key_that_both_have(by_key: Scenario, done: bool) -> None:
    first, behind, elsewhere = keyed("g:", "g:a", "h:a")
    if done:
        by_key.answer(by_key.taking(), elsewhere, queue_client=True)

    assert by_key.answer(by_key.taking(), first, behind, elsewhere, after=1.0, queue_client=True) == ["1", "2"]
    assert by_key.keys_run == ["a"]
