"""credit: give the money to the payee. PermanentError where they cannot take it, or where it went back by now."""

from typing import Any

from app.steps.wiring import ledger, step
from app.transfers import Transfer
from idempotent_receiver import Transaction


@step("credit")
def lambda_handler(event: dict[str, Any], context: object, tx: Transaction) -> dict[str, str]:
    """Post the second leg, together with this step's completion."""
    transfer = Transfer.model_validate(event)
    ledger.credit(transfer, tx)
    return {"credited": transfer.to_account}
