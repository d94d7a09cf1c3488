"""The books: an account's balance, and two entries for each transfer. All of a transfer is posted, or nothing."""

from dataclasses import dataclass

from app.transfers import Transfer
from idempotent_receiver import PermanentError, Transaction


@dataclass(frozen=True, slots=True)
class Ledger:
    """The names of the ledger's tables."""

    accounts: str
    entries: str

    def post(self, transfer: Transfer, tx: Transaction) -> None:
        """Post both entries and both balances, on condition that the payer can pay."""
        payer, payee = transfer.from_account, transfer.to_account
        money = f"{transfer.amount} {transfer.currency}"
        self._move(tx, payer, transfer, -transfer.amount, f"account {payer} is unknown or cannot pay {money}")
        self._move(tx, payee, transfer, +transfer.amount, f"account {payee} is unknown or not in {transfer.currency}")
        self._enter(tx, payer, transfer, -transfer.amount)
        self._enter(tx, payee, transfer, +transfer.amount)

    def _move(self, tx: Transaction, account: str, transfer: Transfer, amount: int, otherwise: str) -> None:
        tx.update(
            TableName=self.accounts,
            Key={"account_id": account},
            UpdateExpression="SET balance = balance + :amount",
            ConditionExpression="currency = :currency AND balance >= :least",
            ExpressionAttributeValues={":amount": amount, ":currency": transfer.currency, ":least": max(0, -amount)},
            otherwise=PermanentError(otherwise),
        )

    def _enter(self, tx: Transaction, account: str, transfer: Transfer, amount: int) -> None:
        entry = {"entry_id": f"{transfer.transfer_id}#{account}", "transfer_id": transfer.transfer_id}
        tx.put(
            TableName=self.entries,
            Item={**entry, "account_id": account, "amount": amount, "currency": transfer.currency},
            ConditionExpression="attribute_not_exists(entry_id)",
            otherwise=PermanentError(f"transfer {transfer.transfer_id} was posted before, by another message"),
        )
