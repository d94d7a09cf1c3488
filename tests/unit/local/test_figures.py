"""The dashboard's figures are what the log says."""

from __future__ import annotations

import json

from local.figures import taken

METRICS = {
    "_aws": {"CloudWatchMetrics": [{"Metrics": [{"Name": "Completed"}, {"Name": "Failed"}]}]},
    "Completed": [3.0, 1.0],
    "Failed": [0.0],
}


def test_metrics_durations_failures_and_errors_are_read_from_the_lines() -> None:
    figures = taken(
        [
            (0.1, "START RequestId: 1 Version: $LATEST"),
            (0.2, json.dumps({"level": "WARNING", "error_type": "ConnectionError"})),
            (0.2, json.dumps({"level": "ERROR", "error_type": "InvalidBody"})),
            (0.3, json.dumps({"level": "ERROR", "error_type": "InvalidBody"})),
            (0.4, json.dumps(METRICS)),
            (0.5, "REPORT RequestId: 1\tDuration: 81.5 ms\tBilled Duration: 82 ms"),
            (0.6, "2026-11-21T01:00:00Z 2 Task timed out after 10.00 seconds"),
        ],
        timeout_ms=10_000,
    )
    assert figures.metrics == {"Completed": [(0.4, 4.0)], "Failed": [(0.4, 0.0)]}
    assert figures.durations_ms == [(0.5, 81.5)]
    assert figures.failures == {"InvalidBody": 2, "ConnectionError": 1}
    assert figures.errors == [0.6]
