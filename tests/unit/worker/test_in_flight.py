"""What a worker process holds: messages that come again while they still run here, and handlers that run too long."""

from __future__ import annotations

import pytest

from idempotent_receiver.batch.keys import MOST_KEYING
from idempotent_receiver.batch.settings import AHEAD_SECONDS
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


def test_a_message_whose_key_takes_long_waits_for_no_handler(in_flight: InFlight, clock: ManualClock) -> None:
    in_flight.hold([received("m", "slow")])
    in_flight.keying(["slow"])
    assert in_flight.room(2, 0) == 0

    clock.seconds += AHEAD_SECONDS
    assert in_flight.room(2, 0) == 2

    in_flight.keyed(["slow"])
    assert in_flight.room(2, 0) == 0
    in_flight.started("slow")
    assert in_flight.room(2, 0) == 1


def test_a_process_holds_few_messages_whose_keys_take_long(in_flight: InFlight, clock: ManualClock) -> None:
    """Each keeps a thread."""
    handles = [str(place) for place in range(MOST_KEYING)]
    in_flight.hold([received(handle, handle) for handle in handles])
    in_flight.keying(handles)
    clock.seconds += AHEAD_SECONDS
    assert in_flight.room(2, 0) == 0

    in_flight.answered(handles[:1])
    assert in_flight.room(2, 0) == 2


def test_a_key_may_be_made_after_its_message_was_answered(in_flight: InFlight) -> None:
    in_flight.hold([received("m", "a")])
    in_flight.keying(["a"])
    in_flight.answered(["a"])

    in_flight.keyed(["a"])

    assert in_flight.room(1, 0) == 1
