"""refund: give back what was taken and has not arrived, and see to it that nothing more is taken.

It is called when nobody knows how far a transfer has come, so it asks the books. A debit or a credit that comes between
the question and the posting is met by the posting's own condition: then this is tried again, and finds it.
"""

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from app.steps.wiring import ledger, ledger_reader, step, unavailable
from app.transfers import Transfer
from idempotent_receiver import Transaction


@step("refund")
def lambda_handler(event: dict[str, Any], context: object, tx: Transaction) -> dict[str, bool]:
    """Close the transfer, together with this step's completion; say whether the money has `arrived` instead."""
    transfer = Transfer.model_validate(event)
    try:
        legs = ledger_reader.legs(transfer)
    except (ClientError, BotoCoreError) as error:
        raise unavailable(error) from error
    if not legs.taken and not legs.given_up:
        ledger.void(transfer, tx)
    elif not legs.closed:
        ledger.refund(transfer, tx)
    return {"arrived": legs.arrived}
