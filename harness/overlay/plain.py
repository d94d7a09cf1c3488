"""The controls: typical handlers without records, a consumer's in `post` and a workflow's in `write`.

The shipped ledger's conditions refuse a second posting. `post` has none; `write` sends them unchanged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from idempotent_receiver.dynamodb.transactions import transact_items

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def plain_consumer(one: Callable[[Mapping[str, Any]], None]) -> Callable[[Any, Any], Any]:
    """A plain partial-batch handler: handles each record of a batch, and returns those that failed."""

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
    """Read two balances and write the new ones, leg by leg. Accounts and entries are boto3 tables."""
    named = (transfer.from_account, transfer.to_account)
    payer, payee = (int(accounts.get_item(Key={"account_id": each})["Item"]["balance"]) for each in named)
    if payer < transfer.amount:
        raise ValueError(f"account {named[0]} cannot pay {transfer.amount}")
    _write_leg(accounts, entries, transfer, (1, named[0], payer, -transfer.amount))
    between()
    _write_leg(accounts, entries, transfer, (2, named[1], payee, transfer.amount))


def _write_leg(accounts: Any, entries: Any, transfer: Any, leg: tuple[int, str, int, int]) -> None:
    """Write one leg. An entry counts its writes, so that reconciliation can tell what became of the money."""
    place, account, balance, amount = leg
    _update(accounts, {"account_id": account}, "SET balance = :balance", balance=balance + amount)
    told = {"transfer": transfer.transfer_id, "account": account, "amount": amount, "once": 1}
    expression = "SET transfer_id = :transfer, account_id = :account ADD amount :amount, times :once"
    _update(entries, {"entry_id": f"{transfer.transfer_id}#{place}"}, expression, **told)


def _update(table: Any, key: Any, expression: str, **values: Any) -> None:
    values = {f":{name}": value for name, value in values.items()}
    table.update_item(Key=key, UpdateExpression=expression, ExpressionAttributeValues=values)


def write(dynamodb: Any, tx: Any) -> None:
    if tx.actions:
        dynamodb.transact_write_items(TransactItems=transact_items(tx.actions))
