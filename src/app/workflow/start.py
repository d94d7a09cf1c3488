"""start: `POST /workflows/transfers` with an Idempotency-Key, and `GET` for the location that it returns."""

import os
from typing import Any

from pydantic import TypeAdapter, ValidationError

from app.routes import tenant
from app.transfers import Transfer
from app.workflow.wiring import workflow
from idempotent_receiver import PermanentError, field_names, invalid_body
from idempotent_receiver.workflow import workflow_endpoint

_transfer = TypeAdapter(Transfer)
_names = field_names(_transfer)


def transfer_of(body: bytes) -> dict[str, Any]:
    """The transfer that a body describes, as input for the state machine."""
    try:
        transfer = _transfer.validate_json(body)
    except ValidationError as error:
        raise invalid_body(error, _names) from None
    if transfer.receipt:
        raise PermanentError("a request cannot be a receipt: the workflow sends the receipt itself")
    return transfer.model_dump(mode="json", exclude={"receipt"})


lambda_handler = workflow_endpoint(
    workflow,
    parse=transfer_of,
    scope=tenant,
    running_status=409 if os.environ.get("RUNNING_STATUS") == "409" else 202,
)
