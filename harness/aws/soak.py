"""`python -m harness.aws.soak`: send transfers through a deployed stack for a while, disturb it, and reconcile.

What it takes comes from the environment: STACK, MINUTES, SEED, N for each round, and HOLD, the seconds for which each
disturbance lasts. Its last line is one JSON object, and its status 0 only if in every round every message took effect
once or says why it did not, and each disturbance occurred.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harness.aws.cost import MOST_MESSAGES
from harness.aws.disturbances import DISTURBANCES, disturbing
from harness.program import options_of, run_to_its_end, whole
from harness.run import deployed_client, run_on_stack
from harness.workload.driver import MESSAGES_A_CALL, REMOTE
from harness.workload.transfers import DEATHS, Kind

if TYPE_CHECKING:
    from harness.workload.reconciliation import Reconciliation
    from harness.workload.report import Report
    from harness.workload.stack_client import StackClient

NUMBER = 500
HOLD_SECONDS = 45
LEFT_OUT = {*DEATHS, Kind.AGAIN, Kind.AT_ONCE, Kind.POSTED}
"""Deaths need faults in the code; the others ask the function or the API directly, and would meet the disturbance."""

SPREAD = replace(REMOTE, burst=MESSAGES_A_CALL - 1)
"""A pause after each call, so that some messages come before, some during and some after a disturbance."""


def perform(report: Report) -> int:
    options = options_of(os.environ, number=NUMBER)
    if options.stack is None:
        raise ValueError("STACK is the name of the stack to soak")
    minutes, hold = whole(os.environ, "MINUTES", 60), whole(os.environ, "HOLD", HOLD_SECONDS)
    report.begin(f"{minutes} minutes of {options.number} transfers a round", f"while {options.stack} is disturbed")
    client = deployed_client(options.stack, report)
    totals, complaints, rounds = Counter[str](), list[str](), 0
    begun, ends = datetime.now(UTC), time.monotonic() + minutes * 60
    # Each disturbance once at least, however short the soak.
    while rounds < len(DISTURBANCES) or (time.monotonic() < ends and totals["sent"] < MOST_MESSAGES):
        name = [*DISTURBANCES][rounds % len(DISTURBANCES)]
        said = report.step(f"round {rounds + 1}")
        with disturbing(DISTURBANCES[name], client, hold):
            found = run_on_stack(client, replace(options, seed=options.seed + rounds), LEFT_OUT, report, SPREAD)
        found = replace(found, disturbed=True)
        said(f"{name}: {'; '.join(found.complaints) or 'every message took effect once, or says why it did not'}")
        complaints += [f"round {rounds + 1}, {name}: {each}" for each in found.complaints]
        totals += Counter(_counts(found, name))
        rounds += 1
    totals += Counter(_metered(client, begun))
    for each in complaints:
        report.failed(f"  ✗ {each}")
    sys.stdout.write(json.dumps({**totals, "rounds": rounds, "complaints": complaints}) + "\n")
    return 1 if complaints else 0


def _counts(found: Reconciliation, disturbance: str) -> dict[str, int]:
    counts = {name: value for name, value in found.line().items() if type(value) is int}
    attempts = sum(int(record.get("attempts", 1)) - 1 for record in found.records.values())
    return counts | {"attempted again": attempts, disturbance: 1}


def _metered(client: StackClient, since: datetime) -> dict[str, int]:
    """What AWS itself has counted: by this one sees that a disturbance was felt. The last minutes may be missing."""
    function, table = client.stack.resources["Consumer"], client.stack.resources["Records"]
    asked = [
        ("AWS/Lambda", "Errors", "FunctionName", function),
        ("AWS/Lambda", "Throttles", "FunctionName", function),
        ("AWS/DynamoDB", "WriteThrottleEvents", "TableName", table),
    ]
    found = {}
    for namespace, metric, dimension, value in asked:
        answer = client.clients.client("cloudwatch").get_metric_statistics(
            Namespace=namespace,
            MetricName=metric,
            Dimensions=[{"Name": dimension, "Value": value}],
            StartTime=since,
            EndTime=datetime.now(UTC),
            Period=3600,
            Statistics=["Sum"],
        )
        found[f"{namespace} {metric}"] = int(sum(point["Sum"] for point in answer["Datapoints"]))
    return found


if __name__ == "__main__":
    sys.exit(run_to_its_end(perform))
