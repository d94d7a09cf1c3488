"""`python -m harness.aws.soak`: send transfers through a deployed stack for a while, disturb it, and reconcile.

Settings come from the environment: STACK, MINUTES, SEED, N per round, and HOLD, the seconds that each disturbance
lasts. After each round it prints the results of all rounds so far as one JSON object, so that no interruption loses
them. The status is 0 only if, in every round, each message took effect once or has a recorded reason why not, and each
disturbance occurred.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from harness.aws.cost import MOST_MESSAGES
from harness.aws.disturbances import DISTURBANCES, UPDATED, disturbing
from harness.program import options_of, run_to_its_end, whole
from harness.run import deployed_client, run_on_stack
from harness.workload.driver import MESSAGES_A_CALL, REMOTE
from harness.workload.transfers import DEATHS, Kind

if TYPE_CHECKING:
    from harness.program import Options
    from harness.workload.reconciliation import Reconciliation
    from harness.workload.report import Report
    from harness.workload.stack_client import StackClient

NUMBER = 500
HOLD_SECONDS = 45
MOST_WORKLOADS = 10
"""Messages per round. Each round takes two minutes on AWS, longer than any disturbance takes to begin."""
LEFT_OUT = {*DEATHS, Kind.AGAIN, Kind.AT_ONCE, Kind.POSTED}
"""Left out: deaths need faults in the code, and the others call the function or API directly, which would meet the
disturbance.
"""

SPREAD = replace(REMOTE, burst=MESSAGES_A_CALL - 1, stall_seconds=420.0)
"""A pause after each call, so that messages come before, during and after a disturbance. The third wait in an outage is
at most 324 seconds, without any other change.
"""


@dataclass(kw_only=True)
class Soaked:
    """The results of all rounds so far."""

    rounds: int = 0
    totals: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    @property
    def disturbance(self) -> str:
        """The next disturbance."""
        return [*DISTURBANCES][self.rounds % len(DISTURBANCES)]

    def add(self, found: Reconciliation) -> None:
        self.totals.update(_counts(found))
        self.complain(*found.complaints)

    def complain(self, *complaints: str) -> None:
        self.complaints += [f"round {self.rounds + 1}, {self.disturbance}: {each}" for each in complaints]

    def tell(self) -> None:
        sys.stdout.write(json.dumps({**self.totals, "rounds": self.rounds, "complaints": self.complaints}) + "\n")
        sys.stdout.flush()


def perform(report: Report) -> int:
    options = options_of(os.environ, number=NUMBER)
    if options.stack is None:
        raise ValueError("STACK is the name of the stack to soak")
    minutes, hold = whole(os.environ, "MINUTES", 60), whole(os.environ, "HOLD", HOLD_SECONDS)
    report.begin(f"{minutes} minutes of {options.number} transfers a round", f"while {options.stack} is disturbed")
    client = deployed_client(options.stack, report)
    soaked, begun, ends = Soaked(), datetime.now(UTC), time.monotonic() + minutes * 60
    try:
        # Each disturbance at least once, however short the soak.
        while soaked.rounds < len(DISTURBANCES) or (time.monotonic() < ends and soaked.totals["sent"] < MOST_MESSAGES):
            _round(client, soaked, options, hold, report)
            soaked.tell()
        soaked.totals.update(_metered(client, begun))
    except Exception as error:  # noqa: BLE001  # an error must not lose the earlier rounds
        soaked.complain(f"{type(error).__name__}: {error}")
    finally:
        soaked.tell()
    for each in soaked.complaints:
        report.failed(f"  ✗ {each}")
    return 1 if soaked.complaints else 0


def _round(client: StackClient, soaked: Soaked, options: Options, hold: int, report: Report) -> None:
    """Send a workload while the stack is disturbed, and another if it finished before the disturbance began."""
    name, before = soaked.disturbance, len(soaked.complaints)
    said = report.step(f"round {soaked.rounds + 1}")
    with disturbing(DISTURBANCES[name], client, hold) as disturbed:
        for turn in range(MOST_WORKLOADS):
            seed = options.seed + soaked.rounds * MOST_WORKLOADS + turn
            found = run_on_stack(client, replace(options, seed=seed), LEFT_OUT, report, SPREAD)
            # While the stack is updated, some workers claim and some do not.
            mixed = name == UPDATED or found.without_claims
            soaked.add(replace(found, disturbed=True, without_claims=mixed))
            if disturbed.is_set():
                break
        else:
            soaked.complain(f"{MOST_WORKLOADS} workloads finished before the disturbance began")
    complaints = soaked.complaints[before:]
    said(f"{name}: {'; '.join(complaints) or 'every message took effect once, or has a reason why not'}")
    soaked.totals[name] += 1
    soaked.rounds += 1


def _counts(found: Reconciliation) -> dict[str, int]:
    counts = {name: value for name, value in found.line().items() if type(value) is int}
    attempts = sum(max(0, int(record.get("attempts", 1)) - 1) for record in found.records.values())
    return counts | {"attempted again": attempts}


def _metered(client: StackClient, since: datetime) -> dict[str, int]:
    """AWS's own metrics, which show that a disturbance had an effect. The last minutes may be missing."""
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
