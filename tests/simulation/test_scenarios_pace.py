"""How far claims run ahead: two chunks of slow handlers, four of quick ones, and back when quick ones turn slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.simulation.scene import Scene
from tests.simulation.world import FIFO, Worker, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable

ROUND_TRIP_SECONDS = 0.005
QUICK_SECONDS = 0.0001


class Handlers:
    """A worker whose handlers take as long as `seconds` says for the number of their start; it notes who started."""

    def __init__(self, scene: Scene, seconds: Callable[[int], float] = lambda number: QUICK_SECONDS) -> None:
        self.scene = scene
        self.seconds = seconds
        self.started: list[str] = []
        self.worker: Worker = scene.worker(self._handle)

    def _handle(self, body: dict[str, Any]) -> None:
        self.started.append(body["m"])
        self.scene.world.sleep(self.seconds(len(self.started)))

    def deliver(self, name: str, count: int, *, after: float = 0.0, seconds: float = 30.0, groups: int = 0) -> None:
        """Invoke the worker with so many messages, in FIFO groups if asked for."""
        queue = {"queue": FIFO} if groups else {}
        records = [
            sqs_record(f"{name}{n}", f'{{"m": "{name}{n}"}}', **queue, **({"group": str(n % groups)} if groups else {}))
            for n in range(count)
        ]
        self.worker.deliver(*records, after=after, seconds=seconds)

    def warm_up(self) -> None:
        """A batch of quick handlers, after which the worker knows them as quick."""
        self.deliver("w", 50)
        self.scene.world.run()
        assert self.worker.answers == [[]]
        self.scene.requests()
        self.started.clear()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def held_over_time(scene: Scene, until_seconds: float) -> list[tuple[float, int]]:
    """How many records somebody holds, every tenth of a second; to be read once the world has run."""
    found: list[tuple[float, int]] = []
    start = scene.world.now
    for tenth in range(1, int(until_seconds * 10)):
        scene.world.spawn(lambda: found.append((scene.world.now - start, len(scene.live_claims()))), after=tenth / 10)
    return found


@pytest.mark.parametrize("seconds", [0.1, 1.0, 100.0])
def test_a_batch_that_turns_slow_gives_back_two_chunks_at_most_at_its_deadline(scene: Scene, seconds: float) -> None:
    """Whatever was claimed beyond that for quick handlers is done by then, or was given back long before."""
    handlers = Handlers(scene, lambda number: QUICK_SECONDS if number <= 200 else seconds)
    handlers.deliver("m", 1000)
    held = held_over_time(scene, 30)

    scene.world.run()

    assert max(count for when, count in held if 10 <= when < 28.5) <= 51
    assert len(handlers.started) > 200
    assert len(set(handlers.started)) == len(handlers.started)


@pytest.mark.parametrize("seconds", [0.2, 1.0, 100.0])
def test_handlers_that_were_quick_in_the_batch_before_may_be_slow_in_this_one(scene: Scene, seconds: float) -> None:
    """What was claimed on the strength of the batch before is given back as soon as that shows."""
    handlers = Handlers(scene)
    handlers.warm_up()
    handlers.seconds = lambda number: seconds
    handlers.deliver("m", 100, seconds=8)
    held = held_over_time(scene, 8)

    scene.world.run()

    assert max(count for when, count in held if 0.8 <= when < 7) <= 51
    assert len(set(handlers.started)) == len(handlers.started)


def test_what_was_given_back_for_now_is_claimed_again_and_handled_once(scene: Scene) -> None:
    """A pause in the middle of a batch costs the claims beyond two chunks a second write, and no message its turn."""
    handlers = Handlers(scene, lambda number: 2.0 if number == 30 else QUICK_SECONDS)
    handlers.deliver("m", 300)
    held = held_over_time(scene, 3)

    scene.world.run()

    assert handlers.worker.answers == [[]]
    assert max(count for when, count in held if 0.5 <= when < 1.9) <= 51
    assert sorted(handlers.started) == sorted(f"m{n}" for n in range(300))
    assert {item["status"] for item in scene.memory.items.values()} == {"COMPLETED"}
    assert {item["attempts"] for item in scene.memory.items.values()} == {1}


def test_a_group_keeps_its_order_when_its_claims_are_given_back_for_now(scene: Scene) -> None:
    """Those that wait for their turn in a group are given back like any others."""
    handlers = Handlers(scene, lambda number: 2.0 if number == 30 else QUICK_SECONDS)
    handlers.deliver("m", 200, groups=3)
    held = held_over_time(scene, 3)

    scene.world.run()

    assert handlers.worker.answers == [[]]
    assert max(count for when, count in held if 0.5 <= when < 1.9) <= 51
    for group in range(3):
        names = [name for name in handlers.started if int(name[1:]) % 3 == group]
        assert names == [f"m{n}" for n in range(group, 200, 3)]


def test_what_somebody_else_takes_meanwhile_is_left_to_them(scene: Scene) -> None:
    """A claim that was given back for now is anybody's: it comes again as a message that is in progress elsewhere."""
    handlers, other = Handlers(scene, lambda number: 2.0 if number == 30 else QUICK_SECONDS), Handlers(scene)
    other.seconds = lambda number: 10.0
    handlers.deliver("m", 100)
    scene.world.spawn(lambda: other.worker.deliver(sqs_record("m99", '{"m": "m99"}')), after=1.0)

    scene.world.run()

    assert other.started == ["m99"]
    assert "m99" not in handlers.started
    assert handlers.worker.answers == [["m99"]]


def test_a_pause_that_the_deadline_leaves_time_for_costs_nothing_more(scene: Scene) -> None:
    """Handlers that are only slower than quick are claimed no further ahead, and nothing of theirs is given back."""
    handlers = Handlers(scene)
    handlers.warm_up()
    handlers.seconds = lambda number: 0.01
    handlers.deliver("m", 200)

    scene.world.run()

    assert handlers.worker.answers == [[], []]
    requests = scene.requests()
    assert [count for name, count in requests if name == "insert"] == [25] * 8
    assert sum(count for name, count in requests if name == "replace") == 200


def test_quick_handlers_are_known_from_the_batch_before(scene: Scene) -> None:
    """A hundred messages then take two round trips, where a worker that knows nothing takes three."""
    handlers = Handlers(scene, lambda number: 0.0)
    handlers.deliver("a", 100)
    scene.world.run()
    cold = scene.world.now
    handlers.deliver("b", 100)
    scene.world.run()
    warm = scene.world.now - cold

    assert handlers.worker.answers == [[], []]
    assert cold == pytest.approx(3 * ROUND_TRIP_SECONDS, abs=0.003)
    assert warm == pytest.approx(2 * ROUND_TRIP_SECONDS, abs=0.003)


def test_a_few_messages_tell_nothing_of_the_pace(scene: Scene) -> None:
    """Ten quick ones do not make the next hundred claimed four chunks ahead."""
    handlers = Handlers(scene)
    handlers.deliver("a", 10)
    scene.world.run()
    handlers.seconds = lambda number: 1.0
    handlers.deliver("b", 100)
    held = held_over_time(scene, 2)

    scene.world.run()

    assert max(count for _, count in held) <= 51
