"""Reads the ledger: which legs of a transfer are posted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boto3.dynamodb.types import TypeDeserializer

from app.ledger import described, first_leg, second_leg
from app.transfers import Transfer

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, slots=True)
class Legs:
    """Which legs of a transfer are posted.

    `taken`: the payer was debited. `arrived`: the payee was credited. `returned`: the payer was refunded instead.
    `given_up`: no money was or will be taken, because the transfer was voided or another transfer used its id.
    """

    taken: bool = False
    arrived: bool = False
    returned: bool = False
    given_up: bool = False

    @property
    def closed(self) -> bool:
        """Whether no further posting is possible."""
        return self.arrived or self.returned or self.given_up


@dataclass(frozen=True, slots=True)
class LedgerReader:
    """Reads the entries table with consistent reads."""

    client: "DynamoDBClient"
    entries: str

    def legs(self, transfer: Transfer) -> Legs:
        """The legs posted so far. Entries never change, but another leg may be posted at any time."""
        first, second = (self._entry(leg(transfer.transfer_id)) for leg in (first_leg, second_leg))
        if first is not None and not _is_leg_of(transfer, first):
            return Legs(given_up=True)
        return Legs(
            taken=first is not None and first["amount"] < 0,
            arrived=second is not None and second["account_id"] == transfer.to_account,
            returned=second is not None and second["account_id"] == transfer.from_account,
            given_up=first is not None and first["amount"] == 0,
        )

    def _entry(self, id: str) -> dict[str, Any] | None:
        found = self.client.get_item(TableName=self.entries, Key={"entry_id": {"S": id}}, ConsistentRead=True)
        item = found.get("Item")
        return None if item is None else {name: _read.deserialize(value) for name, value in item.items()}


_read = TypeDeserializer()


def _is_leg_of(transfer: Transfer, entry: dict[str, Any]) -> bool:
    expected = described(transfer)
    return {name: entry.get(name) for name in expected} == expected
