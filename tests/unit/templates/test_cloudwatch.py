"""The models of CloudWatch's alarms and of SQS's metrics agree with AWS's own examples and rules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cloudwatch import CloudWatch, calculated, state_of
from tests.manual_clock import ManualClock
from tests.queues import IN_FLIGHT, OLDEST, VISIBLE, Queue, Queues

METRIC = ("Shop", "Failures", "service", "orders")


def alarm(**settings: Any) -> dict[str, Any]:
    return {
        "Namespace": "Shop",
        "MetricName": "Failures",
        "Dimensions": [{"Name": "service", "Value": "orders"}],
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 0,
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
        **settings,
    }


def played(watched: dict[str, Any], *values: float | None) -> CloudWatch:
    """One value a minute; None where nothing was sent."""
    made = CloudWatch({"alarm": watched})
    for value in values:
        if value is not None:
            made.put(METRIC, value)
        made.end_minute()
    return made


@pytest.mark.parametrize(
    ("datapoints", "needed", "breaching", "not_breaching"),
    [
        ("0 - X - X", 3, "OK", "OK"),
        ("0 - - - -", 3, "OK", "OK"),
        ("- - - - -", 3, "ALARM", "OK"),
        ("0 X X - X", 3, "ALARM", "ALARM"),
        ("0 - X - X", 2, "ALARM", "ALARM"),
        ("0 - X - -", 2, "ALARM", "OK"),
    ],
)
def test_missing_data_is_treated_as_in_the_tables_of_the_user_guide(
    datapoints: str, needed: int, breaching: str, not_breaching: str
) -> None:
    """Of "How alarm state is evaluated when data is missing": 3 of 3 and 2 of 3, with an evaluation range of 5."""
    points = [{"0": False, "X": True, "-": None}[each] for each in datapoints.split()]

    assert state_of(points, periods=3, needed=needed, missing="breaching") == breaching
    assert state_of(points, periods=3, needed=needed, missing="notBreaching") == not_breaching


def test_five_minutes_are_evaluated_every_minute() -> None:
    """The User Guide: at the end of minute 5 on minutes 1 to 5, at the end of minute 6 on minutes 2 to 6."""
    watched = alarm(Period=300, Threshold=4)

    assert played(watched, 1, 1, 1, 1, 1).rung == [("alarm", 5)]
    assert played(watched, 0, 1, 1, 1, 1, 1).rung == [("alarm", 6)]
    assert played(watched, 5, 0, 0, 0, 0).states == {"alarm": "ALARM"}
    assert played(watched, 5, 0, 0, 0, 0, 0).states == {"alarm": "OK"}


def test_a_missing_value_counts_as_nothing_in_a_sum() -> None:
    """The User Guide, "Using metric math": basic arithmetic treats missing values as 0."""
    series = {"visible": [1, 1, 3, None, None], "in_flight": [None, 2, None, None, 1]}

    assert calculated("DIFF(visible + in_flight)", series) == [2, 0, None, None]


def received(queues: Queues, queue: Queue, times: int) -> None:
    for _ in range(times):
        assert queues.receive_message(QueueUrl=queue.url, VisibilityTimeout=0)["Messages"]


@pytest.mark.parametrize(("name", "ages"), [("orders", [60, 60, 60, None]), ("orders.fifo", [60, 60, 60, 60])])
def test_a_message_that_was_received_three_times_leaves_the_age_of_the_oldest(
    name: str, ages: list[int | None]
) -> None:
    """Of a standard queue, though it has a redrive policy. A FIFO queue keeps it in its place."""
    told = []
    for receives in range(4):
        queues = Queues(clock := ManualClock())
        queue = queues.create(name, queues.create(f"dead-{name}"))
        group = {"MessageGroupId": "g", "MessageDeduplicationId": "1"} if queue.fifo else {}
        queues.send_message(QueueUrl=queue.url, MessageBody="x", **group)
        received(queues, queue, receives)
        clock.seconds += 60
        told.append(queues.metrics(queue).get(OLDEST))

    assert told == ages


def test_a_dead_letters_age_counts_from_its_move() -> None:
    """And so do its receives, until it was read three times."""
    queues = Queues(clock := ManualClock())
    queue = queues.create("orders", dead := queues.create("dead"))
    queues.send_message(QueueUrl=queue.url, MessageBody="x")
    clock.seconds += 600
    received(queues, queue, 5)
    assert queues.receive_message(QueueUrl=queue.url) == {}
    clock.seconds += 60

    assert queues.metrics(queue) == {VISIBLE: 0}
    assert queues.metrics(dead) == {VISIBLE: 1, OLDEST: 60}
    received(queues, dead, 3)
    assert queues.metrics(dead) == {VISIBLE: 1}


def test_what_was_received_is_in_flight_until_it_is_visible_again() -> None:
    queues = Queues(clock := ManualClock())
    queue = queues.create("orders")
    queues.send_message(QueueUrl=queue.url, MessageBody="x")
    assert queues.metrics(queue) == {VISIBLE: 1, OLDEST: 0}
    queues.receive_message(QueueUrl=queue.url, VisibilityTimeout=30)
    assert queues.metrics(queue) == {VISIBLE: 0, IN_FLIGHT: 1, OLDEST: 0}
    clock.seconds += 30
    assert queues.metrics(queue) == {VISIBLE: 1, OLDEST: 30}
