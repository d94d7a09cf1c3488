"""Outside Lambda, in virtual time: handlers that run for hours under leases of a minute, and longer than SQS allows."""

from __future__ import annotations

from random import Random

import pytest

from idempotent_receiver import Message, sqs_consumer
from idempotent_receiver.testing.worker import SILENT
from idempotent_receiver.worker.process import Limits
from tests.simulation.scenario import Run, Scenario
from tests.simulation.sqs_model import QueueModel
from tests.simulation.worker_process import Sqs, WorkerProcess, threads_of

HOUR = 3600.0
LEASE_SECONDS = 60.0


class Deployment(Scenario):
    def __init__(
        self,
        seconds: dict[str, float],
        *,
        processes: int,
        concurrency: int = 1,
        most_receives: int = 1000,
        time_limit_seconds: float = 20 * HOUR,
        receive: int = 10,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.model = QueueModel(Random(seed), False, visibility_seconds=0.0, most_receives=most_receives)
        for id in seconds:
            self.model.send(id, None, 0.0)
        self.client = Sqs(self.world, self.model)
        limits = Limits(
            concurrency=concurrency,
            lease_seconds=LEASE_SECONDS,
            time_limit_seconds=time_limit_seconds,
            receive=receive,
        )

        def process(name: str) -> WorkerProcess:
            @sqs_consumer(self.store, logger=SILENT, metrics=SILENT)
            def handle(body: str, message: Message) -> str:
                run = Run(message.key, name, message.attempt, self.world.now)
                self._require_alone(run)
                self.runs.append(run)
                self.world.sleep(seconds[message.id])
                run.ended = self.world.now
                return "done"

            return WorkerProcess(self.world, handle, self.client, name, limits)

        self.processes = [process(f"p{number}") for number in range(processes)]

    def work(self, hours: float) -> None:
        """Work for so long, then drain."""
        for process in self.processes:
            self.world.spawn(process.stop, after=hours * HOUR)
        with threads_of(self.world):
            self.run()

    @property
    def killed(self) -> list[str]:
        return [process.killed_because for process in self.processes if process.killed_because is not None]

    def ran(self) -> dict[str, int]:
        ended = [run.key for run in self.runs if run.ended is not None]
        return {key: ended.count(key) for key in ended}

    def _require_alone(self, run: Run) -> None:
        alive = {process.name for process in self.processes if process.killed_because is None}
        others = [one for one in self.runs if one.key == run.key and one.ended is None and one.worker in alive]
        self.require(not others, f"{run} while {others} is under way")


def test_a_handler_of_two_hours_runs_once_under_leases_of_a_minute() -> None:
    deployment = Deployment({"m": 2 * HOUR}, processes=2)

    deployment.work(hours=2.5)

    writes = [name for name, _ in deployment.store.calls if name != "read"]
    renewals = len(writes) - len(["the claim", "the completion"])
    assert deployment.ran() == {"m": 1}
    assert deployment.killed == []
    assert deployment.model.empty
    assert deployment.model.messages["m"].receives == 1
    assert 355 <= renewals <= 2 * HOUR / (LEASE_SECONDS / 3)
    assert deployment.client.changes == renewals


@pytest.mark.parametrize(("processes", "concurrency"), [(2, 1), (1, 2)])
def test_a_handler_that_outlives_the_twelve_hours_of_sqs_still_runs_once(processes: int, concurrency: int) -> None:
    """Its message is redelivered, to another process or to its own, and waits for a lease that is alive. A later
    receive finds the record completed.
    """
    deployment = Deployment({"m": 13 * HOUR}, processes=processes, concurrency=concurrency)

    deployment.work(hours=14)

    assert deployment.client.refused > 0
    assert deployment.ran() == {"m": 1}
    assert deployment.status("m") == "COMPLETED"
    assert deployment.model.empty
    # The twelve hours are over after one receive; then a backoff that grows to a quarter of an hour.
    assert 2 < deployment.model.messages["m"].receives < 20


def test_a_queue_that_redrives_meanwhile_loses_nothing() -> None:
    deployment = Deployment({"m": 13 * HOUR}, processes=2, most_receives=5)
    message = deployment.model.messages["m"]

    def redrive() -> None:
        assert message.dead_because == "received 5 times"
        message.dead_because, message.receives, message.visible_at = None, 0, deployment.world.now

    deployment.world.spawn(redrive, after=13.5 * HOUR)

    deployment.work(hours=14)

    assert deployment.ran() == {"m": 1}
    assert (message.receives, message.deleted) == (1, True)


def test_others_go_on_beside_a_handler_that_runs_for_hours() -> None:
    short = {f"s{number}": 30.0 for number in range(30)}
    deployment = Deployment({"m": 2 * HOUR, **short}, processes=1, concurrency=2)

    deployment.work(hours=2.5)

    assert deployment.ran() == dict.fromkeys(["m", *short], 1)
    assert deployment.model.empty
    assert all(run.ended is not None and run.ended < HOUR for run in deployment.runs if run.key != "m")


def test_a_message_that_is_delivered_twice_to_one_process_runs_once_there() -> None:
    deployment = Deployment({"m": 100.0}, processes=1, concurrency=2)
    deployment.model.duplicates = 0.5

    deployment.work(hours=0.5)

    assert deployment.model.messages["m"].receives > 1
    assert deployment.ran() == {"m": 1}
    assert deployment.model.empty


def test_a_process_that_is_parted_from_its_store_is_dead_before_its_lease_ends() -> None:
    deployment = Deployment({"m": 600.0}, processes=2)
    deployment.world.spawn(lambda: deployment.store.down("replace", "read"), after=100)
    deployment.world.spawn(deployment.store.up, after=145)

    deployment.work(hours=0.5)

    assert deployment.killed == ["the timer"]
    assert [run.ended is None for run in deployment.runs] == [True, False]
    assert deployment.model.empty


def test_a_handler_that_does_not_end_is_ended_at_its_time_limit() -> None:
    deployment = Deployment({"m": 10 * HOUR}, processes=2, time_limit_seconds=HOUR)

    deployment.work(hours=3)

    assert len(deployment.killed) == 2
    first, second = deployment.runs
    assert HOUR < second.started - first.started < HOUR + 3 * LEASE_SECONDS
    assert deployment.status("m") == "INPROGRESS"
    assert not deployment.model.empty
