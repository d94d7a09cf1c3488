"""What a worker process holds: messages that come again while they still run here, and handlers that run too long."""

from __future__ import annotations

import pytest

from idempotent_receiver.worker.in_flight import InFlight
from tests.manual_clock import ManualClock


def received(id: str, handle: str) -> dict[str, str]:
    return {"messageId": id, "receiptHandle": handle}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def in_flight(clock: ManualClock) -> InFlight:
    return InFlight(clock)


def test_a_message_that_comes_again_is_answered_and_its_first_receive_still_runs(in_flight: InFlight) -> None:
    in_flight.hold([received("m", "first")])
    in_flight.started("first")
    in_flight.hold([received("m", "second")])
    assert in_flight.room(2, 0) == 0

    in_flight.answered(["second"])

    assert in_flight.handles == ["first"]
    assert in_flight.room(2, 0) == 1
    assert not in_flight.emptied(0)
    in_flight.returned("first")
    in_flight.answered(["first"])
    assert in_flight.emptied(0)


def test_a_handler_may_return_after_its_batch_has_failed(in_flight: InFlight) -> None:
    in_flight.hold([received("m", "first")])
    in_flight.started("first")

    assert in_flight.answered(["first"]) == ["m"]
    in_flight.returned("first")

    assert in_flight.room(1, 0) == 1


def test_a_handler_is_overdue_by_its_own_time_not_by_its_messages(in_flight: InFlight, clock: ManualClock) -> None:
    in_flight.hold([received("waits", "a"), received("runs", "b")])
    clock.seconds += 5
    in_flight.started("b")
    clock.seconds += 10

    assert in_flight.overdue(10) == []
    clock.seconds += 0.1
    assert in_flight.overdue(10) == ["runs"]
    in_flight.returned("b")
    assert in_flight.overdue(10) == []


def test_a_long_run_is_remembered_for_some_quick_ones(in_flight: InFlight, clock: ManualClock) -> None:
    """So that one quick message among long ones does not make a process receive ten of them."""
    measured = [in_flight.run_seconds]
    for seconds in (8.0, 0.5, 0.5, 7.0):
        in_flight.started("a")
        clock.seconds += seconds
        in_flight.returned("a")
        measured.append(in_flight.run_seconds)

    assert measured == [None, 8.0, 6.0, 4.5, 7.0]


def test_handlers_wake_those_who_wait_only_when_one_more_could_start(in_flight: InFlight) -> None:
    """Each waking costs the handlers a switch of threads."""
    woken: list[str] = []
    in_flight._changed.notify_all = lambda: woken.append(step)  # type: ignore[method-assign]
    in_flight.hold([received("m", handle) for handle in "abc"])

    for handle in "abc":
        step = f"{handle} starts"
        in_flight.started(handle)
        step = f"{handle} returns"
        in_flight.returned(handle)

    assert woken == ["c starts", "c returns"]
