"""The books: an account's balance, and two entries for each transfer, its legs. A posting is written whole, or not.

A queue's message posts both legs at once. A workflow posts them one by one, so something may come between, and a step
may come late, when others have given it up. What can follow on what is therefore said by the entries themselves:

* the first leg is taken from the payer, or, where the transfer was given up before, it is an entry of nothing;
* the second leg goes to the payee, or back to the payer. Both have the same `entry_id`, so only one of them is ever
  written, whoever comes first and however late the other;
* a leg's `entry_id` is made of the transfer's id alone, and each says what it is a leg of. So an id that is used for
  another transfer finds the first one's legs, can post none of its own, and is not taken for it.

No clearing account holds what is under way: each transfer would write to that one item. It is what first legs say
without a second, and in the end there is none.
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
        """Post both legs, on condition that the payer can pay; a receipt is entered as such."""
        if transfer.receipt:
            self._receive(transfer, tx)
            return
        self.debit(transfer, tx)
        self.credit(transfer, tx)

    def debit(self, transfer: Transfer, tx: Transaction) -> None:
        """Post the first leg: take the money from the payer, if they have it."""
        payer, money = transfer.from_account, f"{transfer.amount} {transfer.currency}"
        self._move(tx, payer, transfer, -transfer.amount, f"account {payer} is unknown or cannot pay {money}")
        self._enter(
            tx, first_leg(transfer.transfer_id), payer, transfer, -transfer.amount, otherwise=_posted_before(transfer)
        )

    def credit(self, transfer: Transfer, tx: Transaction) -> None:
        """Post the second leg: give it to the payee, unless it went back to the payer."""
        payee = transfer.to_account
        self._move(tx, payee, transfer, +transfer.amount, f"account {payee} is unknown or not in {transfer.currency}")
        self._enter(
            tx, second_leg(transfer.transfer_id), payee, transfer, +transfer.amount, otherwise=_posted_before(transfer)
        )

    def refund(self, transfer: Transfer, tx: Transaction) -> None:
        """Post the second leg the other way: give the money back to the payer, unless it has arrived."""
        payer = transfer.from_account
        self._move(tx, payer, transfer, +transfer.amount, f"account {payer} is unknown or not in {transfer.currency}")
        self._enter(tx, second_leg(transfer.transfer_id), payer, transfer, +transfer.amount)

    def void(self, transfer: Transfer, tx: Transaction) -> None:
        """Post a first leg of nothing, unless there is one: a debit that comes late finds it, and takes nothing."""
        self._enter(tx, first_leg(transfer.transfer_id), transfer.from_account, transfer, 0)

    def _receive(self, transfer: Transfer, tx: Transaction) -> None:
        id = f"{transfer.transfer_id}##receipt"  # no account's name has that sign
        self._enter(tx, id, transfer.to_account, transfer, 0, otherwise=_posted_before(transfer))

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
    ) -> None:
        entry = {"entry_id": id, "transfer_id": transfer.transfer_id, "account_id": account, "amount": amount}
        tx.put(
            TableName=self.entries,
            Item={**entry, **described(transfer)},
            ConditionExpression="attribute_not_exists(entry_id)",
            otherwise=otherwise,
        )


def first_leg(transfer_id: str) -> str:
    """The id of the entry that says what was taken."""
    return f"{transfer_id}#1"


def second_leg(transfer_id: str) -> str:
    """The id of the entry that says where it went."""
    return f"{transfer_id}#2"


def described(transfer: Transfer) -> dict[str, str | int]:
    """What each leg says of its transfer: no other transfer's says the same."""
    parties = {"payer": transfer.from_account, "payee": transfer.to_account}
    return {**parties, "total": transfer.amount, "currency": transfer.currency}


def _posted_before(transfer: Transfer) -> PermanentError:
    return PermanentError(f"transfer {transfer.transfer_id} was posted before, by another message")
