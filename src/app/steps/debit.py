"""debit: debit the payer. Raises PermanentError if they cannot pay."""

from typing import Any

from app.steps.wiring import ledger, step
from app.transfers import Transfer
from idempotent_receiver import Transaction


@step("debit")
def lambda_handler(event: dict[str, Any], context: object, tx: Transaction) -> dict[str, str]:
    """Post the first leg, in the transaction that completes this step."""
    transfer = Transfer.model_validate(event)
    ledger.debit(transfer, tx)
    return {"debited": transfer.from_account}
