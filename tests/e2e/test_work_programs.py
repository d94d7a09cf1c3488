"""Handlers that start processes of their own, in `receiver work` on the local cloud."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.test_work import Place, _alive

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.deployed import Aws

HANDLER = "worker_programs:handle"


@pytest.fixture
def place(aws: Aws, tmp_path: Path) -> Place:
    return Place(aws, tmp_path)


@pytest.mark.parametrize("does", ["reads standard input", "runs a program that reads standard input", "uses a pool"])
def test_what_ends_elsewhere_ends_in_a_worker(place: Place, does: str) -> None:
    """Its standard input is empty, as on Lambda, and what it forks ends at SIGTERM, which is how a pool is ended."""
    place.send("first", does=does)
    place.send("second", does="nothing")

    with place.worker(handler=HANDLER):
        place.wait_for(place.settled, 20)

    place.once()


def test_a_process_that_dies_takes_its_programs_with_it(place: Place) -> None:
    """Three time-outs would else leave three of them at work on one message; here a second time-out and a drain end."""
    place.send("long", does="waits for a program")

    with place.worker("--time-limit", "2", "--drain-seconds", "0.5", handler=HANDLER) as worker:
        place.wait_for(lambda: len(programs(place)) == 2, 30)
        assert not _alive(programs(place)[0])
        worker.terminate()
        assert worker.wait(10) == 0
    place.wait_for(lambda: not any(map(_alive, programs(place))), 2)


def programs(place: Place) -> list[int]:
    """The ids of all that handlers have started, in their order."""
    return [int(run.name) for run in place.runs if run.what == "program"]


def test_a_forked_process_that_comes_back_from_the_handler_goes_no_further(place: Place) -> None:
    """It would run the rest of the batch a second time."""
    for number in range(5):
        place.send(f"neighbour-{number}", does="nothing")
    place.send("forks", does="forks")
    for number in range(5, 9):
        place.send(f"neighbour-{number}", does="nothing")

    with place.worker(handler=HANDLER):
        place.wait_for(place.settled, 20)

    place.once()
    assert len(place.of("forks", "end")) == 2
    assert [len(place.of(name)) for name in place.sent if name != "forks"] == [1] * 9


def test_a_drained_process_waits_for_no_thread_but_those_of_handlers(place: Place) -> None:
    """A job that drains for up to twelve hours would else last that long. What is registered for its exit runs."""
    place.send("first", does="nothing")

    with place.worker("--drain-seconds", "1000", handler=HANDLER) as worker:
        place.wait_for(place.settled, 20)
        worker.terminate()
        assert worker.wait(25) == 0
    assert len(place.of("process", "exit")) == 1
    assert "ended with status" not in (place.folder / "log").read_text()


def test_a_handler_may_close_standard_output(place: Place) -> None:
    """Its process ends as any other, and is not taken for a dead one."""
    place.send("closes", does="closes standard output")

    with place.worker("--max-messages-per-process", "1", handler=HANDLER) as worker:
        place.wait_for(lambda: place.of("process", "exit"), 30)
        worker.terminate()
        assert worker.wait(25) == 0

    place.once()
    assert "ended with status" not in (place.folder / "log").read_text()


def dead_letters_after(receives: int, place: Place) -> str:
    """Give the place's queue a dead-letter queue, and return its URL."""
    sqs, name = place.aws.client("sqs"), place.url.rpartition("/")[2]
    attributes: Any = {"FifoQueue": "true"} if place.fifo else {}
    name = name.removesuffix(place.fifo) + "-dead" + place.fifo
    dead = sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": receives})
    sqs.set_queue_attributes(QueueUrl=place.url, Attributes={"RedrivePolicy": policy})
    return dead


def test_a_message_that_ends_every_process_takes_none_of_its_neighbours_along(place: Place) -> None:
    """It becomes a dead letter. They would too, if each of its deaths used up one of their receives."""
    dead = dead_letters_after(3, place)
    place.send("deadly", does="ends the process")
    for number in range(5):
        place.send(f"neighbour-{number}", does="nothing")

    with place.worker(handler=HANDLER):
        place.wait_for(lambda: len(place.effects()) == 5)
        place.wait_for(lambda: place.messages(dead) == {"0", "1"})
    assert len(place.of("deadly")) == 3
    assert "a worker process ended with status 0; it held " in (place.folder / "log").read_text()


def test_what_ran_together_when_a_process_was_killed_runs_one_by_one_and_not_in_the_dead_letter_queue(
    place: Place,
) -> None:
    """Sent back while one of them runs alone, the last of eight would be received eight times."""
    dead = dead_letters_after(3, place)
    for number in range(8):
        place.send(f"killed-{number}", does="nothing", seconds=2)

    with place.worker("--concurrency", "8", handler=HANDLER):
        place.wait_for(lambda: len(place.runs) == 8)
        os.kill(place.runs[0].pid, signal.SIGKILL)
        place.wait_for(place.settled)
    assert place.messages(dead) == {"0"}
    place.once()


HASTY = """
from unittest import mock

from idempotent_receiver.operations.cli.receiver import main
from idempotent_receiver.worker import supervisor

with mock.patch.object(supervisor, "LONGEST_RESTART_PAUSE_SECONDS", 0.5):
    main()
"""
"""`receiver`, but its supervisor waits no longer than so before it replaces a process."""


def test_of_a_fifo_queue_a_message_that_ends_every_process_dies_alone(aws: Aws, tmp_path: Path) -> None:
    """What follows it in its group is received with it once, and not again."""
    place = Place(aws, tmp_path, fifo=True)
    place.program = ["-c", HASTY]
    dead = dead_letters_after(2, place)
    place.send("deadly", does="ends the process")
    for number in range(4):
        place.send(f"follows-{number}", does="nothing")

    with place.worker("--concurrency", "5", handler=HANDLER):
        place.wait_for(lambda: len(place.effects()) == 4, 60)

    assert place.messages(dead) == {"0", "1"}
    assert len(place.of("deadly")) == 2


def test_messages_that_end_every_process_take_none_of_their_neighbours_along(place: Place) -> None:
    """Each death leaves suspects, and the next one must not make them forgotten."""
    place.program = ["-c", HASTY]
    dead = dead_letters_after(3, place)
    for number in range(40):
        deadly = number % 10 == 3
        place.send(f"{number}", does="ends the process" if deadly else "nothing", seconds=0.1)

    with place.worker("--processes", "2", "--concurrency", "4", handler=HANDLER):
        place.wait_for(lambda: len(place.effects()) == 36)
        place.wait_for(lambda: place.messages(dead) == {"0", "4"})
