"""The control of `make run WORKFLOW=1`: the same machine and books, and no records. Runs in the functions.

Each request starts an execution with a name of its own, and each step just does its work. The ledger still refuses to
post a leg twice, and that is all that stands between a second run and the money.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeSerializer

from idempotent_receiver import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable

_TYPED = ("Item", "Key", "ExpressionAttributeValues")


def plain_step(faults: Any, dynamodb: Any, name: str) -> Callable[[Any], Any]:
    """What takes the place of `step`: no record, the transaction is sent as it is."""

    def wrap(function: Any) -> Any:
        def handle(event: Any, context: Any) -> Any:
            transfer, tx = event["transfer_id"], Transaction()
            result = function(event, context, tx) if "tx" in function.__annotations__ else function(event, context)
            if (transfer.rpartition("-")[0], name) == ("aborted", "credit"):
                faults.hold(transfer)
            faults.at(transfer, f"{name}.before")
            if tx.actions:
                dynamodb.transact_write_items(TransactItems=[_item(action) for action in tx.actions])
            faults.at(transfer, f"{name}.after")
            return result

        return handle

    return wrap


def plain_start(workflow: Any) -> Callable[[Any, Any], Any]:
    """What takes the place of the start: whoever asks gets an execution."""

    def handle(event: Any, context: Any) -> Any:
        told = {"record": "none", "fingerprint": "none", "payload": json.loads(event["body"])}
        workflow.client.start_execution(stateMachineArn=workflow.state_machine_arn, input=json.dumps(told))
        return {"statusCode": 202, "headers": {}, "body": "{}"}

    return handle


def _item(action: Any) -> Any:
    arguments = dict(action.arguments)
    for part in _TYPED:
        if part in arguments:
            arguments[part] = {name: TypeSerializer().serialize(value) for name, value in arguments[part].items()}
    return {action.kind: arguments}
