"""`make run WORKFLOW=1`: send transfers through the workflow on the local cloud, and reconcile.

API, state machine, queue and consumer are deployed by both templates. Processes die in every step, before and after its
write, and between claim, start and hand-over; executions are stopped from outside; clients retry, or never do. The
last line is one JSON object; the status is 0 only if everything in it is as promised.

N, SEED and PROTECTION come from the environment. PROTECTION=off is the control: the same machine without records.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.credentials import Credentials
from botocore.exceptions import BotoCoreError

from harness.beside import deploy_beside
from harness.caller import Caller, api_url
from harness.cloud import ACCOUNT, NAMED_BY, REGION, in_containers, running_cloud
from harness.deploy import deploy
from harness.program import options_of, run_to_its_end
from harness.serving import serving
from harness.workflow_reconciliation import Execution, WorkflowReconciliation
from harness.workload import report as tables
from harness.workload.deployment import EDITS, PARAMETERS, VALUES, client_of, keep_logs, overlay_of, timeline_of
from harness.workload.driver import Observation, Pace, collect, until, wait
from harness.workload.fake_service import FakeService
from harness.workload.transfers import CURRENCY, HOLDS, WORKFLOW, Kind, generate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.cloud import Cloud
    from harness.program import Options
    from harness.workload.report import Report
    from harness.workload.stack_client import StackClient
    from harness.workload.transfers import TransferMessage, Workload
    from idempotent_receiver.local.deployment import Stack

NUMBER = 40
AT_ONCE = 4
"""Approximate number of concurrent executions: each function in use is a process of this machine."""
REPEATS = 3
SWEEP_SECONDS = 3.0
POLL_SECONDS = 0.5
PATIENCE_SECONDS = 300.0
PACE = Pace(poll_seconds=POLL_SECONDS, stall_seconds=PATIENCE_SECONDS, limit_seconds=PATIENCE_SECONDS)
FAILED = 500
"""From this status on, a client does not know what became of its request."""
NEVER_ASKED_AGAIN = (Kind.START_BEFORE, Kind.START_AFTER)
NEEDS_PROCESSES = f"WORKFLOW=1 kills functions that are processes of this machine: unset {NAMED_BY}"
"""The message if a named cloud runs functions in containers."""


class Clients:
    """Clients that request transfers, and operators of the workflow."""

    def __init__(self, cloud: Cloud, workflow: Stack, service: FakeService) -> None:
        url = api_url(workflow, cloud.endpoint_url)
        self._caller = Caller(url=f"{url}/workflows", credentials=Credentials(ACCOUNT, "test"), region=REGION)
        self._cloud = cloud
        self._workflow = workflow
        self.service = service
        self._machines = cloud.client("stepfunctions")
        self._machine: Any = {"stateMachineArn": workflow.outputs["MachineArn"]}
        self.repeats = 0
        self.swept = 0
        self.under_way = 0

    def ask_for(self, message: TransferMessage) -> None:
        """Request a transfer as its kind requires, once there is room for another execution."""
        self._await(self._has_room)
        if message.kind is Kind.REPEATED:
            with ThreadPoolExecutor(REPEATS) as pool:
                list(pool.map(self._ask, [message] * REPEATS))
            self.repeats += REPEATS - 1
        elif self._ask(message) >= FAILED and message.kind not in NEVER_ASKED_AGAIN:
            self._await(partial(self._ask_again, message))
        if message.kind is Kind.ABORTED:
            self._await(partial(self._abort, message.name))

    def _await(self, over: Callable[[], bool]) -> None:
        """Wait; a timeout is ignored, because reconciliation will find what is missing."""
        until(over, PATIENCE_SECONDS, POLL_SECONDS)

    def _has_room(self) -> bool:
        running = self._machines.list_executions(**self._machine, statusFilter="RUNNING")["executions"]
        self.under_way = len(running)
        return self.under_way < AT_ONCE

    def _ask(self, message: TransferMessage) -> int:
        """Send one request; returns its status, or a status above all others if it fails."""
        try:
            return self._caller.post(message.transfer, f"key-{message.name}").status
        except (OSError, BotoCoreError):
            return 599

    def _ask_again(self, message: TransferMessage) -> bool:
        self.repeats += 1
        return self._ask(message) < FAILED

    def _abort(self, name: str) -> bool:
        """Stop a transfer's execution after its debit, and let its credit continue."""
        if not self.service.reached(name, HOLDS[Kind.ABORTED]):
            return False
        for each in self.executions():
            if (each.transfer, each.status) == (name, "RUNNING"):
                self._machines.stop_execution(executionArn=each.arn, error="Operator", cause="make run stops it")
        self.service.let_go(name)
        return True

    @contextmanager
    def sweeping(self) -> Iterator[None]:
        """Run the sweep more often than its schedule does."""
        over = threading.Event()

        def sweep() -> None:
            while not over.wait(SWEEP_SECONDS):
                name = self._workflow.outputs["SweepName"]
                told = json.loads(self._cloud.client("lambda").invoke(FunctionName=name)["Payload"].read())
                if "errorType" not in told:
                    self.swept += sum(n for kind, n in told.items() if kind not in ("tended", "failed", "left"))

        thread = threading.Thread(target=sweep, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def executions(self) -> list[Execution]:
        """Every execution, with what its key's record says."""
        table = self._workflow.resources["Workflows"]
        pages = self._cloud.client("dynamodb").get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        records = {item["id"]["S"]: item["status"]["S"] for page in pages for item in page["Items"]}
        listed = self._machines.get_paginator("list_executions").paginate(**self._machine)
        arns = [each["executionArn"] for page in listed for each in page["executions"]]
        return [
            Execution(
                arn=each["executionArn"],
                transfer=json.loads(each["input"])["payload"]["transfer_id"],
                status=each["status"],
                record=records.get(f"transfers#{each['executionArn'].rpartition(':')[2]}"),
            )
            for each in (self._machines.describe_execution(executionArn=arn) for arn in arns)
        ]


def perform(report: Report) -> int:
    options = options_of(os.environ, number=NUMBER)
    if options.stack is not None or options.number == 0:
        raise ValueError("WORKFLOW=1 runs one transfer or more on the local cloud: raise N, and unset STACK")
    handler = "the shipped workflow" if options.protected else "a machine without records, the control"
    what = f"{options.number} transfers, seed {options.seed}"
    timeline = timeline_of("workflow", options.seed, options.number, protected=options.protected)
    report.begin(what, f"from the API to the consumer by {handler}", timeline)
    workload, service = generate(options.seed, options.number, WORKFLOW), FakeService()
    said = report.step("local cloud")
    with serving(service.respond) as port, running_cloud() as cloud:
        said(f"{cloud.endpoint_url}, {cloud.whose}")
        if in_containers():
            raise ValueError(NEEDS_PROCESSES)
        said = report.step("stacks")
        client = client_of(cloud, deploy(cloud, edits=EDITS, values=VALUES, parameters=PARAMETERS))
        workflow = deploy_beside(cloud, client.stack, "workflow", overlay=overlay_of(port, protected=options.protected))
        said("template.yaml and workflow.yaml unchanged; the definition with one more error (beside.py)")
        client.open_accounts(workload.opening, CURRENCY)
        found = _run(options, workload, client, Clients(cloud, workflow, service), report)
        found = replace(found, killed=service.deaths)
        if found.complaints:
            keep_logs(cloud, workflow.outputs["LogGroup"], "workflow.log")
    counts: list[tables.Row] = [(str(value), name, "") for name, value in found.line().items()]
    fine = "every transfer ended as it must, and the books balance"
    return report.conclude(found, {"Transfers": counts, "Books": tables.money(found)}, fine)


def _run(
    options: Options, workload: Workload, client: StackClient, clients: Clients, report: Report
) -> WorkflowReconciliation:
    number = len(workload.messages)

    def counts() -> dict[str, int]:
        return {"asked again": clients.repeats, "killed": clients.service.deaths, "swept": clients.swept}

    def look() -> Observation:
        executions, queue = clients.executions(), client.backlog(client.queue)
        going_on = [each for each in executions if each.status == "RUNNING" or each.record == "INPROGRESS"]
        missing = set(workload.by_name) - {each.transfer for each in executions} if options.protected else set()
        show(number - len(going_on) - len(missing), counts())
        told = f"{len(going_on)} executions are in progress, {len(missing)} were not started"
        return Observation(seen=(executions, queue), over=not (going_on or missing or queue.total), told=told)

    with report.bar("ended", number) as show, clients.sweeping():
        with ThreadPoolExecutor(AT_ONCE) as pool:
            for asked, _ in enumerate(pool.map(clients.ask_for, workload.messages), 1):
                show(asked - clients.under_way, counts())
        gave_up = wait(look, PACE, number=number)
    found = collect(client, workload, {name: f"key-{name}" for name in workload.by_name})
    named = {account for message in workload.messages for account in (message.payer, message.payee)}
    found["closing"] = client.balances(sorted({*workload.opening, *named}))
    return WorkflowReconciliation(
        **found,
        protected=options.protected,
        log=clients.service.lines(),
        gave_up=gave_up,
        executions=clients.executions(),
        repeats=clients.repeats,
        swept=clients.swept,
    )


if __name__ == "__main__":
    sys.exit(run_to_its_end(perform))
