"""`make aws`: prove the guarantees on the AWS account in the environment, then remove everything it created.

It prints what it will create and cost, how long that takes and how long the credentials last, and waits for the account
number (or takes it from ACCOUNT). Then it rehearses on the local cloud, because a failure there costs nothing; AWS is
compared with that result. MINUTES is the length of the soak. REHEARSAL=only does not use AWS. REMOVE=receiver-proof-...
only removes what a trial left. The report is in .build/aws and is updated after each step. The status is 0 only if
every step passed and nothing was left.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime
from secrets import token_hex
from typing import TYPE_CHECKING

import boto3
from botocore.exceptions import NoRegionError

from harness.aws import comparison, cost, places, steps
from harness.aws.credentials import lasting
from harness.aws.places import FOLDER, PROOF, on_aws, on_local_cloud
from harness.aws.results import FAILED, Results
from harness.aws.steps import Trial
from harness.cloud import ROOT
from harness.program import run_to_its_end, whole

if TYPE_CHECKING:
    from harness.workload.report import Report

QUICK = {"MINUTES": "0", "N": "100", "HOLD": "10"}
"""A soak in which each disturbance occurs once."""


def perform(report: Report) -> int:
    minutes, rehearsal = whole(os.environ, "MINUTES", 60), os.environ.get("REHEARSAL") or "first"
    if rehearsal not in ("first", "only"):
        raise ValueError(f"REHEARSAL must be only or unset; it is {rehearsal!r}")
    if (left := os.environ.get("REMOVE")) is not None:
        return _removed(report, left)
    only = rehearsal == "only"
    name = f"{PROOF}{token_hex(3)}"
    report.begin("the promises on AWS", "rehearsed on the local cloud; deployed, tested, soaked, and removed")
    region, account = ("", "") if only else _agreed(report, minutes)
    now = datetime.now(UTC)
    about = {"date": f"{now:%Y-%m-%d %H:%M} UTC", "region": region or "none: a rehearsal", "soak": f"{minutes} minutes"}
    path = FOLDER / f"report-{now:%Y-%m-%d-%H%M}.md"
    rehearsed, found = Results(), Results()

    def keep() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        page = comparison.page(found, rehearsed, about)
        path.write_text(page.replace(account, "ACCOUNT") if account else page, encoding="utf-8")

    what, results = "the rehearsal", rehearsed
    try:
        with on_local_cloud(name, rehearsed) as place:
            steps.take(Trial(results=rehearsed, place=place, name=name, soak=QUICK), report, keep)
        if only or rehearsed.failures:
            what += "; AWS was not used further"
        else:
            what, results = "the trial on AWS", found
            with on_aws(name, region, found) as place:
                soak = {"MINUTES": f"{minutes}"}
                steps.take(Trial(results=found, place=place, name=name, soak=soak), report, keep)
    except BaseException as error:
        results.checks["end"] = f"{FAILED}: {type(error).__name__} {error}".rstrip()
        _ended(report, results, f"{what}, which did not finish")
        raise
    finally:
        keep()
        report.note(f"what was seen, and what differed from the local cloud, is in {path.relative_to(ROOT)}")
    return _ended(report, results, what)


def _agreed(report: Report, minutes: int) -> tuple[str, str]:
    """Print what it will create and cost; returns region and account after confirmation. Raises ValueError."""
    session = boto3.Session()
    if session.region_name is None:
        raise NoRegionError
    account = session.client("sts").get_caller_identity()["Account"]
    report.note(
        f"account {account}, region {session.region_name}: two stacks of template.yaml, one of them with a FIFO queue, "
        "and one of deploy/api.yaml; a role with the policy for operators, a bucket for code, and two tables of the "
        f"contract; all named {PROOF}… or idempotent-receiver-contract-…, and removed at the end"
    )
    report.note(f"it costs {cost.told(minutes)}, and takes about {cost.minutes(minutes)} minutes")
    credentials = session.get_credentials()
    assert credentials is not None, "they have just been used"
    report.note(lasting(credentials, cost.minutes(minutes)))
    given = os.environ.get("ACCOUNT")
    if given is None and sys.stdin.isatty():
        given = input("  Type the account number to continue: ")
    if (given or "").strip() != account:
        raise ValueError(f"these credentials are for account {account}: set ACCOUNT={account} to confirm")
    return str(session.region_name), str(account)


def _removed(report: Report, name: str) -> int:
    """Remove what a trial with this name left."""
    if not name.startswith(PROOF) or name == PROOF:
        raise ValueError(f"REMOVE is the name of a trial, {PROOF} and six digits; it is {name!r}")
    report.begin("what a trial has left", f"{name} is removed")
    left = places.remove(name)
    for each in left:
        report.failed(f"  ✗ left: {each}")
    return 1 if left else 0


def _ended(report: Report, found: Results, what: str) -> int:
    for name, verdict in found.failures.items():
        report.failed(f"  ✗ {name}: {verdict}")
    report.note(f"{what}: {len(found.checks)} checks, {len(found.failures)} failed")
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(run_to_its_end(perform))
