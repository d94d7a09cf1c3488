"""What `make cloud WORKFLOW=1` adds: the workflow's stack, and executions with different endings.

One completed. Two were stopped on the way: one was too late for its credit to be stopped and is completed; the other's
payee is unknown, so it is refunded. One is an orphan, whose starter died before starting an execution.

The sweep rule is disabled; otherwise the orphan would be gone within a minute.
"""

from __future__ import annotations

import contextlib
import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from harness.beside import deploy_beside
from harness.caller import api_url
from harness.cloud import REGION
from harness.serving import serving
from harness.workflow_run import PATIENCE_SECONDS, POLL_SECONDS, Clients
from harness.workload.deployment import overlay_of
from harness.workload.driver import until
from harness.workload.stack_client import StackError
from harness.workload.transfers import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from harness.cloud import Cloud
    from harness.workload.fake_service import FakeService
    from harness.workload.report import Report
    from harness.workload.stack_client import StackClient
    from harness.workload.transfers import TransferMessage

Left: TypeAlias = "tuple[Mapping[str, str], Sequence[tuple[str, str]]]"
"""Variables for a shell; and what to type, with what it shows."""


@contextlib.contextmanager
def workflow_left(
    cloud: Cloud,
    client: StackClient,
    service: FakeService,
    late: Callable[[Kind, int], TransferMessage],
    report: Report,
) -> Iterator[Left]:
    """Add all that next to the consumer for the block."""
    with serving(service.respond) as port:
        said = report.step("workflow")
        stack = deploy_beside(cloud, client.stack, "workflow", overlay=overlay_of(port, protected=True))
        cloud.client("events").disable_rule(Name=stack.resources["EveryMinute"])
        asked = [late(Kind.REPEATED, 0), late(Kind.ABORTED, 0), late(Kind.ABORTED, 1), late(Kind.START_BEFORE, 0)]
        asked[2] = replace(asked[2], payee="nobody")
        clients = Clients(cloud, stack, service)
        for message in asked:
            clients.ask_for(message)
        expected = dict(zip([message.name for message in asked[:3]], ["COMPLETED", "COMPLETED", "FAILED"], strict=True))
        names = _outcomes(clients, client, expected)
        said("a transfer that completed, two whose executions were stopped, and an orphan; the sweeps are off")
        outputs = {"WORKFLOWS": "WorkflowsTable", "MACHINE": "MachineArn", "RECONCILE": "ReconcileName"}
        outputs |= {"UNRECONCILED": "UnreconciledUrl", "WORKFLOW_LOG_GROUP": "LogGroup"}
        variables = {variable: stack.outputs[output] for variable, output in outputs.items()}
        variables |= {"EVERY_MINUTE": stack.resources["EveryMinute"]}
        variables |= {"WORKFLOWS_URL": f"{api_url(stack, cloud.endpoint_url)}"}
        yield variables, _commands(client.stack.name, asked, names)


def _outcomes(clients: Clients, client: StackClient, expected: Mapping[str, str]) -> Mapping[str, str]:
    """Wait until everything is recorded and the receipts are booked; returns the executions' names by transfer."""
    completed = [name for name, status in expected.items() if status == "COMPLETED"]

    def over() -> bool:
        booked = {id for id, record in client.records(completed).items() if record["status"] == "COMPLETED"}
        return booked == set(completed) and {each.transfer: each.record for each in clients.executions()} == expected

    if not until(over, PATIENCE_SECONDS, POLL_SECONDS):
        raise StackError(f"the transfers should have ended as {dict(expected)}, but did not: {clients.executions()}")
    return {each.transfer: each.arn.rpartition(":")[2] for each in clients.executions()}


def _commands(stack: str, asked: Sequence[TransferMessage], names: Mapping[str, str]) -> list[tuple[str, str]]:
    completed, stopped, refunded, orphan = asked
    records = '--table "$WORKFLOWS"'
    body = "\n      ".join(textwrap.wrap(orphan.body, 70, break_on_hyphens=False))
    trace, stuck = (f".venv/bin/receiver {verb}" for verb in ("trace", "stuck"))
    traced = f"""\
{trace} {completed.name} --stack {stack} \\
    --hook app.ledger_trace:entries"""
    post = f"""\
curl --aws-sigv4 aws:amz:{REGION}:execute-api \\
    --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \\
    "$WORKFLOWS_URL/workflows/transfers" \\
    --header 'Idempotency-Key: key-{orphan.name}' \\
    --json '{body}'"""
    return [
        (traced, "a transfer's receipt and entries"),
        *(
            (f"{trace} \\\n    transfers#{names[each.name]} \\\n    {records}", what)
            for each, what in (
                (completed, "its request and its execution"),
                (stopped, "one that was stopped after its debit"),
                (refunded, "one that was stopped and refunded"),
            )
        ),
        (f"{stuck} {records}", "that one, and the orphan once its lease has ended"),
        (post, "the orphan's client asks again and it continues; once more for its result"),
        ('aws events enable-rule --name "$EVERY_MINUTE"', "or fix the cause: the sweeps are turned off"),
    ]
