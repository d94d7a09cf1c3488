"""Outside Lambda, in virtual time: how many messages a process receives, and what it releases to the queue."""

from __future__ import annotations

import pytest

from tests.simulation.test_scenarios_renewed import HOUR, Deployment


@pytest.mark.parametrize(
    ("messages", "seconds", "processes", "ends"), [(10, 12.0, 5, 25.0), (9, HOUR / 6, 3, HOUR / 2 + 1)]
)
def test_fresh_processes_share_long_messages(messages: int, seconds: float, processes: int, ends: float) -> None:
    """None knows how long one takes, so each receives what it can start; then each knows that it is long."""
    deployment = Deployment({f"m{number}": seconds for number in range(messages)}, processes=processes)

    deployment.work(hours=0.6)

    assert len(deployment.ran()) == messages
    assert max(run.ended or 0.0 for run in deployment.runs) < ends
    assert {message.receives for message in deployment.model.messages.values()} == {1}


def test_quick_messages_are_received_ten_at_once_after_the_first() -> None:
    deployment = Deployment({f"m{number}": 0.01 for number in range(41)}, processes=1)

    deployment.work(hours=0.02)

    assert deployment.client.receives[:5] == [1, 10, 10, 10, 10]


def test_of_slower_messages_a_process_receives_a_seconds_worth() -> None:
    deployment = Deployment({f"m{number}": 0.3 for number in range(10)}, processes=1)

    deployment.work(hours=0.02)

    assert deployment.client.receives[:4] == [1, 3, 3, 3]


def test_a_process_receives_no_more_than_it_may() -> None:
    deployment = Deployment({f"m{number}": 0.01 for number in range(10)}, processes=1, receive=2)

    deployment.work(hours=0.02)

    assert deployment.client.receives[:5] == [1, 2, 2, 2, 2]


def test_what_waits_behind_a_long_handler_goes_to_another_process() -> None:
    """Its claim is released first, so that it runs there at once."""
    seconds = {f"warm{number}": 0.01 for number in range(20)}
    deployment = Deployment({**seconds, "long": 40.0, **{f"quick{n}": 0.01 for n in range(10)}}, processes=2, seed=1)
    later = [message for id, message in deployment.model.messages.items() if id not in seconds]
    for message in later:
        message.visible_at = 5.0

    deployment.work(hours=0.02)

    [start] = [run.started for run in deployment.runs if run.key == "long"]
    quick = [run for run in deployment.runs if run.key.startswith("quick")]
    behind = [message for message in later if message.receives == 2]
    assert behind
    assert max(run.ended or 0.0 for run in quick) < start + 2
    assert deployment.ran() == dict.fromkeys(deployment.model.messages, 1)
    assert {run.attempt for run in deployment.runs} == {1}
