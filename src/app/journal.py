"""What the books say of one transfer: which of its legs are posted."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.ledger import first_leg, second_leg
from app.transfers import Transfer

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


@dataclass(frozen=True, slots=True)
class Legs:
    """How far a transfer has come.

    `taken`: the payer was debited. `arrived`: the payee was credited. `returned`: the payer was credited instead.
    `given_up`: nothing was taken, and nothing will be.
    """

    taken: bool = False
    arrived: bool = False
    returned: bool = False
    given_up: bool = False

    @property
    def closed(self) -> bool:
        """Whether no posting can follow."""
        return self.arrived or self.returned or self.given_up


@dataclass(frozen=True, slots=True)
class Journal:
    """Reads the table of entries, consistently."""

    client: "DynamoDBClient"
    entries: str

    def legs(self, transfer: Transfer) -> Legs:
        """How far a transfer has come. Entries never change, so what is posted stays; what is not may be, by now."""
        first, second = self._entry(first_leg(transfer)), self._entry(second_leg(transfer))
        return Legs(
            taken=first is not None and first[1] < 0,
            arrived=second is not None and second[0] == transfer.to_account,
            returned=second is not None and second[0] == transfer.from_account,
            given_up=first is not None and first[1] == 0,
        )

    def _entry(self, id: str) -> tuple[str, int] | None:
        """An entry's account and amount."""
        found = self.client.get_item(TableName=self.entries, Key={"entry_id": {"S": id}}, ConsistentRead=True)
        item = found.get("Item")
        return None if item is None else (item["account_id"]["S"], int(item["amount"]["N"]))
