"""Takes transfers in and puts them on the queue, and says what has become of them."""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from app.ledger import first_leg
from app.transfers import Transfer
from idempotent_receiver import Transaction
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.sqs.dead_letter import stamped

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_sqs import SQSClient

    from idempotent_receiver.protocol.record import Record
    from idempotent_receiver.protocol.store import RecordStore


@dataclass(frozen=True, slots=True)
class State:
    """How far a transfer is: accepted until it is posted, or has failed for the reason that is named."""

    transfer: Transfer
    name: Literal["accepted", "posted", "failed"]
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferService:
    """Where transfers are noted, and where they go. `records` are the consumer's."""

    sqs: "SQSClient"
    dynamodb: "DynamoDBClient"
    records: "RecordStore"
    queue_url: str
    transfers: str
    entries: str

    def accept(self, transfer: Transfer, tenant: str, tx: Transaction) -> None:
        """Put the transfer on the queue, and note it together with the answer that says so.

        Whoever dies between the two is asked again, and sends a second message: with the same key, which is the
        transfer's id, and the same body, so that the consumer takes both for one.
        """
        self.sqs.send_message(
            QueueUrl=self.queue_url,
            MessageBody=transfer.model_dump_json(exclude_defaults=True),
            MessageAttributes=stamped(transfer.transfer_id),
            **self._in_order(transfer),
        )
        noted = {"tenant": tenant, "transfer": transfer.model_dump_json(exclude_defaults=True)}
        tx.put(TableName=self.transfers, Item={"transfer_id": transfer.transfer_id, **noted})

    def find(self, transfer_id: str, tenant: str) -> State | None:
        """The state of a tenant's transfer; None where the tenant has no such transfer.

        Raises ConnectionError where the consumer's record cannot be read now.
        """
        noted = self._item(self.transfers, transfer_id=transfer_id)
        if noted is None or noted["tenant"]["S"] != tenant:
            return None
        transfer = Transfer.model_validate_json(noted["transfer"]["S"])
        record = self._record(transfer_id)
        if record is not None:
            return _state(transfer, record)
        # Before its first delivery there is none, and none long after its last.
        posted = self._item(self.entries, entry_id=first_leg(transfer_id)) is not None
        return State(transfer, "posted" if posted else "accepted")

    def _in_order(self, transfer: Transfer) -> dict[str, Any]:
        """On a FIFO queue, one payer's transfers are posted one after the other."""
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
    return State(transfer, "accepted")  # it is tried again, or lies where an operator finds it
