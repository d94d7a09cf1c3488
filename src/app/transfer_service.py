"""Accepts transfers, sends them to the queue, and reports their state."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from app.ledger import first_leg
from app.transfers import Transfer
from idempotent_receiver import Transaction, stamped
from idempotent_receiver.protocol import Unknown

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from idempotent_receiver.protocol import Record, RecordStore


@dataclass(frozen=True, slots=True)
class State:
    """A transfer's state: accepted, then posted or failed. `reason` explains a failure."""

    transfer: Transfer
    name: Literal["accepted", "posted", "failed"]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferService:
    """Stores and sends transfers. `records` is the consumer's store; `transfers` and `entries` are table names."""

    sqs: "SQSClient"
    dynamodb: "DynamoDBClient"
    records: "RecordStore"
    queue_url: str
    transfers: str
    entries: str

    def accept(self, transfer: Transfer, tenant: str, tx: Transaction) -> None:
        """Send the transfer to the queue, and store it in the transaction that completes the request.

        If this process dies in between, the client's retry sends a second message. It has the same key (the transfer's
        id) and the same body, so the consumer recognises it as a duplicate.
        """
        described = transfer.model_dump_json(exclude_defaults=True)
        self.sqs.send_message(
            QueueUrl=self.queue_url,
            MessageBody=described,
            MessageAttributes=stamped(transfer.transfer_id),
            **self._in_order(transfer),
        )
        stored = {"transfer_id": transfer.transfer_id, "tenant": tenant, "transfer": described}
        tx.put(TableName=self.transfers, Item=stored)

    def find(self, transfer_id: str, tenant: str) -> State | None:
        """The state of a tenant's transfer; None if the tenant has no such transfer.

        Raises ConnectionError if the consumer's record cannot be read now.
        """
        stored = self._item(self.transfers, transfer_id=transfer_id)
        if stored is None or stored["tenant"]["S"] != tenant:
            return None
        transfer = Transfer.model_validate_json(stored["transfer"]["S"])
        record = self._record(transfer_id)
        if record is not None:
            return _state(transfer, record)
        # There is no record before the first delivery, or after the record has expired.
        posted = self._item(self.entries, entry_id=first_leg(transfer_id)) is not None
        return State(transfer, "posted" if posted else "accepted")

    def _in_order(self, transfer: Transfer) -> dict[str, Any]:
        """The arguments that keep each payer's transfers in order on a FIFO queue."""
        if not self.queue_url.endswith(".fifo"):
            return {}
        return {"MessageGroupId": transfer.from_account, "MessageDeduplicationId": transfer.transfer_id}

    def _record(self, key: str) -> "Record | None":
        (found,) = self.records.read([key])
        if isinstance(found, Unknown):
            raise ConnectionError(found.why)
        return found

    def _item(self, table: str, **key: str) -> dict[str, Any] | None:
        typed: Any = {name: {"S": value} for name, value in key.items()}
        return self.dynamodb.get_item(TableName=table, Key=typed, ConsistentRead=True).get("Item")


def _state(transfer: Transfer, record: "Record") -> State:
    if record.status == "COMPLETED":
        return State(transfer, "posted")
    error = json.loads(record.error or "{}")
    if record.status == "FAILED" and error.get("permanent"):
        return State(transfer, "failed", error.get("text"))
    return State(transfer, "accepted")  # it is retried, or waits in the dead-letter queue for an operator
