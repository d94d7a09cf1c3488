"""How messages go back to SQS from a worker."""

from __future__ import annotations

import pytest

from idempotent_receiver.handler.outcome import HeldElsewhere, NotStarted
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.worker.host import Answers
from tests.manual_clock import START_MS, ManualClock


class Acknowledgements:
    """What SQS is told."""

    def __init__(self) -> None:
        self.changed: list[int] = []

    def delete(self, handle: str) -> None:
        raise AssertionError(handle)

    def change(self, handle: str, seconds: int) -> None:
        self.changed.append(seconds)


MESSAGE = Message(id="m", body="", raw_body="", attributes={"ApproximateReceiveCount": "9"}, receipt_handle="h")


def seconds_of(outcome: HeldElsewhere | NotStarted, fraction: float) -> int:
    acknowledgements = Acknowledgements()
    Answers(acknowledgements, Backoff(), ManualClock(fraction), left_to_sqs=True).give(MESSAGE, outcome)  # type: ignore[arg-type]
    [seconds] = acknowledgements.changed
    return seconds


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.99])
def test_what_has_not_started_comes_again_at_once_however_often_it_was_received(fraction: float) -> None:
    """A process that drains gives it back to the others, which have time for it."""
    assert seconds_of(NotStarted(), fraction) <= 2


def test_a_duplicate_of_what_runs_elsewhere_waits_longer_the_more_often_it_was_received() -> None:
    """A lease that is renewed has no end to wait for."""
    assert seconds_of(HeldElsewhere(START_MS + 5_000), 0.5) > 60


def test_a_duplicate_waits_no_longer_for_a_lease_that_is_over() -> None:
    assert seconds_of(HeldElsewhere(START_MS - 5_000), 0.5) == 0
