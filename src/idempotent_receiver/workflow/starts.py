"""Starting an execution: claim its key, start it, and hand the claim over to it.

The starter may die between claim and start, or between start and hand-over. Until the hand-over the record keeps what
to start, so the next request goes on from there, or `orphans.recover_orphan` in a scheduled sweep.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import Unavailable
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.transitions import AlreadyCompleted, AlreadyFailed, Claimed, ClaimLost, Settled
from idempotent_receiver.workflow.executions import Start, Workflow, unavailable

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions.type_defs import DescribeExecutionOutputTypeDef


@dataclass(frozen=True, slots=True)
class Started:
    """An execution was started, or found, and holds the key."""

    execution: str


@dataclass(frozen=True, slots=True)
class Running:
    """The execution of an earlier request holds the key, or is about to."""

    execution: str


_Refused = AlreadyCompleted | AlreadyFailed | transitions.OtherPayload | transitions.Unreadable
StartAnswer = Started | Running | _Refused | Unavailable


def accept(workflow: Workflow, start: Start, deadline: Deadline, owner: str) -> StartAnswer:
    """Claim the key, start its execution, and hand the claim over to it; or say what is there already."""
    held, arn = workflow.claim(start, deadline, owner), workflow.arn_of(start.name)
    if isinstance(held, transitions.HeldElsewhere):
        # The record of whoever claimed it says what to start: it will be started, if only by a sweep.
        return Running(arn)
    if not isinstance(held, Claimed):
        return held
    # If it cannot be started now, the key stays claimed until the lease ends.
    try:
        workflow.client.start_execution(stateMachineArn=workflow.state_machine_arn, name=start.name, input=start.input)
    except workflow.client.exceptions.ExecutionAlreadyExists:
        found = workflow.describe(arn)
        if found is None:
            found = Unavailable("DescribeExecution: ExecutionDoesNotExist")
        return adopt(workflow, held, start, found, deadline)
    except (ClientError, BotoCoreError) as error:
        return unavailable("StartExecution", error)
    return _hand_over(workflow, held, arn, workflow.longest_seconds, deadline)


def adopt(
    workflow: Workflow,
    held: Claimed,
    start: Start,
    found: "DescribeExecutionOutputTypeDef | Unavailable",
    deadline: Deadline,
) -> StartAnswer:
    """Go on with an execution that exists: its starter died before the hand-over, or its record is gone."""
    if isinstance(found, Unavailable):
        return found
    arn = workflow.arn_of(start.name)
    # Compared by fingerprint, not by text: the parts of a payload that do not count may differ.
    if _fingerprint_of(found.get("input")) != start.fingerprint:
        return settled(workflow, transitions.fail(held, _OTHER_INPUT), arn, deadline)
    if found["status"] == "SUCCEEDED":
        return settled(workflow, transitions.complete(held, found.get("output")), arn, deadline)
    # If it failed and wrote no outcome, its lease ends now: the next sweep finds it, and mends what it left behind.
    return _hand_over(workflow, held, arn, workflow.longest_seconds if found["status"] == "RUNNING" else 0, deadline)


def _hand_over(workflow: Workflow, held: Claimed, arn: str, lease_seconds: int, deadline: Deadline) -> StartAnswer:
    until_ms = deadline.now_ms + lease_seconds * 1000
    answer = settled(workflow, transitions.hand_over(held, arn, until_ms), arn, deadline)
    # The execution runs. Its outcome needs no hand-over, and a sweep makes up for it.
    return Started(arn) if isinstance(answer, Unavailable) else answer


def settled(workflow: Workflow, settlement: transitions.Settlement, arn: str, deadline: Deadline) -> StartAnswer:
    """Settle a claim; the answer that the record then gives."""
    match workflow.settle(settlement, deadline):
        case Settled(found):
            return _standing(found, Started(arn))
        case ClaimLost(found):
            # The execution was faster than we, or another starter has taken over.
            return _standing(found, Running(arn))
        case Unavailable() as answer:
            return answer


def _standing(found: Record | None, otherwise: Started | Running) -> StartAnswer:
    if found is not None and found.unreadable is None:
        if found.status == Status.COMPLETED:
            return AlreadyCompleted(found)
        if found.status == Status.FAILED:
            return AlreadyFailed(found)
    return otherwise


def _fingerprint_of(input: str | None) -> str | None:
    """The fingerprint in an execution's input; None if the workflow did not start it."""
    try:
        return str(json.loads(input or "")["fingerprint"])
    except (ValueError, TypeError, KeyError):
        return None


def error_json(type: str, text: str, status: int) -> str:
    """The `error` of a record whose execution failed for good."""
    return json.dumps({"type": type, "text": text, "permanent": True, "status": status})


_OTHER_INPUT = error_json("FingerprintMismatch", "the key was used for another payload, by an earlier execution", 422)
