"""An operator who keeps redriving what died only because the bank was down; in a worker, so it may be killed too."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.config import Config

from harness.workload.evidence import Asked, now_ms
from idempotent_receiver import DynamoDBStore
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.operations.dead_letters import queue
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.run import Run
from idempotent_receiver.operations.dead_letters.selection import Selection
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.steps import Steps
from idempotent_receiver.operations.dead_letters.triage import Rules
from idempotent_receiver.operations.dead_letters.verbs import redrive_dispositions
from idempotent_receiver.protocol.record import record_id
from idempotent_receiver.sqs.keys import message_id
from tests.chaos.settings import RECORDS, REDRIVER

if TYPE_CHECKING:
    from harness.workload.evidence import Log
    from tests.chaos.settings import Settings

HOLD_SECONDS = 5
UNSETTLED = {"done", "no-record", "never-settled", "never-started", "record-unreadable", "not-sent", "error"}
GROUPS = UNSETTLED | {f"{error}@tests.chaos.worker._perform" for error in ("BankAway", "ConnectionError")}
"""Of these groups of `receiver dlq list`; what was refused for good, or is no transfer, stays."""


def redrive(settings: Settings, made: partial[Any], log: Log) -> dict[str, list[str]]:
    """Redrive what there is; what was done, and what could not be. `made` makes a worker's clients."""
    log.write(Asked(at_ms=now_ms(), worker=settings.worker, name="redrive"))
    queue.WAIT_SECONDS = 0  # it does not linger in a long poll, so that faults meet it at work
    own = {"config": made.keywords["config"].merge(Config(user_agent_extra=f"worker/{REDRIVER}"))}
    sqs, store = made("sqs", **own), DynamoDBStore(RECORDS, settings.namespace, made("dynamodb", **own))
    queue_arn = settings.outputs["QueueArn"]
    reader = Reader(queue_arn=queue_arn, key=message_id, record_id=partial(record_id, settings.namespace))
    rules = Rules(queue_arn=queue_arn, include_permanent=True)
    dead = settings.outputs["DeadLetterQueueUrl"]
    letters = queue.DeadLetterQueue(sqs, dead, SystemClock(), hold_seconds=HOLD_SECONDS)
    with Session(source=letters, reader=reader, store=store, rules=rules) as session:
        dispositions = redrive_dispositions(settings.outputs["QueueUrl"])
        run = Run(session, dispositions, Steps(sqs, letters), selection=Selection(groups=frozenset(GROUPS)))
        run.carry_out(run.plan())
        left = ["left"] * len(run.summary.left) + ["held by others"] * letters.held_elsewhere()
    return {"swept": [*map(str, run.summary.done.elements()), *left]}
