"""Messages of a FIFO group take effect in order, or are delivered again in order."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest

from idempotent_receiver import Message, PermanentError, body_field
from tests.simulation.faults import works
from tests.simulation.scenario import Scenario
from tests.simulation.world import DEAD_LETTERS, FIFO, sqs_record

DEAD_LETTERS_FIFO = DEAD_LETTERS + ".fifo"

record = partial(sqs_record, queue=FIFO)


def failing(
    scenario: Scenario, *ids: str, seconds: float = 0.0, error: type[Exception] = RuntimeError
) -> Callable[..., None]:
    def handle(body: dict, message: Message) -> None:
        scenario.world.sleep(seconds)
        if message.id in ids:
            raise error

    return handle


def groups(**sizes: int) -> list[dict[str, object]]:
    """`groups(g=3, h=1)`: g1 g2 g3 h1."""
    return [record(f"{name}{place}", group=name) for name, size in sizes.items() for place in range(1, size + 1)]


@pytest.mark.scenario("S56", mutant="a claimed message runs although its group has stopped")
def test_a_group_stops_at_its_failure_and_other_groups_go_on(scenario: Scenario) -> None:
    """The second of five fails: it and the three behind it are delivered again; the other group is completed."""
    assert scenario.answer(failing(scenario, "g2"), *groups(g=5, h=2)) == ["g2", "g3", "g4", "g5"]
    assert sorted(scenario.keys_run) == ["g1", "g2", "h1", "h2"]
    assert scenario.live_claims() == []


@pytest.mark.parametrize("concurrency", [1, 2, 5, 10])
def test_within_a_group_nothing_ever_overlaps_and_the_order_holds(scenario: Scenario, concurrency: int) -> None:
    """Whatever the concurrency; other groups run alongside."""
    assert scenario.answer(failing(scenario, seconds=1), *groups(g=4, h=3, i=3), concurrency=concurrency) == []
    for group in "ghi":
        runs = [run for run in scenario.runs if run.key[0] == group]
        assert [run.key for run in runs] == sorted(run.key for run in runs)
        assert all(run.ended <= following.started for run, following in itertools.pairwise(runs))
    assert scenario.world.now == pytest.approx({1: 10, 2: 6, 5: 4, 10: 4}[concurrency], abs=1.1)


def test_the_next_of_a_group_starts_only_when_the_one_before_is_recorded(scenario: Scenario) -> None:
    """A message whose handler has returned is not done yet: its completion could still fail."""
    scenario.store.half = 0.5
    scenario.deliver(failing(scenario), *groups(g=2))

    scenario.run()

    assert scenario.runs[1].started >= scenario.runs[0].ended + 1.0


def test_a_group_whose_completion_was_refused_stops(scenario: Scenario) -> None:
    """A run that cannot be recorded is a failure too, and later messages must not overtake it."""
    worker = scenario.deliver(failing(scenario, seconds=1), *groups(g=3), seconds=10)
    scenario.world.spawn(partial(scenario.store.down, "replace", "read"), after=0.5)

    assert scenario.answers_of(worker) == [["g1", "g2", "g3"]]
    assert scenario.keys_run == ["g1"]


@pytest.mark.scenario("S57", mutant="behind a failure what is done comes again")
@pytest.mark.parametrize("known", ["before", "after"])
def test_a_duplicate_of_a_completed_message_behind_a_failure_is_acknowledged(scenario: Scenario, known: str) -> None:
    """It is already done, so it overtakes nothing, whether this is known before the failure or only afterwards."""
    scenario.worker(failing(scenario)).deliver(*groups(g=1))
    scenario.run()
    between = [] if known == "before" else groups(h=24)
    duplicate = record("g1", group="g", receives=2 if known == "before" else 1)
    scenario.store.next("insert", works, lambda call: [scenario.world.sleep(1), call.act()][1])

    assert scenario.answer(
        failing(scenario, "g2"), record("g2", group="g"), *between, duplicate, record("g3", group="g")
    ) == ["g2", "g3"]
    assert [key for key in scenario.keys_run if key.startswith("g")] == ["g1", "g2"]


def test_a_message_in_progress_elsewhere_stops_its_group(scenario: Scenario) -> None:
    """Another worker runs it, and its outcome is not known yet."""
    scenario.deliver(failing(scenario, seconds=20), *groups(g=1))

    assert scenario.answer(failing(scenario), *groups(g=3, h=1), after=1) == ["g1", "g2", "g3"]
    assert sorted(scenario.keys_run) == ["g1", "h1"]


def test_what_was_claimed_ahead_behind_a_failure_is_released_at_once(scenario: Scenario) -> None:
    """Not only at the deadline: the group is delivered again soon."""
    assert scenario.answer(failing(scenario, "g1"), *groups(g=3)) == ["g1", "g2", "g3"]
    assert scenario.live_claims() == []

    assert scenario.answer(failing(scenario), *[record(f"g{n}", group="g", receives=2) for n in (1, 2, 3)]) == []
    assert [(run.key, run.attempt) for run in scenario.runs] == [("g1", 1), ("g1", 2), ("g2", 1), ("g3", 1)]


def test_a_failed_group_has_one_visibility_so_that_it_is_delivered_again_in_order(scenario: Scenario) -> None:
    """It is that of its first failure; other groups have their own."""
    scenario.deliver(
        failing(scenario, "g2", "h1"),
        *[record(f"{g}{n}", group=g, receives=3) for g in "gh" for n in (1, 2, 3)],
        queue_client=True,
    )

    scenario.run()

    assert set(scenario.sqs.visibilities) == {"g2", "g3", "h1", "h2", "h3"}
    assert len({scenario.sqs.visibilities[id] for id in ("g2", "g3")}) == 1
    assert len({scenario.sqs.visibilities[id] for id in ("h1", "h2", "h3")}) == 1


def test_a_confirmed_dead_letter_does_not_block_its_group(scenario: Scenario) -> None:
    """The message that failed for good has left the queue."""
    assert (
        scenario.answer(
            failing(scenario, "g2", error=PermanentError), *groups(g=3), dead_letter_queue=DEAD_LETTERS_FIFO
        )
        == []
    )
    assert scenario.keys_run == ["g1", "g2", "g3"]
    assert list(scenario.dead_letters()) == ["g2"]


def test_an_unconfirmed_dead_letter_blocks_its_group(scenario: Scenario) -> None:
    """It is still in the queue, and is delivered again."""
    scenario.sqs.deny.add("send_message")

    assert scenario.answer(
        failing(scenario, "g2", error=PermanentError), *groups(g=3), dead_letter_queue=DEAD_LETTERS_FIFO
    ) == ["g2", "g3"]
    assert scenario.keys_run == ["g1", "g2"]


@pytest.mark.scenario("S68", mutant="a deduplication id that a second send shares")
def test_a_dead_letter_on_a_fifo_queue_is_not_dropped_when_it_is_sent_again_within_five_minutes() -> None:
    """Each send has its own deduplication id, made of message and receive."""
    scenario = Scenario()
    worker = scenario.deliver(
        failing(scenario, "g1", error=PermanentError), record("g1", group="g"), dead_letter_queue=DEAD_LETTERS_FIFO
    )
    worker.deliver(record("g1", group="g", receives=2), after=60)

    scenario.run()

    assert [sent["MessageDeduplicationId"] for sent in scenario.sqs.sent] == ["g1-1", "g1-2"]
    assert [sent["MessageGroupId"] for sent in scenario.sqs.sent] == ["g", "g"]


@pytest.mark.scenario("S67", mutant="whoever waits for another of its key is never told")
def test_a_message_that_waits_for_another_of_its_key_occupies_no_thread() -> None:
    """With one thread, the second message of a key waits behind another group's message: no deadlock."""
    scenario = Scenario(namespace="n")
    scenario.keys_of = dict.fromkeys(("1", "3"), ("n#a",)) | {"2": ("n#b",)}

    assert (
        scenario.answer(
            failing(scenario, seconds=0.1),
            record("1", '{"k":"a"}', group="g1"),
            record("2", '{"k":"b"}', group="g2"),
            record("3", '{"k":"a"}', group="g1"),
            key=body_field("k"),
            concurrency=1,
        )
        == []
    )
    assert scenario.keys_run == ["a", "b"]
    assert scenario.world.now < 1


def test_keys_that_cross_between_groups_do_not_lock_each_other() -> None:
    """Each message waits only for earlier ones."""
    scenario = Scenario(namespace="n")
    scenario.keys_of = dict.fromkeys("1234", ("n#a", "n#b"))

    assert (
        scenario.answer(
            failing(scenario, seconds=0.1),
            record("1", '{"k":"a"}', group="g"),
            record("2", '{"k":"b"}', group="h"),
            record("3", '{"k":"b"}', group="g"),
            record("4", '{"k":"a"}', group="h"),
            key=body_field("k"),
            concurrency=4,
        )
        == []
    )
    assert sorted(scenario.keys_run) == ["a", "b"]
    assert scenario.world.now < 1


def test_messages_without_a_usable_key_fail_one_after_another_without_waiting_for_anything() -> None:
    """No request is under way to wake the receiver, but it does not sleep until the deadline."""
    scenario = Scenario(namespace="n")

    assert scenario.answer(failing(scenario), *groups(g=3), seconds=30, key=body_field("k")) == ["g1", "g2", "g3"]
    assert scenario.world.now < 0.1


def test_a_message_without_a_usable_key_waits_for_those_before_it_before_it_is_dead_lettered() -> None:
    """Then it is dead-lettered, so it blocks nobody."""
    scenario = Scenario(namespace="n")
    scenario.keys_of = {"1": ("n#a",), "3": ("n#c",)}

    assert (
        scenario.answer(
            failing(scenario, seconds=1),
            record("1", '{"k":"a"}', group="g"),
            record("2", "{}", group="g"),
            record("3", '{"k":"c"}', group="g"),
            key=body_field("k"),
            dead_letter_queue=DEAD_LETTERS_FIFO,
        )
        == []
    )
    assert scenario.keys_run == ["a", "c"]
    assert list(scenario.dead_letters()) == ["2"]


def test_redelivered_messages_keep_their_place_among_fresh_ones(scenario: Scenario) -> None:
    """They are read first, but claimed in the batch's order, however far claims run ahead."""
    assert (
        scenario.answer(
            failing(scenario), record("g0", group="g", receives=2), *[record(f"g{n}", group="g") for n in range(1, 80)]
        )
        == []
    )
    assert scenario.keys_run == [f"g{n}" for n in range(80)]


def test_a_group_that_the_deadline_cuts_comes_again_from_there(scenario: Scenario) -> None:
    """The rest is delivered again in order, and nothing is overtaken."""
    assert scenario.answer(failing(scenario, seconds=2), *groups(g=4), seconds=7, concurrency=2) == ["g3", "g4"]
    assert scenario.keys_run == ["g1", "g2"]


def test_a_group_id_on_a_standard_queue_orders_nothing(scenario: Scenario) -> None:
    """There it only serves SQS's fair queues: a failure concerns that message alone."""
    assert scenario.answer(
        failing(scenario, "1"), *[sqs_record(str(n), group="tenant") for n in range(4)], queue_client=True
    ) == ["1"]
    assert len(scenario.keys_run) == 4


def test_thousands_of_messages_behind_a_failure_are_answered_without_delay(scenario: Scenario) -> None:
    """Only the claims that ran ahead must be released."""
    assert len(scenario.answer(failing(scenario, "g1"), *groups(g=3000))) == 3000
    assert scenario.world.now < 0.2
    assert scenario.live_claims() == []


@pytest.mark.parametrize("done", [True, False])
def test_a_group_that_is_stopped_stops_no_other_through_a_key_that_both_have(done: bool) -> None:
    """The first has no usable key. Behind it waits a message whose key another group has as well."""
    scenario = Scenario(namespace="n")
    scenario.keys_of = {"first": (), "behind": ("n#a",), "elsewhere": ("n#a",)}
    if done:
        scenario.worker(failing(scenario), key=body_field("k"), queue_client=True).deliver(
            record("elsewhere", '{"k": "a"}', group="h")
        )

    assert scenario.answer(
        failing(scenario),
        record("first", group="g"),
        record("behind", '{"k": "a"}', group="g"),
        record("elsewhere", '{"k": "a"}', group="h"),
        after=1.0,
        key=body_field("k"),
        queue_client=True,
    ) == ["first", "behind"]
    assert scenario.keys_run == ["a"]
