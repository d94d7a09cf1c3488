"""Messages of one group on a FIFO queue take effect in their order, or come again in it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial

import pytest

from idempotent_receiver import Message, PermanentError, body_field
from tests.simulation.faults import works
from tests.simulation.scene import DEAD_LETTERS, Scene
from tests.simulation.world import FIFO, sqs_record

DEAD_LETTERS_FIFO = DEAD_LETTERS + ".fifo"

record = partial(sqs_record, queue=FIFO)


def failing(
    scene: Scene, *ids: str, seconds: float = 0.0, error: type[Exception] = RuntimeError
) -> Callable[..., None]:
    def handle(body: dict, message: Message) -> None:
        scene.world.sleep(seconds)
        if message.id in ids:
            raise error

    return handle


def groups(**sizes: int) -> list[dict[str, object]]:
    """`groups(g=3, h=1)`: g1 g2 g3 h1."""
    return [record(f"{name}{place}", group=name) for name, size in sizes.items() for place in range(1, size + 1)]


@pytest.mark.scenario("S56", mutant="a claimed message runs although its group has stopped")
def test_a_group_stops_at_its_failure_and_other_groups_go_on() -> None:
    """The second of five fails: it and the three behind it come again, unrun; the other group is done."""
    scene = Scene()
    worker = scene.worker(failing(scene, "g2"))
    worker.deliver(*groups(g=5, h=2))

    scene.run()

    assert worker.answers == [["g2", "g3", "g4", "g5"]]
    assert sorted(scene.keys_run) == ["g1", "g2", "h1", "h2"]
    assert scene.live_claims() == []


@pytest.mark.parametrize("concurrency", [1, 2, 5, 10])
def test_within_a_group_nothing_ever_overlaps_and_the_order_holds(concurrency: int) -> None:
    """However many may run at once; other groups run beside."""
    scene = Scene()
    worker = scene.worker(failing(scene, seconds=1), concurrency=concurrency)
    worker.deliver(*groups(g=4, h=3, i=3))

    scene.run()

    assert worker.answers == [[]]
    for group in "ghi":
        runs = [run for run in scene.runs if run.key[0] == group]
        assert [run.key for run in runs] == sorted(run.key for run in runs)
        assert all(run.ended <= following.started for run, following in itertools.pairwise(runs))
    assert scene.world.now == pytest.approx({1: 10, 2: 6, 5: 4, 10: 4}[concurrency], abs=1.1)


def test_the_next_of_a_group_starts_only_when_the_one_before_is_recorded() -> None:
    """A handler that has returned is not done yet: its completion could still fail."""
    scene = Scene()
    scene.store.half = 0.5
    worker = scene.worker(failing(scene))
    worker.deliver(*groups(g=2))

    scene.run()

    assert scene.runs[1].started >= scene.runs[0].ended + 1.0


def test_a_group_whose_completion_was_refused_stops() -> None:
    """What ran and could not be recorded is a failure too, and what follows must not overtake it."""
    scene = Scene()
    worker = scene.worker(failing(scene, seconds=1))
    worker.deliver(*groups(g=3), seconds=10)
    scene.world.spawn(partial(scene.store.down, "replace", "read"), after=0.5)

    scene.run()

    assert worker.answers == [["g1", "g2", "g3"]]
    assert scene.keys_run == ["g1"]


@pytest.mark.scenario("S57", mutant="behind a failure what is done comes again")
@pytest.mark.parametrize("known", ["before", "after"])
def test_a_duplicate_of_a_completed_message_behind_a_failure_is_acknowledged(known: str) -> None:
    """It is done already, so nothing is overtaken; be that known before the failure, or by an answer after it."""
    scene = Scene()
    scene.worker(failing(scene)).deliver(*groups(g=1))
    scene.run()
    between = [] if known == "before" else groups(h=24)
    duplicate = record("g1", group="g", receives=2 if known == "before" else 1)
    worker = scene.worker(failing(scene, "g2"))
    scene.store.next("insert", works, lambda call: [scene.world.sleep(1), call.act()][1])
    worker.deliver(record("g2", group="g"), *between, duplicate, record("g3", group="g"))

    scene.run()

    assert worker.answers == [["g2", "g3"]]
    assert [key for key in scene.keys_run if key.startswith("g")] == ["g1", "g2"]


def test_a_message_in_progress_elsewhere_stops_its_group() -> None:
    """Somebody else is at it, and nobody knows how that ends."""
    scene = Scene()
    other = scene.worker(failing(scene, seconds=20))
    other.deliver(*groups(g=1))
    worker = scene.worker(failing(scene))
    worker.deliver(*groups(g=3, h=1), after=1)

    scene.run()

    assert worker.answers == [["g1", "g2", "g3"]]
    assert sorted(scene.keys_run) == ["g1", "h1"]


def test_what_was_claimed_ahead_behind_a_failure_is_released_at_once() -> None:
    """Not at the deadline: the group comes again soon."""
    scene = Scene()
    worker = scene.worker(failing(scene, "g1"))
    worker.deliver(*groups(g=3))
    scene.run()
    assert worker.answers == [["g1", "g2", "g3"]]
    assert scene.live_claims() == []

    again = scene.worker(failing(scene))
    again.deliver(*[record(f"g{n}", group="g", receives=2) for n in (1, 2, 3)])
    scene.run()

    assert again.answers == [[]]
    assert [(run.key, run.attempt) for run in scene.runs] == [("g1", 1), ("g1", 2), ("g2", 1), ("g3", 1)]


def test_a_failed_group_has_one_visibility_so_that_it_comes_again_in_order() -> None:
    """Its first failure's; other groups have their own."""
    scene = Scene()
    worker = scene.worker(failing(scene, "g2", "h1"), queue_client=True)
    worker.deliver(*[record(f"{g}{n}", group=g, receives=3) for g in "gh" for n in (1, 2, 3)])

    scene.run()

    assert set(scene.sqs.visibilities) == {"g2", "g3", "h1", "h2", "h3"}
    assert len({scene.sqs.visibilities[id] for id in ("g2", "g3")}) == 1
    assert len({scene.sqs.visibilities[id] for id in ("h1", "h2", "h3")}) == 1


def test_a_confirmed_dead_letter_does_not_block_its_group() -> None:
    """What failed for good is out of the way."""
    scene = Scene()
    worker = scene.worker(failing(scene, "g2", error=PermanentError), dead_letter_queue=DEAD_LETTERS_FIFO)
    worker.deliver(*groups(g=3))

    scene.run()

    assert worker.answers == [[]]
    assert scene.keys_run == ["g1", "g2", "g3"]
    assert list(scene.dead_letters()) == ["g2"]


def test_an_unconfirmed_dead_letter_blocks_its_group() -> None:
    """It is still in the queue, and comes again."""
    scene = Scene()
    scene.sqs.deny.add("send_message")
    worker = scene.worker(failing(scene, "g2", error=PermanentError), dead_letter_queue=DEAD_LETTERS_FIFO)
    worker.deliver(*groups(g=3))

    scene.run()

    assert worker.answers == [["g2", "g3"]]
    assert scene.keys_run == ["g1", "g2"]


@pytest.mark.scenario("S68", mutant="a deduplication id that a second send shares")
def test_a_dead_letter_on_a_fifo_queue_is_not_swallowed_when_it_is_sent_again_within_five_minutes() -> None:
    """Each send of ours has a deduplication id of its own: message and receive."""
    scene = Scene()
    worker = scene.worker(failing(scene, "g1", error=PermanentError), dead_letter_queue=DEAD_LETTERS_FIFO)
    worker.deliver(record("g1", group="g"))
    worker.deliver(record("g1", group="g", receives=2), after=60)

    scene.run()

    assert [sent["MessageDeduplicationId"] for sent in scene.sqs.sent] == ["g1-1", "g1-2"]
    assert [sent["MessageGroupId"] for sent in scene.sqs.sent] == ["g", "g"]


@pytest.mark.scenario("S67", mutant="whoever waits for another of its key is never told")
def test_a_message_that_waits_for_another_of_its_key_occupies_no_worker() -> None:
    """The second of one key waits in one group for the first in it, behind another group's: no deadlock."""
    scene = Scene(namespace="n")
    scene.keys_of = dict.fromkeys(("1", "3"), ("n#a",)) | {"2": ("n#b",)}
    worker = scene.worker(failing(scene, seconds=0.1), key=body_field("k"), concurrency=1)
    worker.deliver(
        record("1", '{"k":"a"}', group="g1"), record("2", '{"k":"b"}', group="g2"), record("3", '{"k":"a"}', group="g1")
    )

    scene.run()

    assert worker.answers == [[]]
    assert scene.keys_run == ["a", "b"]
    assert scene.world.now < 1


def test_keys_that_cross_between_groups_do_not_lock_each_other() -> None:
    """Everybody waits only for earlier ones."""
    scene = Scene(namespace="n")
    scene.keys_of = dict.fromkeys("1234", ("n#a", "n#b"))
    worker = scene.worker(failing(scene, seconds=0.1), key=body_field("k"), concurrency=4)
    worker.deliver(
        record("1", '{"k":"a"}', group="g"),
        record("2", '{"k":"b"}', group="h"),
        record("3", '{"k":"b"}', group="g"),
        record("4", '{"k":"a"}', group="h"),
    )

    scene.run()

    assert worker.answers == [[]]
    assert sorted(scene.keys_run) == ["a", "b"]
    assert scene.world.now < 1


def test_messages_without_a_usable_key_fail_one_after_another_without_waiting_for_anything() -> None:
    """No request is under way that could wake the receiver, and yet it does not sleep until the deadline."""
    scene = Scene(namespace="n")
    worker = scene.worker(failing(scene), key=body_field("k"))
    worker.deliver(*groups(g=3), seconds=30)

    scene.run()

    assert worker.answers == [["g1", "g2", "g3"]]
    assert scene.world.now < 0.1


def test_a_message_without_a_usable_key_waits_for_its_turn_before_it_is_dead_lettered() -> None:
    """And goes, as it blocks nobody."""
    scene = Scene(namespace="n")
    scene.keys_of = {"1": ("n#a",), "3": ("n#c",)}
    worker = scene.worker(failing(scene, seconds=1), key=body_field("k"), dead_letter_queue=DEAD_LETTERS_FIFO)
    worker.deliver(
        record("1", '{"k":"a"}', group="g"), record("2", "{}", group="g"), record("3", '{"k":"c"}', group="g")
    )

    scene.run()

    assert worker.answers == [[]]
    assert scene.keys_run == ["a", "c"]
    assert list(scene.dead_letters()) == ["2"]


def test_redelivered_messages_keep_their_place_among_fresh_ones() -> None:
    """What is read first is still claimed in the batch's order, however much is claimed ahead."""
    scene = Scene()
    worker = scene.worker(failing(scene))
    worker.deliver(record("g0", group="g", receives=2), *[record(f"g{n}", group="g") for n in range(1, 80)])

    scene.run()

    assert worker.answers == [[]]
    assert scene.keys_run == [f"g{n}" for n in range(80)]


def test_a_group_that_the_deadline_cuts_comes_again_from_there() -> None:
    """In order, with nothing overtaken."""
    scene = Scene()
    worker = scene.worker(failing(scene, seconds=2), concurrency=2)
    worker.deliver(*groups(g=4), seconds=7)

    scene.run()

    assert worker.answers == [["g3", "g4"]]
    assert scene.keys_run == ["g1", "g2"]


def test_a_group_id_on_a_standard_queue_orders_nothing() -> None:
    """There it serves SQS's fairness: a failure is that message's alone."""
    scene = Scene()
    worker = scene.worker(failing(scene, "1"), queue_client=True)
    worker.deliver(*[sqs_record(str(n), group="tenant") for n in range(4)])

    scene.run()

    assert worker.answers == [["1"]]
    assert len(scene.keys_run) == 4


def test_thousands_of_messages_behind_a_failure_are_answered_without_delay() -> None:
    """Only what was claimed ahead has to be released."""
    scene = Scene()
    worker = scene.worker(failing(scene, "g1"))
    worker.deliver(*groups(g=3000))

    scene.run()

    assert len(worker.answers[0]) == 3000
    assert scene.world.now < 0.2
    assert scene.live_claims() == []
