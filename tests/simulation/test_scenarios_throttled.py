"""One record of a batch stays throttled: the others do not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.protocol.store import NotApplied
from tests.simulation.scenario import Scenario
from tests.simulation.world import FIFO, Worker, sqs_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.record import Change


class HotKey:
    """A store that throttles every write of one id, except its insert, until a moment of virtual time."""

    def __init__(self, scenario: Scenario, id: str, until_seconds: float) -> None:
        self.namespace = None
        self.scenario, self.id, self.until_seconds = scenario, id, until_seconds

    def __getattr__(self, name: str) -> Any:
        return getattr(self.scenario.store, name)

    def replace(self, changes: Sequence[Change]) -> Any:
        cold = [change for change in changes if not self._is_hot(change)]
        answers = iter(self.scenario.store.replace(cold))
        return [NotApplied("throttled", retry=True) if self._is_hot(one) else next(answers) for one in changes]

    def _is_hot(self, change: Change) -> bool:
        return change.new.id == self.id and self.scenario.world.now < self.until_seconds


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_a_record_that_stays_throttled_does_not_hold_back_its_neighbours(scenario: Scenario) -> None:
    """The second message of a group runs while another group's record, settled in the same request, is throttled."""
    started: dict[str, float] = {}

    def handle(body: dict) -> None:  # type: ignore[type-arg]  # what users write
        started[body["m"]] = scenario.world.now

    worker = Worker(scenario.world, HotKey(scenario, "a1", until_seconds=8.0), handle)  # type: ignore[arg-type]
    worker.deliver(
        sqs_record("a1", '{"m": "a1"}', queue=FIFO, group="a"),
        sqs_record("b1", '{"m": "b1"}', queue=FIFO, group="b"),
        sqs_record("b2", '{"m": "b2"}', queue=FIFO, group="b"),
    )
    scenario.world.run()

    assert worker.answers == [[]]
    assert started["b2"] < 1.0
    assert scenario.memory.items["a1"]["status"] == "COMPLETED"


def test_a_claim_that_stays_throttled_does_not_hold_back_its_neighbours() -> None:
    """The others of its chunk are run and recorded long before the throttled claim fails."""
    scenario = Scenario()
    ended: list[tuple[str, float]] = []

    class HotInsert(HotKey):
        def insert(self, records: Any) -> Any:
            answers = iter(scenario.store.insert([record for record in records if record.id != self.id]))
            return [NotApplied("hot", retry=True) if record.id == self.id else next(answers) for record in records]

    def handle(body: dict) -> None:  # type: ignore[type-arg]  # what users write
        ended.append((body["m"], scenario.world.now))

    worker = Worker(scenario.world, HotInsert(scenario, "1", until_seconds=1e9), handle)  # type: ignore[arg-type]
    worker.deliver(*[sqs_record(str(n), f'{{"m": "{n}"}}') for n in range(5)])
    scenario.world.run()

    assert worker.answers == [["1"]]
    assert [name for name, _ in ended] == ["0", "2", "3", "4"]
    assert max(when for _, when in ended) < 0.02
