"""The ledger's hook for operators: `receiver trace --hook app.ledger_trace:entries`. No function imports it.

ENTRIES_TABLE names the table; the account and region come from the command's environment.
"""

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3

from app.ledger import first_leg, receipt, second_leg

if TYPE_CHECKING:
    from idempotent_receiver.protocol import Record


def entries(key: str, record: "Record | None") -> Iterator[tuple[None, str]]:
    """The entries for a message's transfer, without times, because the table stores none."""
    transfer_id = _posted(record) or key
    dynamodb = boto3.client("dynamodb")
    for id in (first_leg(transfer_id), second_leg(transfer_id), receipt(transfer_id)):
        found = dynamodb.get_item(TableName=os.environ["ENTRIES_TABLE"], Key={"entry_id": {"S": id}})
        if entry := found.get("Item"):
            yield (
                None,
                f"entry {id}: {entry['account_id']['S']} {int(entry['amount']['N']):+d} {entry['currency']['S']}",
            )


def _posted(record: "Record | None") -> str | None:
    """The transfer's id from the consumer's result. For a message from the API, that id is also the key."""
    result = None if record is None or record.data is None else json.loads(record.data)
    return result.get("posted") if isinstance(result, dict) else None
