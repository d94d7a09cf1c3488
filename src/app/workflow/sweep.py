"""sweep: find the records whose lease has ended, and recover each orphan. Runs on a schedule.

The records are found by an index. It contains only records in progress, because settling removes the lease, and
DynamoDB omits items without the index's key.
"""

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit, single_metric

from app.workflow.reconcile import reconciled
from app.workflow.wiring import dynamodb, logger, workflow
from idempotent_receiver.workflow import (
    AlreadyCompleted,
    AlreadyFailed,
    Closed,
    Deadline,
    NothingToDo,
    OtherPayload,
    Running,
    Started,
    Unknown,
    Unreadable,
    recover_orphan,
)

_PAGE = 25
_STOP_SECONDS = 8.0
"""With less time left, the invocation recovers no further orphan."""

_COUNTED_AS = {
    Started: "started",
    Running: "running",
    NothingToDo: "tended",
    AlreadyCompleted: "alreadycompleted",
    AlreadyFailed: "alreadyfailed",
    OtherPayload: "fingerprintmismatch",
    Unreadable: "unreadable",
}
"""The names in the result and the log. They do not change when a class is renamed."""


@logger.inject_lambda_context
def lambda_handler(event: Any, context: Any) -> dict[str, int]:
    """Recover all orphans, oldest first. Returns the number of orphans for each result."""
    deadline = workflow.deadline(context.get_remaining_time_in_millis())
    found: Counter[str] = Counter()
    for name in _orphans(deadline):
        if deadline.left_seconds < _STOP_SECONDS:
            found["left"] += 1  # there may be many more
            break
        found[_recovered(name, deadline, context)] += 1
    if found["failed"]:
        with single_metric(name="SweepFailures", unit=MetricUnit.Count, value=found["failed"]):
            pass
    logger.info("swept", counts=dict(found))
    return dict(found)


def _recovered(name: str, deadline: Deadline, context: Any) -> str:
    try:
        answer = recover_orphan(workflow, name, deadline, context.aws_request_id)
        if isinstance(answer, Closed):
            return reconciled(answer, deadline, context)
    except Exception as error:  # noqa: BLE001  # one orphan must not stop the others; the next sweep finds it again
        logger.error("an orphan could not be recovered", execution=name, error_type=type(error).__name__)
        return "failed"
    if isinstance(answer, Unknown):
        logger.error("an orphan could not be recovered", execution=name, reason=answer.why)
        return "failed"
    return _COUNTED_AS[type(answer)]


def _orphans(deadline: Deadline) -> Iterator[str]:
    """The names of all orphaned executions, ordered by lease end. All pages are read, because an orphan that cannot be
    recovered must not keep the others waiting.
    """
    prefix = workflow.id_of("")
    pages = dynamodb.get_paginator("query").paginate(
        TableName=os.environ["WORKFLOWS_TABLE"],
        IndexName=os.environ["ORPHANS_INDEX"],
        KeyConditionExpression="#status = :inprogress AND in_progress_expiration < :now",
        ExpressionAttributeNames={"#status": "status"},
        ExpressionAttributeValues={":inprogress": {"S": "INPROGRESS"}, ":now": {"N": str(deadline.now_ms)}},
        PaginationConfig={"PageSize": _PAGE},
    )
    for page in pages:
        yield from (item["id"]["S"].removeprefix(prefix) for item in page["Items"])
