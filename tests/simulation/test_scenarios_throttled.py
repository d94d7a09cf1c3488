"""One record of a batch stays throttled: the others do not wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol.store import NotApplied
from tests.simulation.faults import partly, throttled
from tests.simulation.scenario import Scenario, batch, instant
from tests.simulation.world import FIFO, sqs_record

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


def test_a_record_that_stays_throttled_does_not_hold_back_its_neighbours(scenario: Scenario) -> None:
    records = [sqs_record(id, queue=FIFO, group=id[0]) for id in ("a1", "b1", "b2")]

    assert scenario.answer(instant, *records, store=HotKey(scenario, "a1", until_seconds=8.0)) == []
    assert next(run.started for run in scenario.runs if run.key == "b2") < 1.0
    assert scenario.status("a1") == "COMPLETED"


def test_a_claim_that_stays_throttled_does_not_hold_back_its_neighbours(scenario: Scenario) -> None:
    hot = NotApplied("throttled", retry=True)
    scenario.store.next("insert", partly(True, False, True, True, True, otherwise=hot), *[throttled] * 99)

    assert scenario.answer(instant, *batch(5)) == ["1"]
    assert scenario.keys_run == ["0", "2", "3", "4"]
    assert max(run.ended for run in scenario.runs if run.ended is not None) < 0.02
