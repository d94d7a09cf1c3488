"""What the dashboard and the alarms watch is what the deployed function prints; and what AWS counts by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.deployed import at, eventually

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Aws, Deployed

OURS = "IdempotentReceiver"

Watched = tuple[str, str, str, str]
"""A metric: its namespace and name, and the name and value of its one dimension."""


@pytest.fixture(scope="module")
def bank(deployed: Deploy) -> Deployed:
    """A stack of its own: the messages that it gets are in other tests' stories too."""
    return deployed("seen")


@pytest.fixture(scope="module")
def lines(aws: Aws, bank: Deployed) -> list[dict[str, Any]]:
    """Everything that the function has said, as it was printed, once it has handled good and bad messages."""
    for account in ("alice", "bob", "carol"):
        bank.open_account(account, 10_000)
    for event in ("fresh", "redelivered", "bad-body", "permanent-failure"):
        bank.invoke(bank.recorded(event))
    at(bank).post({"from_account": "alice", "to_account": "bob", "amount": 1, "currency": "USD"}, "seen")

    def all_is_said(found: list[dict[str, Any]]) -> bool:
        return {"error_type", "Permanent", "Mismatches"} <= {name for each in found for name in each}

    return eventually(lambda: bank.log_lines() + bank.log_lines("ApiLogGroup"), all_is_said, what="the logs are there")


@pytest.fixture(scope="module")
def printed(lines: list[dict[str, Any]]) -> set[Watched]:
    """The metrics of all lines in the embedded metric format, by AWS's rules for it."""
    found = set()
    for line in lines:
        for directive in line.get("_aws", {}).get("CloudWatchMetrics", []):
            for dimensions in directive["Dimensions"]:
                (dimension,) = dimensions
                for metric in directive["Metrics"]:
                    assert metric["Name"] in line, "a metric without a value"
                    found.add((directive["Namespace"], metric["Name"], dimension, line[dimension]))
    assert found, "nothing was printed: this run proves nothing"
    return found


@pytest.fixture(scope="module")
def widgets(aws: Aws, bank: Deployed) -> list[dict[str, Any]]:
    names = [bank.stack.outputs[name] for name in ("DashboardName", "ApiDashboardName")]
    bodies = [aws.client("cloudwatch").get_dashboard(DashboardName=name)["DashboardBody"] for name in names]
    return [each["properties"] for body in bodies for each in json.loads(body)["widgets"]]


def shown(widgets: list[dict[str, Any]]) -> set[Watched]:
    return {tuple(line[:4]) for each in widgets for line in each.get("metrics", [])}  # type: ignore[misc]


def alarmed(aws: Aws, bank: Deployed) -> set[Watched]:
    found = set()
    for alarm in aws.client("cloudwatch").describe_alarms(AlarmNamePrefix=bank.stack.name)["MetricAlarms"]:
        (dimension,) = alarm["Dimensions"]
        found.add((alarm["Namespace"], alarm["MetricName"], dimension["Name"], dimension["Value"]))
    return found


def test_every_metric_of_ours_that_is_watched_was_printed(
    aws: Aws, bank: Deployed, widgets: list[dict[str, Any]], printed: set[Watched]
) -> None:
    for watched in (shown(widgets), alarmed(aws, bank)):
        ours = {each for each in watched if each[0] == OURS}
        assert ours
        assert ours - printed == set()


def test_failures_are_counted_by_fields_that_were_printed(
    bank: Deployed, widgets: list[dict[str, Any]], lines: list[dict[str, Any]]
) -> None:
    (query,) = [each["query"] for each in widgets if "query" in each]
    assert f"SOURCE '{bank.stack.outputs['ConsumerLogGroup']}'" in query
    failures = [line for line in lines if "error_type" in line]
    for field in ("error_type", "message_id", "reason"):
        assert field in query
        assert all(field in line for line in failures)
    types = {line["error_type"] for line in failures}
    assert {"InvalidBody", "PermanentError"} <= types
