"""refund: refund money that was taken but has not arrived, and prevent any later debit.

It runs when the transfer's progress is unknown, so it reads the ledger first. If a debit or credit is posted between
that read and this step's own posting, the posting's condition fails, and the retry reads the new leg.
"""

from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from app.steps.wiring import ledger, ledger_reader, step, unavailable
from app.transfers import Transfer
from idempotent_receiver import Transaction


@step("refund")
def lambda_handler(event: dict[str, Any], context: object, tx: Transaction) -> dict[str, bool]:
    """Close the transfer in the transaction that completes this step. Returns whether the money had `arrived`."""
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
