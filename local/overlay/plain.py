"""The control: a plain partial-batch handler, as many are written. The same function and writes, and no claims.

Its ledger still refuses to post a transfer twice, and that is all that stands between a redelivery and a second run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import boto3
from boto3.dynamodb.types import TypeSerializer

from app.transfers import Transfer
from idempotent_receiver import Transaction
from local.overlay import outside

if TYPE_CHECKING:
    from collections.abc import Callable

    from local.overlay.faults import Acts

_TYPED = ("Item", "Key", "ExpressionAttributeValues")


def plain_consumer(business: Callable[[Transfer, Transaction], Any], acts: Acts) -> Callable[[Any, Any], Any]:
    """Handle each message of a batch, and answer with those that failed."""
    dynamodb = boto3.client("dynamodb")

    def one(record: Any) -> None:
        transfer = Transfer.model_validate_json(record["body"])
        name, tx = transfer.transfer_id, Transaction()
        ok = False
        acts.start(name)
        try:
            outside.call(name, record["messageId"])
            business(transfer, tx)
            acts.die_if(name, "before")
            dynamodb.transact_write_items(TransactItems=[_item(action) for action in tx.actions])
            acts.die_if(name, "after")
            ok = True
        finally:
            acts.end(name, ok=ok)

    def handle(event: Any, context: Any) -> Any:
        failed = []
        for record in event["Records"]:
            try:
                one(record)
            except Exception:  # noqa: BLE001  # that is what a plain handler does: whatever it was, try again
                failed.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failed}

    return handle


def _item(action: Any) -> Any:
    arguments = dict(action.arguments)
    for part in _TYPED:
        if part in arguments:
            arguments[part] = {name: TypeSerializer().serialize(value) for name, value in arguments[part].items()}
    return {action.kind: arguments}
