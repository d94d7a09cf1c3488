"""How messages go back to SQS from a worker."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from idempotent_receiver import MemoryStore
from idempotent_receiver.batch.items import Work
from idempotent_receiver.errors import Failure, RetryLater, failure_of
from idempotent_receiver.handler.outcome import Failed, HeldElsewhere, NotStarted, Outcome
from idempotent_receiver.sqs.message import Message
from idempotent_receiver.sqs.visibility import LONGEST_VISIBILITY_SECONDS, Backoff
from idempotent_receiver.worker.host import QueueAnswers, WorkerHost
from idempotent_receiver.worker.in_flight import InFlight
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.reports import Reports
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


def seconds_of(outcome: Outcome, fraction: float) -> int:
    acknowledgements = Acknowledgements()
    answers = QueueAnswers(acknowledgements, Backoff(), ManualClock(fraction), left_to_sqs=True)  # type: ignore[arg-type]
    answers.give(MESSAGE, outcome, LONGEST_VISIBILITY_SECONDS, {})
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


class Batch:
    """A batch's host, of messages in these groups of a FIFO queue, and when each came again."""

    def __init__(self, *groups: str) -> None:
        self.clock = ManualClock(0.99)
        self.told, self.in_flight = Acknowledgements(), InFlight(self.clock)
        answers = QueueAnswers(self.told, Backoff(), self.clock, left_to_sqs=True)  # type: ignore[arg-type]
        messages = [replace(MESSAGE, attributes={"MessageGroupId": group}, queue_arn="q.fifo") for group in groups]
        timer: Any = None  # nothing is claimed
        self.host = WorkerHost(
            messages,
            [Work("", Failure("E"), lambda attempt: None) for _ in groups],
            leases=Leases(MemoryStore(), self.clock, timer, lost, lease_seconds=60, margin_seconds=3),
            batch=None,
            in_flight=self.in_flight,
            answers=answers,
            reports=Reports(None, "me"),
            draining=lambda: False,
            suspects={"suspect"},
            slots=threading.Semaphore(1),
        )


def lost(id: str, why: str) -> None:
    raise AssertionError(why)


@pytest.mark.parametrize(
    ("queue_arn", "id", "receives", "released"),
    [("q", "m", "1", True), ("q", "m", "2", False), ("q", "suspect", "1", False), ("q.fifo", "m", "1", False)],
)
def test_what_goes_back_from_behind_a_long_handler(queue_arn: str, id: str, receives: str, *, released: bool) -> None:
    """What was received for the first time from a standard queue, and has ended no process."""
    attributes = {"ApproximateReceiveCount": receives, "MessageGroupId": "g"}
    batch = Batch("g")
    batch.host._messages = [replace(MESSAGE, id=id, queue_arn=queue_arn, attributes=attributes)]
    assert batch.host.releases(0) is released


@pytest.mark.parametrize(("outcome", "seconds"), [(NotStarted(), 0), (NotStarted(released=False), 2)])
def test_what_goes_back_is_visible_at_once_if_its_claim_is_released(outcome: Outcome, seconds: int) -> None:
    """Else whoever receives it would only find it in progress."""
    batch = Batch("g")
    batch.host._messages = [replace(MESSAGE, attributes={"ApproximateReceiveCount": "1"})]
    assert batch.host.releases(0)
    batch.host.ended(0, outcome)
    assert batch.told.changed == [seconds]


LATER = Failed(failure_of(RetryLater(seconds=3600)))


def test_a_message_that_chose_its_delay_takes_those_that_stopped_behind_it_along() -> None:
    """SQS gives them out after it in any case; visible before it, they would count as a backlog."""
    batch = Batch("g", "g", "h", "g")
    for place, outcome in enumerate([LATER, NotStarted(), NotStarted(), NotStarted()]):
        batch.host.ended(place, outcome)
    assert batch.told.changed == [3600, 3600, 2, 3600]


def test_what_a_draining_process_gives_back_first_shortens_no_delay() -> None:
    batch = Batch("g", "g")
    batch.host.ended(1, NotStarted())
    batch.host.ended(0, LATER)
    assert batch.told.changed == [2, 3600]


def test_nobody_renews_what_is_being_given_back() -> None:
    """A renewal that began between the two would be the last that SQS is told."""
    batch = Batch("g")
    batch.in_flight.hold([{"receiptHandle": "h", "messageId": "m"}])
    found: list[list[str]] = []
    renews = threading.Thread(target=lambda: found.append(batch.in_flight.handles))

    def change(handle: str, seconds: int) -> None:
        renews.start()
        renews.join(0.1)

    batch.told.change = change  # type: ignore[method-assign]
    batch.host.ended(0, LATER)
    renews.join()

    assert found == [[]]


@pytest.mark.parametrize(("hours", "seconds"), [(0, 3600), (11, LONGEST_VISIBILITY_SECONDS - 11 * 3600), (12, 0)])
def test_a_delay_ends_within_sqss_twelve_hours_however_long_its_handler_ran(hours: int, seconds: int) -> None:
    """SQS would refuse a longer one, and the message would come again at the end of its lease."""
    batch = Batch("g")
    batch.clock.seconds += hours * 3600
    batch.host.ended(0, LATER)
    assert batch.told.changed == [seconds]


def test_an_outcome_is_reported_before_the_process_that_waits_for_it_may_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its supervisor would take the message for one that a dead process held, and suspect it."""
    batch, order = Batch("g"), list[str]()
    monkeypatch.setattr(batch.host._reports, "ended", lambda handle: order.append("reported"))
    monkeypatch.setattr(batch.host._in_flight, "answered", lambda handles, give: order.append("answered"))
    batch.host.ended(0, NotStarted())
    assert order == ["reported", "answered"]
