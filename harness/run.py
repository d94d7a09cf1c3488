"""`make run`: send a workload through the local cloud, or through a deployed stack, and reconcile.

Settings come from the environment: N, SEED, PROTECTION, EFFECTS, STACK and LOCALSTACK_HOST. The last line is one JSON
object; the status is 0 only if everything in it is as promised.

Two settings are changed after deployment, with a note: the queue's visibility timeout, after which a killed worker's
messages come back; and, in a short run and in the control, the function's timeout, so that no one waits long.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from harness.beside import with_api
from harness.caller import Account
from harness.cloud import in_containers
from harness.program import options_of, run_to_its_end
from harness.redelivery import LedgerTrigger, Redeliveries, ServiceTrigger
from harness.workload import report as tables
from harness.workload.deployment import deployed, keep_logs, timeline_of
from harness.workload.driver import LOCAL, MESSAGES_A_CALL, REMOTE, collect, drive
from harness.workload.evidence import Log
from harness.workload.fake_service import HOLD_SECONDS, FakeService
from harness.workload.reconciliation import Reconciliation
from harness.workload.stack_client import StackClient, StackError
from harness.workload.transfers import APART, CURRENCY, DEATHS, Kind, generate
from idempotent_receiver.local.deployment import describe_function

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from harness.program import Options
    from harness.workload.driver import Pace
    from harness.workload.report import Report, Row
    from harness.workload.transfers import Workload

VISIBILITY_SECONDS = 15
"""Longer than a lease, which ends 3 seconds after the function's timeout: a killed worker's messages are free
by then.
"""
SHORT = 50
"""Up to this many messages, and in the control, these times replace all others."""
QUICK_VISIBILITY_SECONDS, QUICK_TIMEOUT_SECONDS, QUICK_HOLD_SECONDS = 8, 4, 2.5


def without_claims_by(environment: Mapping[str, str], options: Options) -> bool:
    """Read EFFECTS, a parameter of the template. Raises ValueError if it does not apply."""
    effects = environment.get("EFFECTS") or "any"
    if effects not in ("any", "transaction"):
        raise ValueError(f"EFFECTS must be any or transaction; it is {effects!r}")
    if effects == "transaction" and (options.stack is not None or not options.protected):
        raise ValueError("EFFECTS=transaction deploys the shipped consumer without claims: unset STACK and PROTECTION")
    return effects == "transaction"


def on_local_cloud(options: Options, report: Report, *, without_claims: bool) -> Reconciliation:
    """Run on a temporary cloud, or on a named one, which stays."""
    quick = options.number <= SHORT or not options.protected
    service = FakeService(hold_seconds=QUICK_HOLD_SECONDS if quick else HOLD_SECONDS)
    parameters = {"Effects": "transaction"} if without_claims else {}
    with deployed(service, report, protected=options.protected, parameters=parameters, receipts=True) as (
        cloud,
        client,
    ):
        if in_containers():
            workload = generate(options.seed, options.number, without=DEATHS)
            return _run(options, client, workload, LedgerTrigger(client), report, pace=REMOTE)
        _shorten(client, report, quick=quick)
        group = client.stack.outputs["ConsumerLogGroup"]
        try:
            workload, service.ledger = generate(options.seed, options.number), client.posted
            found = _run(options, client, workload, ServiceTrigger(service), report)
        except StackError:
            report.note(f"the log is kept in {keep_logs(cloud, group, 'consumer.log')}")
            raise
        if found.complaints and options.protected:
            folder = keep_logs(cloud, group, "consumer.log")
            (folder / "fake_service.jsonl").unlink(missing_ok=True)
            with contextlib.closing(Log(folder / "fake_service.jsonl")) as kept:
                for line in found.log:
                    kept.write(line)
            report.note(f"all logs, including the fake service's, are kept in {folder}")
        return found


def _shorten(client: StackClient, report: Report, *, quick: bool) -> None:
    seconds = QUICK_VISIBILITY_SECONDS if quick else VISIBILITY_SECONDS
    was = client.shorten_visibility(seconds)
    if quick:
        client.configure(Timeout=QUICK_TIMEOUT_SECONDS)
    also = f" and the function's timeout to {QUICK_TIMEOUT_SECONDS} s" if quick else ""
    report.note(
        f"the queue's visibility timeout was set from {was} to {seconds} s{also} after deployment, "
        "so that a killed worker's messages come back while you wait"
    )


def on_stack(options: Options, name: str, report: Report) -> Reconciliation:
    """Run on a deployed stack: the same messages, without kills."""
    client = deployed_client(name, report)
    without = {*DEATHS, *((Kind.POSTED,) if client.api is None else ())}
    found = run_on_stack(client, options, without, report)
    report.note("the workload's own dead letters were deleted; its accounts, entries and records stay")
    return found


def deployed_client(name: str, report: Report) -> StackClient:
    """The client of a stack in the account in the environment."""
    account = Account()
    said = report.step("stack")
    stack = with_api(account, describe_function(account, name))
    client = StackClient(stack=stack, clients=account, receive_seconds=2, api=account.caller(stack))
    client.check()
    said(f"{name}, as deployed: its handler runs without faults")
    return client


def run_on_stack(
    client: StackClient, options: Options, without: Collection[Kind], report: Report, pace: Pace = REMOTE
) -> Reconciliation:
    """Run a workload with unique names, and delete its dead letters."""
    workload = generate(options.seed, options.number, prefix=f"{secrets.token_hex(3)}-", without=without)
    found = _run(options, client, workload, LedgerTrigger(client), report, pace=pace)
    client.delete_dead_letters([each for each in found.dead_letters if each.message_id in found.sent.values()])
    return found


def _run(
    options: Options,
    client: StackClient,
    workload: Workload,
    trigger: ServiceTrigger | LedgerTrigger,
    report: Report,
    *,
    pace: Pace | None = None,
) -> Reconciliation:
    cast = Redeliveries(client, workload, trigger)
    pace = pace or replace(LOCAL, burst=min(MESSAGES_A_CALL, options.number // len(APART)))
    without_claims = client.stack.parameters.get("Effects") == "transaction"
    sent, gave_up = send(client, workload, cast, report, pace)
    found = collect(client, workload, sent, alone=trigger.witnessed)
    return Reconciliation(
        **found,
        protected=options.protected,
        log=trigger.log,
        gave_up=gave_up,
        replayed=cast.replayed,
        without_claims=without_claims,
        witnessed=trigger.witnessed,
    )


def send(
    client: StackClient, workload: Workload, cast: Redeliveries, report: Report, pace: Pace
) -> tuple[dict[str, str], str | None]:
    """Open the accounts, send everything, and wait for the end. Returns the keys by name, and what the wait timed out
    on.
    """
    client.open_accounts(workload.opening, CURRENCY)
    report.opened(workload)
    with report.progress(len(workload.messages)) as say:
        return drive(client, workload, cast, pace, say)


def _messages(found: Reconciliation) -> list[Row]:
    return [
        *tables.messages(found),
        *_receipts(found),
        (found.replayed, "requests replayed", "requested again, and answered as before"),
        (found.runs.retried, "retried", "after the handler had failed"),
        (found.runs.found_in_progress, "found in progress", "deliveries of messages that another worker was handling"),
    ]


def _receipts(found: Reconciliation) -> list[Row]:
    if found.receipt_counts is None:
        return []
    wrong = found.of_receipts
    return [
        (sum(found.receipt_counts.values()), "receipts", "sent by transfers, and counted by the next consumer"),
        (wrong["receipts_lost"], "receipts lost", "never counted, though the transfer was posted"),
        (wrong["receipts_doubled"], "receipts doubled", "counted once too often, or of no posted transfer"),
    ]


def perform(report: Report) -> int:
    options = options_of(os.environ)
    without_claims = without_claims_by(os.environ, options)
    generate(options.seed, options.number)  # rejects a wrong N before anything is deployed
    handler = "the shipped consumer" if options.protected else "a plain partial-batch handler, the control"
    handler += " without claims" if without_claims else ""
    what = f"{options.number} transfers, seed {options.seed}"
    stack = options.stack
    of = "queue-without-claims" if without_claims else stack
    timeline = timeline_of(of, options.seed, options.number, protected=options.protected)
    report.begin(what, f"from the queue to the ledger by {handler}", timeline)
    if stack is None:
        found = on_local_cloud(options, report, without_claims=without_claims)
    else:
        found = on_stack(options, stack, report)
    fine = "every message took effect once, or has a reason why not"
    return report.conclude(found, {"Messages": _messages(found), "Books": tables.money(found)}, fine)


if __name__ == "__main__":
    sys.exit(run_to_its_end(perform))
