"""The ledger: a balance for each account, and two entries, or legs, for each transfer. Every posting is atomic.

The queue's consumer posts both legs at once. The workflow posts them one at a time, so other writes may happen in
between, and a step may run late, after the transfer was given up. The entries themselves therefore enforce the order:

* the first leg debits the payer; if the transfer was given up first, it is an entry with amount 0;
* the second leg credits the payee or refunds the payer. Credit and refund have the same `entry_id`, so only the
  first to be posted is ever written, however late the other is posted;
* a leg's `entry_id` contains only the transfer's id, and every leg describes its transfer. So a second transfer with
  the same id finds the first transfer's legs, cannot post its own, and is not mistaken for the first.

There is no clearing account for money in transit, because every transfer would write to that one item. The money in
transit is the sum of all first legs without a second leg.
"""

from dataclasses import dataclass

from app.transfers import Transfer
from idempotent_receiver import PermanentError, Transaction


@dataclass(frozen=True, slots=True)
class Ledger:
    """The names of the ledger's tables."""

    accounts: str
    entries: str

    def post(self, transfer: Transfer, tx: Transaction) -> None:
        """Post both legs, if the payer can pay. For a receipt, post a separate entry instead."""
        if transfer.receipt:
            self._receive(transfer, tx)
            return
        self.debit(transfer, tx)
        self.credit(transfer, tx)

    def debit(self, transfer: Transfer, tx: Transaction) -> None:
        """Post the first leg: debit the payer, if they can pay."""
        payer, money = transfer.from_account, f"{transfer.amount} {transfer.currency}"
        self._move(tx, payer, transfer, -transfer.amount, f"account {payer} is unknown or cannot pay {money}")
        self._enter(
            tx, first_leg(transfer.transfer_id), payer, transfer, -transfer.amount, otherwise=_posted_before(transfer)
        )

    def credit(self, transfer: Transfer, tx: Transaction) -> None:
        """Post the second leg: credit the payee, unless the payer was refunded."""
        payee = transfer.to_account
        self._move(tx, payee, transfer, +transfer.amount, f"account {payee} is unknown or not in {transfer.currency}")
        self._enter(
            tx, second_leg(transfer.transfer_id), payee, transfer, +transfer.amount, otherwise=_posted_before(transfer)
        )

    def refund(self, transfer: Transfer, tx: Transaction) -> None:
        """Post the second leg in reverse: refund the payer, unless the payee was credited."""
        payer = transfer.from_account
        self._move(tx, payer, transfer, +transfer.amount, f"account {payer} is unknown or not in {transfer.currency}")
        self._enter(tx, second_leg(transfer.transfer_id), payer, transfer, +transfer.amount)

    def void(self, transfer: Transfer, tx: Transaction) -> None:
        """Post a first leg with amount 0, unless a first leg exists, so that a late debit takes nothing."""
        self._enter(tx, first_leg(transfer.transfer_id), transfer.from_account, transfer, 0)

    def _receive(self, transfer: Transfer, tx: Transaction) -> None:
        """Enter the payee's current balance. If it changes before the commit, the handler runs again."""
        payee = transfer.to_account
        account = tx.get(TableName=self.accounts, Key={"account_id": payee}, attributes=["balance"])
        if account is None:
            raise PermanentError(f"account {payee} is unknown")
        id, balance = receipt(transfer.transfer_id), account["balance"]
        self._enter(tx, id, payee, transfer, 0, otherwise=_posted_before(transfer), balance=balance)

    def _move(self, tx: Transaction, account: str, transfer: Transfer, amount: int, otherwise: str) -> None:
        tx.update(
            TableName=self.accounts,
            Key={"account_id": account},
            UpdateExpression="SET balance = balance + :amount",
            ConditionExpression="currency = :currency AND balance >= :least",
            ExpressionAttributeValues={":amount": amount, ":currency": transfer.currency, ":least": max(0, -amount)},
            otherwise=PermanentError(otherwise),
        )

    def _enter(
        self,
        tx: Transaction,
        id: str,
        account: str,
        transfer: Transfer,
        amount: int,
        *,
        otherwise: PermanentError | None = None,
        **more: int,
    ) -> None:
        entry = {"entry_id": id, "transfer_id": transfer.transfer_id, "account_id": account, "amount": amount}
        tx.put(
            TableName=self.entries,
            Item={**entry, **described(transfer), **more},
            ConditionExpression="attribute_not_exists(entry_id)",
            otherwise=otherwise,
        )


def first_leg(transfer_id: str) -> str:
    """The id of the entry for the debit."""
    return f"{transfer_id}#1"


def second_leg(transfer_id: str) -> str:
    """The id of the entry for the credit or the refund."""
    return f"{transfer_id}#2"


def receipt(transfer_id: str) -> str:
    """The id of the entry for a receipt. No transfer's id contains #."""
    return f"{transfer_id}##receipt"


def described(transfer: Transfer) -> dict[str, str | int]:
    """The attributes with which each leg describes its transfer."""
    parties = {"payer": transfer.from_account, "payee": transfer.to_account}
    return {**parties, "total": transfer.amount, "currency": transfer.currency}


def _posted_before(transfer: Transfer) -> PermanentError:
    return PermanentError(f"transfer {transfer.transfer_id} was posted before, by another message")
