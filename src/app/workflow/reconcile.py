"""reconcile: after an execution has failed (FAILED, TIMED_OUT, ABORTED), make the record agree with the ledger.

An EventBridge rule for Step Functions status changes calls it for each such execution. Most executions recorded their
outcome before they ended and need nothing more. For the others, this calls the workflow's own steps under their own
keys, so that a step that the execution itself completes is not repeated.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from aws_lambda_powertools.metrics import MetricUnit, single_metric

from app.steps import receipt, refund
from app.workflow.wiring import logger, workflow
from idempotent_receiver import ConditionFailed, FingerprintMismatch, PermanentError
from idempotent_receiver.protocol import Record, Status
from idempotent_receiver.workflow import NEVER_STARTED, ClaimLost, Closed, Deadline, Unknown, completed, failed

Reconciled = Literal["settled", "completed", "returned", "person", "stranger"]

DIED = ("FAILED", "TIMED_OUT", "ABORTED")
NEEDS_A_PERSON = "NeedsAPerson"
_REFUND_CALLS = 3
"""The most refund calls made: a late debit or credit may be posted between a call's read and its own posting."""


class NotReconciled(Exception):
    """The record could not be read or written: retry."""


@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: Any) -> str:
    """Reconcile the execution that an event names. Raises if the event must be retried."""
    detail = event["detail"]
    if detail["status"] not in DIED:
        return "settled"  # running or succeeded: the rule does not send these
    arn, input = detail["executionArn"], detail.get("input")
    if input is None:
        # EventBridge omits an input that is too long.
        input = workflow.client.describe_execution(executionArn=arn)["input"]
    deadline = workflow.deadline(context.get_remaining_time_in_millis())
    return reconciled(Closed(arn, detail["status"], input), deadline, context)


def reconciled(closed: Closed, deadline: Deadline, context: Any) -> Reconciled:
    """Make an ended execution's record agree with the ledger, and return what was done."""
    found = workflow.record_of(closed.execution.rpartition(":")[2], deadline)
    if isinstance(found, Unknown):
        raise NotReconciled(found.why)
    if _recorded_its_outcome(found, closed):
        return "settled"
    came_of_it = _reconciled(closed, found, deadline, context)
    logger.info("reconciled", execution=closed.execution, status=closed.status, came_of_it=came_of_it)
    return came_of_it


def _recorded_its_outcome(found: Record | None, closed: Closed) -> bool:
    """Whether the execution itself wrote its final outcome, so that nothing remains to be done."""
    if found is None or found.execution != closed.execution:
        return False
    if found.status == Status.COMPLETED:
        return bool(json.loads(found.data or "{}").get("message_id"))
    return found.status == Status.FAILED and not _may_be_revised(found)


def _may_be_revised(found: Record | None) -> bool:
    """Whether the recorded outcome is provisional: a person is needed, or no execution was started."""
    error_type = None if found is None or found.error is None else json.loads(found.error).get("type")
    return error_type in (NEEDS_A_PERSON, NEVER_STARTED)


def _reconciled(closed: Closed, found: Record | None, deadline: Deadline, context: Any) -> Reconciled:
    transfer = json.loads(closed.input)["payload"]
    revises = found.version if found is not None and _may_be_revised(found) else None
    try:
        arrived = _refunded(transfer, context)["arrived"]
    except Exception as error:
        # If final, another transfer's refund used this id, so money that was taken cannot be refunded automatically.
        final = isinstance(error, PermanentError | FingerprintMismatch)
        if revises is not None or final:
            _call_a_person()
        if not final:
            raise
        return _concluded(closed, failed(_error(NEEDS_A_PERSON, _STUCK)), "person", deadline, revises)
    if not arrived:
        outcome = failed(_error(closed.status, "no money was moved, or all of it was refunded"))
        return _concluded(closed, outcome, "returned", deadline, revises)
    data = json.dumps(receipt.lambda_handler(transfer, context))
    if found is not None and found.status == Status.COMPLETED:
        return "completed"  # only its receipt was missing; a completed record never changes
    return _concluded(closed, completed(data), "completed", deadline, revises)


def _refunded(transfer: dict[str, Any], context: Any) -> dict[str, bool]:
    """Close the transfer with the workflow's refund step, and return the step's result."""
    for _ in range(_REFUND_CALLS - 1):
        try:
            return refund.lambda_handler(transfer, context)
        except ConditionFailed:
            continue
    return refund.lambda_handler(transfer, context)


def _concluded(
    closed: Closed,
    outcome: Mapping[str, str | int | None],
    came_of_it: Reconciled,
    deadline: Deadline,
    revises: str | None,
) -> Reconciled:
    answer = workflow.conclude(closed.execution, outcome, deadline, revises)
    if isinstance(answer, Unknown):
        raise NotReconciled(answer.why)
    if not isinstance(answer, ClaimLost):
        return came_of_it
    if answer.found is not None:
        # The record belongs to another execution or has another outcome, so no client will learn where the money is.
        _call_a_person()
    return "stranger"


def _call_a_person() -> None:
    """Emit the metric that the alarm watches."""
    with single_metric(name=NEEDS_A_PERSON, unit=MetricUnit.Count, value=1):
        pass


_STUCK = "the payer may have been debited, the payee was not credited, and the refund was refused"


def _error(type: str, text: str) -> str:
    return json.dumps({"type": type, "text": text, "status": 500})
