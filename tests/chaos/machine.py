"""The state machine of CAST=workflow: the shipped definition, whose steps write to the ledger without a function.

What is new in it is what chaos can afford 20,000 times. The record's part is as shipped: the version that is drawn
once, and the conditional writes of both outcomes.
"""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from local.workflow_stack import DEFINITION
from tests.chaos.settings import ACCOUNTS, ENTRIES, RECORDS
from tests.template import ROOT, load

if TYPE_CHECKING:
    from local.cloud import Cloud

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
