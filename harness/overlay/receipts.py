"""The second consumer of `make run`: it counts the receipts that transfers send. A repeated send is a duplicate."""

from __future__ import annotations

import os
from dataclasses import dataclass

from idempotent_receiver import DynamoDBStore, Transaction, sqs_consumer


@dataclass(frozen=True, slots=True)
class Receipt:
    """What a transfer sends when it is posted."""

    transfer_id: str


@sqs_consumer(DynamoDBStore(os.environ["RECORDS_TABLE"]))
def lambda_handler(receipt: Receipt, tx: Transaction) -> None:
    """Count one receipt."""
    tx.update(
        TableName=os.environ["RECEIPTS_TABLE"],
        Key={"transfer_id": receipt.transfer_id},
        UpdateExpression="ADD times :one",
        ExpressionAttributeValues={":one": 1},
    )
