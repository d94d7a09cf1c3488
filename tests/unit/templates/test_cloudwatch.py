"""The model of CloudWatch's alarms agrees with AWS's own examples."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cloudwatch import CloudWatch, calculated, state_of

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


def test_three_of_three_rings_at_the_third_and_a_lone_breach_does_not() -> None:
    """The User Guide's first figure: periods 3 to 5 breach, 6 does not, 9 does."""
    made = played(alarm(EvaluationPeriods=3, Threshold=3), 1, 2, 4, 5, 4, 2, 1, 2, 4, 2)

    assert made.rung == [("alarm", 5)]


def test_five_minutes_are_evaluated_every_minute() -> None:
    """The User Guide: at the end of minute 5 on minutes 1 to 5, at the end of minute 6 on minutes 2 to 6."""
    watched = alarm(Period=300, Threshold=4)

    assert played(watched, 1, 1, 1, 1, 1).rung == [("alarm", 5)]
    assert played(watched, 0, 1, 1, 1, 1, 1).rung == [("alarm", 6)]
    assert played(watched, 5, 0, 0, 0, 0).states == {"alarm": "ALARM"}
    assert played(watched, 5, 0, 0, 0, 0, 0).states == {"alarm": "OK"}


def test_an_alarm_that_stays_red_rings_once() -> None:
    assert played(alarm(), 1, 1, 1, 0, 1).rung == [("alarm", 1), ("alarm", 5)]


def test_diff_is_what_a_value_adds_to_the_one_before() -> None:
    assert calculated("DIFF(a)", {"a": [1, 4, 2]}) == [3, -2]
    assert calculated("DIFF(a + b)", {"a": [1, 0, 1], "b": [0, 1, 1]}) == [0, 1]
    assert calculated("DIFF(a + b)", {"a": [1, None, 1], "b": [0, 1, 1]}) == [None, None]


def test_a_percentile_is_of_all_values_of_its_window() -> None:
    made = CloudWatch({"alarm": alarm(Statistic=None, ExtendedStatistic="p99", Threshold=50)})
    for value in range(1, 101):
        made.put(METRIC, value / 2)
    made.end_minute()

    assert made.states == {"alarm": "OK"}
    made.put(METRIC, 51)
    made.end_minute()
    assert made.rung == [("alarm", 2)]
