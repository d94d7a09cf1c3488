"""A world in virtual time: its jobs run in the order of their times, and a dead one never again."""

from __future__ import annotations

from typing import Any

import pytest
from greenlet import getcurrent

from idempotent_receiver.testing import sqs_event
from idempotent_receiver.testing.worker import Worker, failed_ids
from idempotent_receiver.testing.world import START_EPOCH_SECONDS, World, WorldClock, WorldExecutor


@pytest.fixture
def world() -> World:
    return World()


def test_jobs_run_in_the_order_of_their_times_and_of_their_start_at_the_same_time(world: World) -> None:
    ran: list[tuple[str, float]] = []

    def job(name: str, seconds: float) -> Any:
        def run() -> None:
            world.sleep(seconds)
            ran.append((name, world.now))

        return run

    for name, seconds, after in (("a", 2, 0.0), ("b", 1, 0.0), ("c", 0, 1.0), ("d", 0, 5.0)):
        world.spawn(job(name, seconds), after)
    world.run()
    assert ran == [("b", 1), ("c", 1), ("a", 2), ("d", 5)]


def test_a_job_that_is_killed_does_nothing_more_even_if_it_is_woken(world: World) -> None:
    ran: list[str] = []

    def job() -> None:
        ran.append("begins")
        world.sleep(2)
        ran.append("ends")

    victim = world.spawn(job)

    def kills() -> None:
        world.kill(victim)
        world.wake(victim)

    world.spawn(kills, after=1)
    world.run()
    assert ran == ["begins"]


def test_a_wait_ends_when_it_is_woken_or_later_if_it_is_delayed(world: World) -> None:
    ends: dict[str, float] = {}

    def job(name: str) -> Any:
        def run() -> None:
            world.sleep(10)
            ends[name] = world.now

        return run

    early, late, _ = (world.spawn(job(name)) for name in ("early", "late", "other"))

    def changes() -> None:
        world.wake(early)
        world.delay([late], 3)

    world.spawn(changes, after=1)
    world.run()
    assert ends == {"early": 1, "other": 10, "late": 13}


def test_clocks_differ_by_their_skew_and_stand_while_suspended(world: World) -> None:
    world.now = 10.0
    right, ahead = WorldClock(world), WorldClock(world, skew_seconds=2, name="v", suspended_seconds=4)
    assert ahead.epoch_ms() - right.epoch_ms() == 2_000
    assert right.epoch_ms() == (START_EPOCH_SECONDS + 10) * 1_000
    assert (right.monotonic_seconds(), ahead.monotonic_seconds()) == (10, 6)
    drawn = [*ahead.versions(2), *ahead.versions(1), *right.versions(1)]
    assert len({*drawn}) == 4


def test_an_executors_job_is_told_and_a_killed_one_is_not(world: World) -> None:
    told: list[object] = []

    def run() -> None:
        executor, dead = WorldExecutor(world), WorldExecutor(world)
        executor.start(lambda: world.sleep(1) or "done", told.append)
        dead.start(lambda: world.sleep(1) or "dead", told.append)
        dead.kill()
        executor.step(None)
        told.append(world.now)
        dead.step(5)
        told.append(world.now)

    world.spawn(run)
    world.run()
    assert told == ["done", 1.0, 6.0]
    assert getcurrent() is world._hub


class Consumers:
    """What a worker runs: it takes so many seconds, and then answers."""

    def __init__(self, seconds: float, answer: Any) -> None:
        self.seconds, self.answer = seconds, answer

    def __call__(self, *, clock: Any, executor: Any) -> Any:
        def handler(event: Any, context: Any) -> Any:
            self.left = context.get_remaining_time_in_millis()
            clock.sleep(self.seconds)
            if isinstance(self.answer, Exception):
                raise self.answer
            return self.answer

        return handler


ERROR = ValueError("refused")
FAILED = {"batchItemFailures": [{"itemIdentifier": "message-1"}]}


@pytest.mark.parametrize(
    ("seconds", "answer", "answers"),
    [(29.0, FAILED, [["message-1"]]), (29.0, ERROR, [ERROR]), (31.0, FAILED, [])],
    ids=["answers", "raises", "too late"],
)
def test_a_worker_answers_unless_its_time_is_up(world: World, seconds: float, answer: Any, answers: list[Any]) -> None:
    """Lambda's timeout kills it then, and ends with its answer."""
    consumer: Any = Consumers(seconds, answer)
    worker = Worker(world, consumer, "w")
    worker.deliver(*sqs_event("a")["Records"], after=2.0)
    world.run()
    assert (worker.answers, consumer.left) == (answers, 30_000)
    assert world.now == 2 + min(seconds, 30.0)


def test_an_answer_has_its_failures_and_nothing_else() -> None:
    assert failed_ids(FAILED) == ["message-1"]
    with pytest.raises(AssertionError):
        failed_ids({**FAILED, "statusCode": []})
