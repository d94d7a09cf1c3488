"""How far claims run ahead of the handlers: always eight chunks; what has not started is released at the deadline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Message, Transaction
from tests.simulation.scenario import Reported, Scenario, add_one, batch
from tests.simulation.world import FIFO, Worker, sqs_record

if TYPE_CHECKING:
    from collections.abc import Callable


ROUND_TRIP_SECONDS = 0.005
QUICK_SECONDS = 0.0001
CHUNK = 25
AHEAD = 8 * CHUNK


class Handlers:
    """A worker whose handlers take as long as `seconds` says, by the number of their start; it records the starts."""

    def __init__(
        self, scenario: Scenario, seconds: Callable[[int], float] = lambda number: QUICK_SECONDS, **options: Any
    ) -> None:
        self.scenario = scenario
        self.seconds = seconds
        self.started: list[str] = []
        self.worker: Worker = scenario.worker(self._handle, **options)

    def _handle(self, body: dict[str, Any]) -> None:
        self.started.append(body["m"])
        self.scenario.world.sleep(self.seconds(len(self.started)))

    def deliver(self, name: str, count: int, *, after: float = 0.0, seconds: float = 30.0, groups: int = 0) -> None:
        queue = {"queue": FIFO} if groups else {}
        records = [
            sqs_record(f"{name}{n}", f'{{"m": "{name}{n}"}}', **queue, **({"group": str(n % groups)} if groups else {}))
            for n in range(count)
        ]
        self.worker.deliver(*records, after=after, seconds=seconds)


def claims_over_time(scenario: Scenario, until_seconds: float) -> list[tuple[float, int]]:
    """The number of live claims, every tenth of a second; to be read once the world has run."""
    found: list[tuple[float, int]] = []
    start = scenario.world.now
    for tenth in range(1, int(until_seconds * 10)):
        scenario.world.spawn(
            lambda: found.append((scenario.world.now - start, len(scenario.live_claims()))), after=tenth / 10
        )
    return found


@pytest.mark.parametrize("seconds", [0.01, 0.1, 100.0])
def test_claims_run_ahead_of_handlers_by_eight_chunks_at_most(scenario: Scenario, seconds: float) -> None:
    handlers = Handlers(scenario, lambda number: seconds)
    handlers.deliver("m", 1000)
    held = claims_over_time(scenario, 28)

    scenario.run()

    assert max(count for _, count in held) <= AHEAD + 2


@pytest.mark.parametrize("seconds", [0.0, 0.0001, 0.1, 1.0, 100.0])
def test_what_has_not_started_at_the_deadline_is_released_in_eight_requests_at_most(
    scenario: Scenario, seconds: float
) -> None:
    handlers = Handlers(scenario, lambda number: seconds)
    handlers.deliver("m", 10_000, seconds=1.5 if seconds < 1 else 8)

    scenario.run()

    requests = scenario.requests()
    claimed = sum(count for name, count in requests if name == "insert")
    assert claimed == len(scenario.memory.items)
    released = [item for item in scenario.memory.items.values() if item["attempts"] == 0]
    assert len(released) <= AHEAD
    assert claimed - len(released) == len(handlers.started) == len(set(handlers.started))
    assert sum(1 for name, count in requests if name == "replace") <= len(handlers.started) + 8


def test_messages_before_a_pause_and_behind_it_are_claimed_once(scenario: Scenario) -> None:
    handlers = Handlers(scenario, lambda number: 2.0 if number == 30 else QUICK_SECONDS)
    handlers.deliver("m", 300)

    scenario.run()

    assert handlers.worker.answers == [[]]
    assert sorted(handlers.started) == sorted(f"m{n}" for n in range(300))
    requests = scenario.requests()
    assert [count for name, count in requests if name == "insert"] == [CHUNK] * 12
    assert sum(count for name, count in requests if name == "replace") == 300


def test_a_group_keeps_its_order_however_far_claims_run_ahead(scenario: Scenario) -> None:
    handlers = Handlers(scenario, lambda number: 2.0 if number == 30 else QUICK_SECONDS)
    handlers.deliver("m", 1000, groups=3)
    held = claims_over_time(scenario, 3)

    scenario.run()

    assert handlers.worker.answers == [[]]
    assert max(count for when, count in held if 0.5 <= when < 1.9) <= AHEAD + 1
    for group in range(3):
        names = [name for name in handlers.started if int(name[1:]) % 3 == group]
        assert names == [f"m{n}" for n in range(group, 1000, 3)]


def test_messages_without_a_key_do_not_stop_those_before_them_in_their_group() -> None:
    def key(message: Message) -> str:
        if int(message.id[1:]) >= 400:
            raise ValueError("no key")
        return message.id

    handlers = Handlers(Scenario(namespace="n"), key=key)
    handlers.deliver("m", 426, groups=1)

    handlers.scenario.world.run()

    assert handlers.started == [f"m{n}" for n in range(400)]
    assert handlers.worker.answers == [[f"m{n}" for n in range(400, 426)]]
    assert handlers.scenario.world.now < 400 * ROUND_TRIP_SECONDS + 0.1


@pytest.mark.parametrize("effects", ["any", "transaction"])
@pytest.mark.parametrize(("items", "round_trip_seconds"), [(1, 0.02), (1, 0.1), (3, 0.02), (1, 0.005)])
@pytest.mark.parametrize("seconds", [3.0, 9.0])
def test_no_more_run_on_a_hot_item_than_can_be_committed_in_time(
    effects: str, items: int, round_trip_seconds: float, seconds: float
) -> None:
    """One commit an item at a time: what ran ahead of them and was not committed would have run in vain, and would be
    reported as an outage.
    """
    scenario, reported = Scenario(effects=effects), Reported()
    scenario.store.half = round_trip_seconds / 2

    def handle(body: dict[str, Any], message: Message, tx: Transaction) -> None:
        add_one(tx, f"hot-{int(message.id) % items}")

    failed = scenario.answer(handle, *batch(600), seconds=seconds, metrics=reported)

    assert sum(scenario.times.values()) == len(scenario.runs) == 600 - len(failed)
    assert reported.counts["Unsettled"] == 0
    assert len(scenario.runs) >= min(600, items * (seconds - 1.5) / round_trip_seconds * 0.6)
