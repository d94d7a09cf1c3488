"""reconcile: when the machine itself has died (TIMED_OUT, ABORTED, FAILED), put books and record in order.

The rule on Step Functions' status changes calls it for every execution that did not succeed. Most have said everything
themselves before they ended, and then there is nothing to do. What is left is done by the machine's own steps, under
their own keys: whoever of the two comes second finds it done.
"""

import json
from collections.abc import Mapping
from typing import Any, Literal

from aws_lambda_powertools.metrics import MetricUnit, single_metric

from app.steps import receipt, refund
from app.workflow.wiring import logger, workflow
from idempotent_receiver import FingerprintMismatch, PermanentError
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import Unavailable
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.transaction import ConditionFailed
from idempotent_receiver.protocol.transitions import ClaimLost
from idempotent_receiver.workflow.executions import NEVER_STARTED, Closed

Reconciled = Literal["settled", "completed", "returned", "person", "stranger"]

DIED = ("FAILED", "TIMED_OUT", "ABORTED")
NEEDS_A_PERSON = "NeedsAPerson"
_TRIES = 3
"""At the refund: a debit or credit that was on its way may come between its question and its posting."""


class NotReconciled(Exception):
    """The record could not be read or written: try again."""


@logger.inject_lambda_context
def lambda_handler(event: dict[str, Any], context: Any) -> str:
    """Reconcile the execution that an event tells of; raises where that must be tried again."""
    detail = event["detail"]
    if detail["status"] not in DIED:
        return "settled"  # it runs, or has said everything; the rule sends none of these
    arn, told = detail["executionArn"], detail.get("input")
    if told is None:
        # Left out of the event because it is too long.
        told = workflow.client.describe_execution(executionArn=arn)["input"]
    deadline = workflow.deadline(context.get_remaining_time_in_millis())
    return reconciled(Closed(arn, detail["status"], told), deadline, context)


def reconciled(closed: Closed, deadline: Deadline, context: Any) -> Reconciled:
    """Bring the books and the record of an execution that is over into agreement; say what came of it."""
    found = workflow.look(closed.execution.rpartition(":")[2], deadline)
    if isinstance(found, Unavailable):
        raise NotReconciled(found.why)
    if _said_everything(found, closed):
        return "settled"
    came_of_it = _reconciled(closed, found, deadline, context)
    logger.info("reconciled", execution=closed.execution, status=closed.status, came_of_it=came_of_it)
    return came_of_it


def _said_everything(found: Record | None, closed: Closed) -> bool:
    """Whether the machine wrote its outcome itself, and nothing is left to do."""
    if found is None or found.execution != closed.execution:
        return False
    if found.status == Status.COMPLETED:
        return bool(json.loads(found.data or "{}").get("message_id"))
    return found.status == Status.FAILED and not _may_be_revised(found)


def _may_be_revised(found: Record | None) -> bool:
    """Whether a record says what need not be the last word: that a person is needed, or that nothing was started."""
    told = None if found is None or found.error is None else json.loads(found.error).get("type")
    return told in (NEEDS_A_PERSON, NEVER_STARTED)


def _reconciled(closed: Closed, found: Record | None, deadline: Deadline, context: Any) -> Reconciled:
    transfer = json.loads(closed.input)["payload"]
    revises = found.version if found is not None and _may_be_revised(found) else None
    try:
        arrived = _refunded(transfer, context)["arrived"]
    except Exception as error:
        # Another transfer's refund has this one's id: what this one took, if anything, cannot be given back by itself.
        final = isinstance(error, PermanentError | FingerprintMismatch)
        if revises is not None or final:
            _call_a_person()
        if not final:
            raise
        return _concluded(closed, transitions.failed(_error(NEEDS_A_PERSON, _STUCK)), "person", deadline, revises)
    if not arrived:
        told = transitions.failed(_error(closed.status, "nothing was moved, or all of it was given back"))
        return _concluded(closed, told, "returned", deadline, revises)
    data = json.dumps(receipt.lambda_handler(transfer, context))
    if found is not None and found.status == Status.COMPLETED:
        return "completed"  # only its receipt was missing, and what is completed never changes
    return _concluded(closed, transitions.completed(data), "completed", deadline, revises)


def _refunded(transfer: dict[str, Any], context: Any) -> dict[str, bool]:
    """What the machine's own step says, once it has closed the transfer."""
    for _ in range(_TRIES - 1):
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
    if isinstance(answer, Unavailable):
        raise NotReconciled(answer.why)
    if not isinstance(answer, ClaimLost):
        return came_of_it
    if answer.found is not None:
        # Its record is another's, or says otherwise: no client will hear what has become of the money.
        _call_a_person()
    return "stranger"


def _call_a_person() -> None:
    """Count what the alarm watches."""
    with single_metric(name=NEEDS_A_PERSON, unit=MetricUnit.Count, value=1):
        pass


_STUCK = "the payer may have been debited, the payee was not credited, and the refund was refused"


def _error(type: str, text: str) -> str:
    return json.dumps({"type": type, "text": text, "status": 500})
