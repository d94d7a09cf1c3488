"""The end of an invocation: for how long it waits for what is left behind, and what it leaves to SQS."""

from __future__ import annotations

import pytest

from idempotent_receiver import MemoryStore, PermanentError
from idempotent_receiver.testing.worker import SILENT
from tests.consumers import controlled
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.queues import Queues
from tests.simulation.world import sqs_record
from tests.unit.batch.at_once import AtOnce


class Closed(AtOnce):
    """An executor that notes for how long it is told to wait at its end."""

    within: float | None = -1

    def close(self, within_seconds: float | None) -> None:
        Closed.within = within_seconds


@pytest.mark.parametrize(
    ("fails", "body", "took_seconds", "within"),
    [
        (False, "{}", 0, 1.0),
        (False, "no JSON", 0, 1.0),
        (False, "{}", 29.5, 0.25),
        (True, "{}", 0, None),
    ],
)
def test_only_behind_a_handler_that_has_raised_an_invocation_waits_without_a_bound(
    fails: bool, body: str, took_seconds: float, within: float | None
) -> None:
    """What it left behind must not wake up beside its next attempt. A body that does not validate starts nothing."""
    clock = ManualClock()

    @controlled(MemoryStore(), clock=clock, executor=Closed, metrics=SILENT, logger=SILENT)
    def handle(order: dict) -> None:
        clock.seconds += took_seconds
        if fails:
            raise ValueError

    handle({"Records": [sqs_record("1", body)]}, Context(clock, 30))

    assert Closed.within == within


def test_a_dead_letter_of_ours_that_is_not_confirmed_backs_off_because_sqs_moves_nothing() -> None:
    clock = ManualClock(fraction=0.999_999)
    sqs, event = Queues(clock), {"Records": [sqs_record("1", "{}", receives=3)]}
    sqs.broken, sqs.error = {"send_message"}, ConnectionError()

    @controlled(
        MemoryStore(),
        sqs=sqs,  # type: ignore[arg-type]  # as far as the consumer asks
        dead_letter_queue=sqs.create("dead").url,
        clock=clock,
        executor=AtOnce,
        metrics=SILENT,
        logger=SILENT,
    )
    def handle(order: dict) -> None:
        raise PermanentError("closed")

    handle(event, Context(clock, 30))

    assert sqs.hidden_seconds(event) == {"1": 16}
