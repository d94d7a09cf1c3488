"""A worker of CAST=workflow: the shipped endpoint that starts executions, and the shipped recovery of orphans."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from idempotent_receiver import DynamoDBStore
from idempotent_receiver.workflow import Workflow, recover_orphan, workflow_endpoint
from local.workload.evidence import Asked, now_ms
from tests.chaos.machine import NAMESPACE, ORPHANS, TIMEOUT_SECONDS
from tests.chaos.settings import LEASE_MARGIN_SECONDS, RECORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from local.workload.evidence import Log
    from tests.chaos.settings import Settings

MOST_ORPHANS = 25


class Starter:
    """`made` makes clients. An event is a request, or asks for a sweep."""

    def __init__(self, settings: Settings, made: Callable[[Any], Any], log: Log) -> None:
        self._dynamodb, self._log, self._worker = made("dynamodb"), log, settings.worker
        self._workflow = Workflow(
            DynamoDBStore(RECORDS, namespace=NAMESPACE, client=self._dynamodb),
            client=made("stepfunctions"),
            state_machine_arn=settings.machine,
            timeout_seconds=TIMEOUT_SECONDS,
            lease_margin_seconds=LEASE_MARGIN_SECONDS,
        )
        self._endpoint = workflow_endpoint(self._workflow, parse=json.loads)

    def __call__(self, event: Mapping[str, Any], context: Any) -> object:
        key = event["Records"][0]["messageId"] if event["Records"] else "sweep"
        self._log.write(Asked(at_ms=now_ms(), worker=self._worker, name=key))
        return self._endpoint(event["request"], context) if event["Records"] else self._sweep(context)

    def _sweep(self, context: Any) -> object:
        deadline = self._workflow.deadline(context.get_remaining_time_in_millis())
        found = self._dynamodb.query(
            TableName=RECORDS,
            IndexName=ORPHANS,
            KeyConditionExpression="#status = :inprogress AND in_progress_expiration < :now",
            ExpressionAttributeNames={"#status": "status"},
            ExpressionAttributeValues={":inprogress": {"S": "INPROGRESS"}, ":now": {"N": str(deadline.now_ms)}},
            Limit=MOST_ORPHANS,
        )
        names = [item["id"]["S"].removeprefix(self._workflow.id_of("")) for item in found["Items"]]
        answers = [recover_orphan(self._workflow, name, deadline, context.aws_request_id) for name in names]
        return {"swept": [type(answer).__name__ for answer in answers]}
