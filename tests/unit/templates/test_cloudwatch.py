"""The model of CloudWatch's alarms agrees with AWS's own examples."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cloudwatch import CloudWatch, state_of

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
