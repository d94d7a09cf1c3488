"""CAST=workflow: its machine, and its workers: the shipped endpoint that starts executions, and the sweep for orphans.

The machine is the shipped definition, whose steps write to the ledger without a function.

What is new in it is what chaos can afford 20,000 times. The record's part is as shipped: the version that is drawn
once, and the conditional writes of both outcomes.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from harness.beside import DEFINITION
from harness.workload.evidence import Asked, now_ms
from idempotent_receiver import DynamoDBStore
from idempotent_receiver.workflow import Workflow, recover_orphan, workflow_endpoint
from tests.chaos.settings import ACCOUNTS, ENTRIES, LEASE_MARGIN_SECONDS, RECORDS
from tests.template import ROOT, load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.cloud import Cloud
    from harness.workload.evidence import Log
    from tests.chaos.settings import Settings

NAMESPACE = "transfers"
ORPHANS = "orphans"
"""The index of the records that are in progress, by the ends of their leases."""
TIMEOUT_SECONDS = 60
ROLE = "arn:aws:iam::123456789012:role/machine"
KEPT = ("version", "no_receipt", "completed", "was_sent", "done", "receipt_missing", "failed", "transfer_failed")
LEGS = {"debit": ("payer", "debit"), "credit": ("payee", "credit")}


def definition() -> dict[str, Any]:
    shipped: dict[str, Any] = json.loads(DEFINITION.read_text().replace("${Workflows}", RECORDS))["States"]
    states = {name: shipped[name] for name in (*KEPT, "outcome_refused")}
    states["version"]["Next"] = "refused"
    states["refused"] = {
        "Type": "Choice",
        "Choices": [{"Variable": "$.transfer.refused", "BooleanEquals": True, "Next": "refusal"}],
        "Default": "debit",
    }
    failure = {"type": "Refused", "text": "this account is closed", "status": 422}
    states["refusal"] = {"Type": "Pass", "Result": failure, "ResultPath": "$.failure", "Next": "failed"}
    following = ["debit", "debit entry", "credit", "credit entry", "no_receipt"]
    for leg, (account, amount) in LEGS.items():
        key = {"account_id": {"S.$": f"$.transfer.{account}"}}
        values = {":amount": {"N.$": f"$.transfer.{amount}"}}
        states[leg] = _update(ACCOUNTS, key, "ADD balance :amount", values)
        values |= {
            ":once": {"N": "1"},
            ":transfer": {"S.$": "$.transfer.transfer_id"},
            ":account": {"S.$": f"$.transfer.{account}"},
        }
        entry = {"entry_id": {"S.$": f"States.Format('{{}}#{leg}', $.transfer.transfer_id)"}}
        text = "SET transfer_id = :transfer, account_id = :account ADD times :once, amount :amount"
        states[f"{leg} entry"] = _update(ENTRIES, entry, text, values)
    for name, after in pairwise(following):
        states[name]["Next"] = after
    return {"StartAt": "version", "TimeoutSeconds": TIMEOUT_SECONDS, "States": states}


def _update(table: str, key: dict[str, Any], expression: str, values: dict[str, Any]) -> dict[str, Any]:
    """A step that is not tried again: nothing comes between the machine and its table."""
    parameters = {
        "TableName": table,
        "Key": key,
        "UpdateExpression": expression,
        "ExpressionAttributeValues": dict(values),
    }
    resource = "arn:aws:states:::dynamodb:updateItem"
    return {"Type": "Task", "Resource": resource, "Parameters": parameters, "ResultPath": None}


def create(cloud: Cloud) -> str:
    """Make the machine and the table of its records; return its ARN."""
    made = load(ROOT / "deploy" / "workflow.yaml")["Resources"]["Workflows"]["Properties"]
    names = ("KeySchema", "AttributeDefinitions", "BillingMode", "GlobalSecondaryIndexes")
    cloud.client("dynamodb").create_table(TableName=RECORDS, **{name: made[name] for name in names})
    machines = cloud.client("stepfunctions")
    made = machines.create_state_machine(name="transfers", definition=json.dumps(definition()), roleArn=ROLE)
    return str(made["stateMachineArn"])


MOST_ORPHANS = 25


class Starter:
    """`made` makes clients. An event is a request, or asks for a sweep."""

    def __init__(self, settings: Settings, made: Callable[[Any], Any], log: Log) -> None:
        self._dynamodb, self._log, self._worker = made("dynamodb"), log, settings.worker
        self._workflow = Workflow(
            DynamoDBStore(RECORDS, namespace=NAMESPACE, client=self._dynamodb),
            client=made("stepfunctions"),
            state_machine_arn=settings.outputs["StateMachine"],
            timeout_seconds=TIMEOUT_SECONDS,
            lease_margin_seconds=LEASE_MARGIN_SECONDS,
        )
        self._endpoint = workflow_endpoint(self._workflow, parse=json.loads)

    def __call__(self, event: Mapping[str, Any], context: Any) -> object:
        key = event["Records"][0]["messageId"] if event["Records"] else "sweep"
        self._log.write(Asked(at_ms=now_ms(), worker=self._worker, name=key))
        return self._endpoint(event["request"], context) if event["Records"] else self._sweep(context)

    def _sweep(self, context: Any) -> object:
        deadline = self._workflow.deadline(context.get_remaining_time_in_millis())
        found = self._dynamodb.query(
            TableName=RECORDS,
            IndexName=ORPHANS,
            KeyConditionExpression="#status = :inprogress AND in_progress_expiration < :now",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":inprogress": {"S": "INPROGRESS"}, ":now": {"N": str(deadline.now_ms)}},
            Limit=MOST_ORPHANS,
        )
        names = [item["id"]["S"].removeprefix(self._workflow.id_of("")) for item in found["Items"]]
        answers = [recover_orphan(self._workflow, name, deadline, context.aws_request_id) for name in names]
        return {"swept": [type(answer).__name__ for answer in answers]}
