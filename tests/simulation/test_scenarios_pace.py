"""How far claims run ahead: two chunks of slow handlers, four of quick ones, and back when quick ones turn slow."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Message, Transaction
from idempotent_receiver.protocol.store import Unknown
from tests.simulation.faults import Call, each, works
from tests.simulation.scene import Scene
from tests.simulation.world import FIFO, Worker, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable


ROUND_TRIP_SECONDS = 0.005
QUICK_SECONDS = 0.0001


class Handlers:
    """A worker whose handlers take as long as `seconds` says for the number of their start; it notes who started."""

    def __init__(
        self, scene: Scene, seconds: Callable[[int], float] = lambda number: QUICK_SECONDS, **options: Any
    ) -> None:
        self.scene = scene
        self.seconds = seconds
        self.started: list[str] = []
        self.worker: Worker = scene.worker(self._handle, **options)

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
        self.scene.run()
        assert self.worker.answers == [[]]
        self.scene.requests()
        self.started.clear()


class Counts:
    """Metrics that are added up."""

    def __init__(self) -> None:
        self.of: Counter[str] = Counter()

    def add_metric(self, name: str, unit: object, value: float) -> None:
        self.of[name] += int(value)

    def flush_metrics(self) -> None: ...


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


@pytest.mark.parametrize(("seconds", "quick"), [(0.1, 200), (0.2, 5000), (1.0, 200), (100.0, 200)])
def test_a_batch_that_turns_slow_gives_back_two_chunks_at_most_at_its_deadline(
    scene: Scene, seconds: float, quick: int
) -> None:
    """Whatever was claimed beyond that for quick handlers is done by then, or was given back before: however many
    quick ones there were.
    """
    handlers = Handlers(scene, lambda number: QUICK_SECONDS if number <= quick else seconds)
    handlers.deliver("m", quick + 800, seconds=8)
    held = held_over_time(scene, 8)

    scene.run()

    assert max(count for when, count in held if 6.5 <= when < 6.8) <= 51
    assert len(handlers.started) > quick
    assert len(set(handlers.started)) == len(handlers.started)


@pytest.mark.parametrize("seconds", [0.0001, 0.0004])
def test_a_batch_too_large_for_its_time_ends_with_two_chunks_and_gives_back_none_before(
    scene: Scene, seconds: float
) -> None:
    """Near the deadline claims run no further ahead of quick handlers than of others."""
    handlers = Handlers(scene, lambda number: seconds)
    handlers.deliver("m", 10_000, seconds=1.5)

    scene.run()

    claimed = sum(count for name, count in scene.requests() if name == "insert")
    assert claimed == len(scene.memory.items)
    assert 0 < claimed - len(handlers.started) <= 50


@pytest.mark.parametrize("seconds", [0.2, 1.0, 100.0])
def test_handlers_that_were_quick_in_the_batch_before_may_be_slow_in_this_one(scene: Scene, seconds: float) -> None:
    """What was claimed on the strength of the batch before is given back as soon as that shows."""
    handlers = Handlers(scene)
    handlers.warm_up()
    handlers.seconds = lambda number: seconds
    handlers.deliver("m", 100, seconds=8)
    held = held_over_time(scene, 8)

    scene.run()

    assert max(count for when, count in held if 0.8 <= when < 7) <= 51
    assert len(set(handlers.started)) == len(handlers.started)


def test_what_was_given_back_for_now_is_claimed_again_and_handled_once(scene: Scene) -> None:
    """A pause in the middle of a batch costs the claims beyond two chunks a second write, and no message its turn."""
    handlers = Handlers(scene, lambda number: 2.0 if number == 30 else QUICK_SECONDS)
    handlers.deliver("m", 300)
    held = held_over_time(scene, 3)

    scene.run()

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

    scene.run()

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

    scene.run()

    assert other.started == ["m99"]
    assert "m99" not in handlers.started
    assert handlers.worker.answers == [["m99"]]


def test_a_group_goes_on_though_what_is_held_waits_for_what_was_given_back(scene: Scene) -> None:
    """Claims that were on their way when others were given back come behind a gap, which is claimed first of all."""

    def slow(call: Call) -> Any:
        call.world.sleep(1.2)
        return call.act()

    scene.store.next("insert", works, works, works, slow)
    handlers = Handlers(scene, lambda number: 0.3 if number == 53 else QUICK_SECONDS)
    handlers.deliver("m", 200, groups=1)

    scene.run()

    assert handlers.worker.answers == [[]]
    assert handlers.started == [f"m{n}" for n in range(200)]
    assert scene.world.now < 5


def test_messages_without_a_key_do_not_stop_those_before_them_in_their_group() -> None:
    """They are held for their turn like the others, and whoever they wait for is claimed all the same."""

    def key(message: Message) -> str:
        if int(message.id[1:]) >= 100:
            raise ValueError("no key")
        return message.id

    handlers = Handlers(Scene(namespace="n"), key=key)
    handlers.deliver("m", 126, groups=1)

    handlers.scene.world.run()

    assert handlers.started == [f"m{n}" for n in range(100)]
    assert handlers.worker.answers == [[f"m{n}" for n in range(100, 126)]]
    assert handlers.scene.world.now < 1


def test_what_was_given_back_without_an_answer_and_taken_is_in_progress_elsewhere(scene: Scene) -> None:
    """It was not lost: nobody had started it."""
    counts = Counts()
    handlers = Handlers(scene, lambda number: 2.0 if number == 30 else QUICK_SECONDS, metrics=counts)
    other = Handlers(scene, lambda number: 10.0)

    def lost_and_taken(call: Call) -> Any:
        call.act()
        other.worker.deliver(sqs_record("m99", '{"m": "m99"}'))
        call.world.sleep(0.001)
        return each(call, Unknown("the answer was lost"))

    handlers.deliver("m", 100)
    scene.world.spawn(lambda: scene.store.next("replace", lost_and_taken), after=0.2)

    scene.run()

    assert other.started == ["m99"]
    assert handlers.worker.answers == [["m99"]]
    assert (counts.of["LostClaims"], counts.of["InProgress"]) == (0, 1)


def test_a_pause_that_the_deadline_leaves_time_for_costs_nothing_more(scene: Scene) -> None:
    """Handlers that are only slower than quick are claimed no further ahead, and nothing of theirs is given back."""
    handlers = Handlers(scene)
    handlers.warm_up()
    handlers.seconds = lambda number: 0.01
    handlers.deliver("m", 200)

    scene.run()

    assert handlers.worker.answers == [[], []]
    requests = scene.requests()
    assert [count for name, count in requests if name == "insert"] == [25] * 8
    assert sum(count for name, count in requests if name == "replace") == 200


def test_quick_handlers_are_known_from_the_batch_before(scene: Scene) -> None:
    """A hundred messages then take two round trips, where a worker that knows nothing takes three."""
    handlers = Handlers(scene, lambda number: 0.0)
    handlers.deliver("a", 100)
    scene.run()
    cold = scene.world.now
    handlers.deliver("b", 100)
    scene.run()
    warm = scene.world.now - cold

    assert handlers.worker.answers == [[], []]
    assert cold == pytest.approx(3 * ROUND_TRIP_SECONDS, abs=0.003)
    assert warm == pytest.approx(2 * ROUND_TRIP_SECONDS, abs=0.003)


def test_pauses_again_and_again_cost_one_giving_back_a_batch(scene: Scene) -> None:
    """Once handlers have turned slow they count as slow for the rest of the batch."""
    handlers = Handlers(scene, lambda number: 0.3 if number % 300 == 150 else QUICK_SECONDS)
    handlers.deliver("a", 2000, seconds=600)

    scene.run()

    replaced = sum(count for name, count in scene.requests() if name == "replace")
    assert handlers.worker.answers == [[]]
    assert 2000 < replaced <= 2000 + 2 * 50


def test_a_few_messages_tell_nothing_of_the_pace(scene: Scene) -> None:
    """Ten quick ones do not make the next hundred claimed four chunks ahead."""
    handlers = Handlers(scene)
    handlers.deliver("a", 10)
    scene.run()
    handlers.seconds = lambda number: 1.0
    handlers.deliver("b", 100)
    held = held_over_time(scene, 2)

    scene.run()

    assert max(count for _, count in held) <= 51


@pytest.mark.parametrize("seconds", [0.1, 3.0, 100.0])
def test_commits_that_take_long_hold_two_chunks(scene: Scene, seconds: float) -> None:
    """A handler whose transaction is not quick is not quick, and no more than sixteen of these are under way."""
    started: list[str] = []

    def slow(call: Call) -> Any:
        call.world.sleep(seconds)
        return call.act()

    def handle(body: dict[str, Any], tx: Transaction) -> None:
        started.append(body["m"])
        if body["m"].startswith("m"):
            tx.put(TableName="t", Item={"id": body["m"]})

    worker = scene.worker(handle)
    worker.deliver(*[sqs_record(f"w{n}", f'{{"m": "w{n}"}}') for n in range(50)])
    scene.run()
    scene.store.next("commit", *[slow] * 5000)
    worker.deliver(*[sqs_record(f"m{n}", f'{{"m": "m{n}"}}') for n in range(3000)], seconds=12)
    held = held_over_time(scene, 12)

    scene.run()

    assert max(count for when, count in held if 1 <= when < 10.8) <= 50 + 16
    assert len(set(started)) == len(started)
