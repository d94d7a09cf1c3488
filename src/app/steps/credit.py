"""credit: credit the payee. Raises PermanentError if they cannot receive the money, or if it was refunded."""

from typing import Any

from app.steps.wiring import ledger, step
from app.transfers import Transfer
from idempotent_receiver import Transaction


@step("credit")
def lambda_handler(event: dict[str, Any], context: object, tx: Transaction) -> dict[str, str]:
    """Post the second leg, in the transaction that completes this step."""
    transfer = Transfer.model_validate(event)
    ledger.credit(transfer, tx)
    return {"credited": transfer.to_account}
