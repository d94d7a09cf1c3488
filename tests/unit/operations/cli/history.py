"""A history into which a test writes."""

from __future__ import annotations

from typing import Any

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.operations.dead_letters.history import Act, ActOutcome, History
from tests.manual_clock import START_MS, ManualClock
from tests.unit.operations.cli.stack import FLAKY, client
from tests.unit.operations.dead_letters.acts import act


class Kept:
    """The history of the stack, into which a test writes at times of its own."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.history = History(client("dynamodb"), "history", self.clock)

    def begin(self, ago_seconds: float, key: str = FLAKY, **changed: Any) -> Act:
        self.clock.stepped_seconds = (SystemClock().epoch_ms() - START_MS) / 1000 - ago_seconds
        (begun,) = self.history.begin([act(key, **{"message_id": key, **changed})])
        return begun

    def done(self, ago_seconds: float, key: str = FLAKY, **changed: Any) -> Act:
        begun = self.begin(ago_seconds, key, **changed)
        self.history.confirm([begun.ended(ActOutcome.DONE)])
        return begun
