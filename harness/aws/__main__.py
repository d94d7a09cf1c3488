"""`make aws`: prove the promises on the AWS account that the environment names, and remove all of it again.

It says what it will make and cost, and waits for the account's number (or takes it from ACCOUNT). Then it rehearses on
the local cloud: what does not work there costs nothing, and AWS is held against it. MINUTES is the length of the soak;
REHEARSAL=only asks AWS for nothing. The report is in .build/aws. The status is 0 only if every step passed, and nothing
was left.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

import boto3
from botocore.exceptions import NoRegionError

from harness.aws import comparison, cost, steps
from harness.aws.places import FOLDER, on_aws, on_local_cloud
from harness.aws.steps import Results
from harness.cloud import ROOT
from harness.program import run_to_its_end, whole

if TYPE_CHECKING:
    from harness.workload.report import Report

QUICK = {"MINUTES": "0", "N": "100", "HOLD": "10"}
"""A soak in which each disturbance occurs once."""


def perform(report: Report) -> int:
    minutes, rehearsal = whole(os.environ, "MINUTES", 60), os.environ.get("REHEARSAL") or "first"
    if rehearsal not in ("first", "only"):
        raise ValueError(f"REHEARSAL is only, or left out; it is {rehearsal!r}")
    only = rehearsal == "only"
    name = f"receiver-proof-{token_hex(3)}"
    report.begin("the promises on AWS", "rehearsed on the local cloud; deployed, tested, soaked, and removed")
    region = "" if only else _agreed(report, minutes)
    rehearsed = Results()
    with on_local_cloud(name, rehearsed) as environment:
        steps.take(rehearsed, name, environment, QUICK, report)
    if only or rehearsed.failures:
        return _ended(report, rehearsed, "the rehearsal; AWS was asked for nothing more")
    found = Results()
    try:
        with on_aws(name, region, found) as environment:
            steps.take(found, name, environment, {"MINUTES": f"{minutes}"}, report)
    except BaseException:
        _ended(report, found, "the trial on AWS, which did not come to its end")
        raise
    finally:
        now = datetime.now(UTC)
        about = {"date": f"{now:%Y-%m-%d %H:%M} UTC", "region": region, "soak": f"{minutes} minutes"}
        path = FOLDER / f"report-{now:%Y-%m-%d-%H%M}.md"
        FOLDER.mkdir(parents=True, exist_ok=True)
        path.write_text(comparison.page(found, rehearsed, about), encoding="utf-8")
        report.note(f"what was seen, and what differed from the local cloud, is in {path.relative_to(ROOT)}")
    return _ended(report, found, "the trial on AWS")


def _agreed(report: Report, minutes: int) -> str:
    """Say what it will make and cost; return the region once somebody has agreed. Raises ValueError."""
    session = boto3.Session()
    if session.region_name is None:
        raise NoRegionError
    account = session.client("sts").get_caller_identity()["Account"]
    report.note(
        f"account {account}, region {session.region_name}: one stack of template.yaml, a bucket for its code and two "
        "tables of the contract, all named receiver-proof-… or idempotent-receiver-contract-…, and removed in the end"
    )
    report.note(f"it costs {cost.told(cost.MOST_MESSAGES, minutes)}")
    given = os.environ.get("ACCOUNT")
    if given is None and sys.stdin.isatty():
        given = input("  Type the account's number to go on: ")
    if (given or "").strip() != account:
        raise ValueError(f"these credentials are of account {account}: ACCOUNT={account} agrees to use it")
    return str(session.region_name)


def _ended(report: Report, found: Results, what: str) -> int:
    for name, verdict in found.failures.items():
        report.failed(f"  ✗ {name}: {verdict}")
    report.note(f"{what}: {len(found.checks)} checks, {len(found.failures)} failed")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(run_to_its_end(perform))
