"""The controls: handlers as many are written, with no records.

`post` is what `make run PROTECTION=off` runs in place of the shipped ledger, which would refuse a second posting by its
conditions. `write` sends the shipped function's own writes, conditions and all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.dynamodb.transactions import transact_items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def plain_consumer(one: Callable[[Mapping[str, Any]], None]) -> Callable[[Any, Any], Any]:
    """A plain partial-batch handler: handle each record of a batch, and answer with those that failed."""

    def handle(event: Any, context: Any) -> Any:
        failed = []
        for record in event["Records"]:
            try:
                one(record)
            except Exception:  # noqa: BLE001  # a plain handler tries everything again
                failed.append({"itemIdentifier": record["messageId"]})
        return {"batchItemFailures": failed}

    return handle


def post(accounts: Any, entries: Any, transfer: Any, between: Callable[[], None]) -> None:
    """Read two balances, and write what follows from them, leg by leg. Accounts and entries are boto3's tables.

    An entry counts how often it was written, so that reconciliation can tell what became of the money.
    """
    payer, payee = (_balance(accounts, each) for each in (transfer.from_account, transfer.to_account))
    if payer < transfer.amount:
        raise ValueError(f"account {transfer.from_account} cannot pay {transfer.amount}")
    _post_leg(accounts, entries, transfer, (transfer.from_account, payer, -transfer.amount))
    between()
    _post_leg(accounts, entries, transfer, (transfer.to_account, payee, transfer.amount))


def _balance(accounts: Any, account: str) -> int:
    return int(accounts.get_item(Key={"account_id": account})["Item"]["balance"])


def _post_leg(accounts: Any, entries: Any, transfer: Any, leg: tuple[str, int, int]) -> None:
    account, balance, amount = leg
    new = {":balance": balance + amount}
    accounts.update_item(
        Key={"account_id": account}, UpdateExpression="SET balance = :balance", ExpressionAttributeValues=new
    )
    told = {":transfer": transfer.transfer_id, ":account": account, ":amount": amount, ":once": 1}
    entries.update_item(
        Key={"entry_id": f"{transfer.transfer_id}#{1 if amount < 0 else 2}"},
        UpdateExpression="SET transfer_id = :transfer, account_id = :account ADD amount :amount, times :once",
        ExpressionAttributeValues=told,
    )


def write(dynamodb: Any, tx: Any) -> None:
    if tx.actions:
        dynamodb.transact_write_items(TransactItems=transact_items(tx.actions, table="none", id="none"))
