"""A batch that runs out of time: everything is answered in time, or left to Lambda's time-out."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from idempotent_receiver import Message
from tests.simulation.faults import Call, throttled
from tests.simulation.scenario import Scenario, batch, ids, instant
from tests.simulation.world import sqs_record

ANSWER_BY = 0.25
"""At the latest this long before the deadline, an answer leaves."""


@pytest.mark.scenario("S37", mutant="the longest run is ignored")
def test_a_batch_that_would_overrun_returns_in_time_with_the_rest_released(scenario: Scenario) -> None:
    assert scenario.answer(scenario.taking(2), *batch(5), seconds=7) == ["2", "3", "4"]
    assert scenario.keys_run == ["0", "1"]
    assert scenario.world.now < 7 - 1
    assert scenario.live_claims() == []
    assert [scenario.status(str(n)) for n in range(5)] == ["COMPLETED"] * 2 + ["INPROGRESS"] * 3


def test_no_handler_starts_that_the_longest_run_so_far_says_would_overrun(scenario: Scenario) -> None:
    durations = iter([3.0, 0.1, 0.1, 0.1])

    def handle(body: dict) -> None:
        scenario.world.sleep(next(durations))

    assert scenario.answer(handle, *batch(4), seconds=7.15) == ["3"]
    assert [run.started for run in scenario.runs] == pytest.approx([0.005, 3.005, 3.105], abs=0.01)


@pytest.mark.parametrize("concurrency", [1, 2])
def test_no_coroutine_starts_that_the_longest_so_far_says_would_overrun(scenario: Scenario, concurrency: int) -> None:
    async def handle(body: dict) -> None:
        await asyncio.sleep(4)

    assert len(scenario.answer(handle, *batch(3 * concurrency), seconds=11, concurrency=concurrency)) == concurrency
    assert len(scenario.runs) == 2 * concurrency
    assert scenario.live_claims() == []


def test_released_messages_run_at_their_next_delivery_at_once_and_as_a_first_attempt(scenario: Scenario) -> None:
    assert scenario.answer(scenario.taking(2), *batch(3), seconds=4) == ["1", "2"]
    assert scenario.answer(instant, *batch(3, receives=2)) == []
    assert [(run.key, run.attempt) for run in scenario.runs[1:]] == [("1", 1), ("2", 1)]


@pytest.mark.scenario("S11", mutant="the stop margin is ignored")
@pytest.mark.parametrize("seconds", [0, -3, 0.5, 1.0])
def test_without_time_nothing_is_claimed_and_everything_comes_again(scenario: Scenario, seconds: float) -> None:
    worker, response = scenario.worker(instant), []
    context = SimpleNamespace(aws_request_id="w0", get_remaining_time_in_millis=lambda: int(seconds * 1000))
    scenario.world.spawn(lambda: response.append(worker.handler({"Records": batch(3)}, context)))

    scenario.run()

    assert response == [{"batchItemFailures": [{"itemIdentifier": id} for id in "012"]}]
    assert scenario.requests() == []
    assert scenario.runs == []


@pytest.mark.scenario("S38", mutant="a coroutine that hangs is not cancelled")
@pytest.mark.parametrize("concurrency", [1, 3])
def test_async_handlers_that_hang_are_cancelled_and_awaited_and_their_messages_fail(
    scenario: Scenario, concurrency: int
) -> None:
    cleaned = []

    async def handle(body: dict) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append(scenario.world.now)

    assert scenario.answer(handle, *batch(3), seconds=5, concurrency=concurrency) == ["0", "1", "2"]
    assert scenario.keys_run == ids(concurrency)
    assert cleaned == pytest.approx([4.0] * concurrency, abs=0.01)
    for id in ids(concurrency):
        assert scenario.status(id) == "FAILED"
        assert scenario.error(id)["type"] == "CancelledError"
    assert scenario.live_claims() == []
    assert scenario.world.now < 5 - ANSWER_BY


def test_an_async_handler_that_finishes_in_spite_of_its_cancellation_is_completed(scenario: Scenario) -> None:
    async def handle(body: dict) -> str:
        try:
            await asyncio.sleep(60)
        except BaseException:  # noqa: BLE001  # this is the handler that will not stop
            await asyncio.sleep(0.2)
        return "done"

    assert scenario.answer(handle, *batch(1), seconds=5) == []
    assert scenario.status("0") == "COMPLETED"


@pytest.mark.scenario("S38", mutant="an answer leaves beside a handler that runs")
def test_beside_a_plain_handler_that_hangs_nothing_is_answered(scenario: Scenario) -> None:
    """It could wake up in a later invocation, so Lambda's time-out must kill the process. What finished is recorded."""

    def handle(body: dict, message: Message) -> None:
        scenario.world.sleep(1000 if message.id == "1" else 0.1)

    worker = scenario.deliver(handle, *batch(4), seconds=5)

    assert scenario.answers_of(worker) == []
    assert scenario.status("0") == "COMPLETED"
    assert scenario.live_claims() == ["1"]

    scenario.dead.add("w0")

    assert scenario.answer(instant, *batch(4, receives=2), after=4) == []
    assert scenario.keys_run == ["0", "1", "1", "2", "3"]


def test_a_claim_lasts_until_the_process_must_be_dead_and_not_a_second_less(scenario: Scenario) -> None:
    scenario.deliver(scenario.taking(1000), *batch(1), seconds=10)
    early = scenario.deliver(instant, *batch(1, receives=2), after=12.9)
    late = scenario.deliver(instant, *batch(1, receives=3), after=13.1)
    scenario.world.spawn(lambda: scenario.dead.add("w0"), after=10)

    assert scenario.answers_of(early) == [["0"]]
    assert late.answers == [[]]
    assert [run.worker for run in scenario.runs] == ["w0", "w2"]


@pytest.mark.scenario("S08", mutant="a lease without a margin for clocks that differ")
@pytest.mark.parametrize("skew", [-2.9, -2.0, 2.0, 2.9])
def test_clocks_that_are_off_by_less_than_the_lease_margin_let_no_two_run_at_once(skew: float) -> None:
    """Whether the second worker's clock is ahead or behind, the first is dead before its lease ends by either clock."""
    scenario = Scenario()
    scenario.deliver(scenario.taking(1000), *batch(1), seconds=10)
    scenario.world.spawn(lambda: scenario.dead.add("w0"), after=10)
    taker = scenario.worker(instant, skew_seconds=skew)
    for after in range(1, 20):
        taker.deliver(*batch(1, receives=2), after=after)

    scenario.run()

    assert [run.worker for run in scenario.runs] == ["w0", "w1"]
    assert scenario.runs[1].started > 10


@pytest.mark.scenario("S09", mutant="a lease by the wall clock, which may step")
@pytest.mark.parametrize("step", [-3600, -60, 60, 3600])
def test_a_step_of_the_wall_clock_during_an_invocation_changes_neither_lease_nor_deadline(step: float) -> None:
    """The wall clock is read once and advanced by the monotonic one. After a step forward nothing starts."""
    scenario = Scenario()
    worker = scenario.deliver(scenario.taking(2), *batch(4), seconds=7)
    scenario.world.spawn(lambda: setattr(worker.clock, "skew_seconds", step), after=1)
    expires = int(scenario.epoch_seconds) + 30 * 24 * 3600 + 3

    assert scenario.answers_of(worker) == [["1", "2", "3"] if step > 0 else ["2", "3"]]
    assert scenario.memory.items["0"]["expiration"] == expires
    assert scenario.live_claims() == []


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_machine_suspended_in_one_handler_starts_none_that_another_worker_has_done(asynchronous: bool) -> None:
    """By its monotonic clock, which stood still, there would still be time for the other 19."""
    scenario = Scenario()

    def plain(body: dict, message: Message) -> str:
        if message.id == "0":
            scenario.dead.add("w0")
            suspended.suspend(3600)
        return "done"

    async def coroutine(body: dict, message: Message) -> str:
        return plain(body, message)

    suspended = scenario.worker(coroutine if asynchronous else plain)
    suspended.deliver(*batch(20), seconds=30)

    assert scenario.answer(instant, *batch(20, receives=2), after=60) == []
    assert [run.key for run in scenario.runs if run.worker == "w0"] == ["0"]
    assert suspended.answers == [[]]
    assert {item["owner"] for item in scenario.memory.items.values()} == {"w1"}


def test_a_machine_suspended_between_two_claims_sends_no_more_of_them(scenario: Scenario) -> None:
    def handle(body: dict, message: Message) -> str:
        if message.id == "0":
            suspended.suspend(3600)
        return "done"

    suspended = scenario.worker(handle)
    suspended.deliver(*batch(280), seconds=30)

    assert scenario.answers_of(suspended) == [ids(280)[1:]]
    assert scenario.keys_run == ["0"]
    assert len(scenario.memory.items) == 200
    assert scenario.live_claims() == []


def test_a_claim_is_not_sent_again_by_a_machine_that_was_suspended_meanwhile(scenario: Scenario) -> None:
    def suspends(call: Call) -> object:
        suspended.suspend(3600)
        return throttled(call)

    suspended = scenario.worker(instant)
    scenario.store.next("insert", suspends)
    suspended.deliver(*batch(2), seconds=30)

    assert scenario.answers_of(suspended) == [["0", "1"]]
    assert scenario.requests() == [("insert", 2)]
    assert scenario.memory.items == {}


@pytest.mark.parametrize("step", [-3600, 3600])
def test_a_step_of_the_wall_clock_drops_nothing_that_has_run(scenario: Scenario, step: float) -> None:
    worker = scenario.deliver(scenario.taking(2), *batch(6), seconds=30, concurrency=2)
    scenario.world.spawn(lambda: setattr(worker.clock, "skew_seconds", step), after=1)

    assert scenario.answers_of(worker) == [["2", "3", "4", "5"] if step > 0 else []]
    assert [scenario.status(id) for id in "01"] == ["COMPLETED"] * 2
    assert scenario.live_claims() == []


@pytest.mark.scenario("S70", mutant="the most received go last")
def test_the_most_received_messages_of_a_standard_queue_go_first(scenario: Scenario) -> None:
    records = [sqs_record(id, receives=receives) for id, receives in zip("abcdef", (1, 1, 1, 1, 4, 5), strict=True)]

    assert scenario.answer(scenario.taking(1), *records, seconds=20) == []
    assert scenario.keys_run[:2] == ["f", "e"]


def test_messages_that_are_left_over_time_and_again_are_all_done_within_five_receives(scenario: Scenario) -> None:
    receives = dict.fromkeys(ids(10), 0)
    left = ids(10)
    for _ in range(5):
        for id in left:
            receives[id] += 1
        records = [sqs_record(id, receives=receives[id]) for id in left]
        left = scenario.answer(scenario.taking(2), *records, seconds=7.5)

    assert left == []


def test_a_peek_that_is_answered_after_the_time_to_start_is_over_leaves_nothing_behind(scenario: Scenario) -> None:
    scenario.store.half = 2.0

    assert scenario.answer(instant, *batch(2, receives=2), seconds=4.5) == ["0", "1"]
    assert scenario.world.now == pytest.approx(4.0, abs=0.1)
    assert scenario.memory.items == {}


@pytest.mark.scenario("S07", mutant="the stop margin is ignored")
def test_a_claim_that_is_answered_after_the_time_to_start_is_over_is_released(scenario: Scenario) -> None:
    scenario.store.half = 1.5
    worker = scenario.deliver(instant, *batch(2), seconds=3.9)
    scenario.world.spawn(lambda: setattr(scenario.store, "half", 0.005), after=2.9)

    assert scenario.answers_of(worker) == [["0", "1"]]
    assert scenario.runs == []
    assert scenario.live_claims() == []


def test_a_store_that_hangs_does_not_keep_the_answer_past_the_deadline(scenario: Scenario) -> None:
    scenario.store.half = 100

    assert scenario.answer(instant, *batch(3), seconds=5) == ["0", "1", "2"]


@pytest.mark.scenario("S45", mutant="an invocation is kept for the next")
def test_a_second_invocation_of_a_warm_process_knows_nothing_of_the_first(scenario: Scenario) -> None:
    worker = scenario.deliver(scenario.taking(2), *batch(3), seconds=4)
    worker.deliver(*batch(3, receives=2), seconds=30, after=10)

    assert scenario.answers_of(worker) == [["1", "2"], []]
    assert scenario.keys_run == ["0", "1", "2"]
