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
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, SettleAnswer, Unavailable, ask
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.transitions import AlreadyCompleted, AlreadyFailed, Claim, Claimed, ClaimLost, Settled
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
    claimed = claim(workflow, start, deadline, owner)
    return claimed.begin() if isinstance(claimed, ClaimedStart) else claimed


def claim(workflow: Workflow, start: Start, deadline: Deadline, owner: str) -> "ClaimedStart | StartAnswer":
    """Claim the key until the deadline. The record keeps what to start, for whoever must go on from there."""
    claim = Claim(
        id=workflow.id_of(start.name),
        fingerprint=start.fingerprint,
        owner=owner,
        lease_until_ms=deadline.ends_ms + int(workflow.lease_margin_seconds * 1000),
        retention_seconds=workflow.retention_seconds,
        failures_are_answers=True,
        input=start.input,
    )
    answer: Claimed | transitions.Refusal | Unavailable = ask(claim, None, workflow.store, deadline)
    if isinstance(answer, transitions.HeldElsewhere):
        # The record of whoever claimed it says what to start: it will be started, if only by a sweep.
        return Running(workflow.arn_of(start.name))
    return ClaimedStart(workflow, start, deadline, answer) if isinstance(answer, Claimed) else answer


@dataclass(frozen=True, slots=True)
class ClaimedStart:
    """A start whose key is claimed."""

    workflow: Workflow
    start: Start
    deadline: Deadline
    claimed: Claimed

    @property
    def execution(self) -> str:
        """The ARN of its execution, started or not."""
        return self.workflow.arn_of(self.start.name)

    def begin(self) -> StartAnswer:
        """Start the execution. If that cannot be done now, the key stays claimed until the lease ends."""
        machine, client = self.workflow.state_machine_arn, self.workflow.client
        try:
            client.start_execution(stateMachineArn=machine, name=self.start.name, input=self.start.input)
        except client.exceptions.ExecutionAlreadyExists:
            found = self.workflow.describe(self.execution)
            return Unavailable("DescribeExecution: ExecutionDoesNotExist") if found is None else self.adopt(found)
        except (ClientError, BotoCoreError) as error:
            return unavailable("StartExecution", error)
        return self._hand_over(self.workflow.longest_seconds)

    def adopt(self, found: "DescribeExecutionOutputTypeDef | Unavailable") -> StartAnswer:
        """Go on with an execution that exists: its starter died before the hand-over, or its record is gone."""
        if isinstance(found, Unavailable):
            return found
        # Compared by fingerprint, not by text: the parts of a payload that do not count may differ.
        if _fingerprint_of(found.get("input")) != self.start.fingerprint:
            return self.settle(transitions.fail(self.claimed, _OTHER_INPUT), self.execution)
        if found["status"] == "SUCCEEDED":
            return self.settle(transitions.complete(self.claimed, found.get("output")), self.execution)
        # If it failed and wrote no outcome, its lease ends now: the next sweep finds it, and mends what it left behind.
        return self._hand_over(self.workflow.longest_seconds if found["status"] == "RUNNING" else 0)

    def _hand_over(self, lease_seconds: int) -> StartAnswer:
        until_ms = self.deadline.now_ms + lease_seconds * 1000
        answer = self.settle(transitions.hand_over(self.claimed, self.execution, until_ms), self.execution)
        # The execution runs. Its outcome needs no hand-over, and a sweep makes up for it.
        return Started(self.execution) if isinstance(answer, Unavailable) else answer

    def settle(self, settlement: transitions.Settlement, execution: str) -> StartAnswer:
        """Settle the claim; the answer that the record then gives."""
        workflow, held = self.workflow, settlement.held
        answer: SettleAnswer = ask(settlement, held, workflow.store, self.deadline, max_retries=SETTLE_RETRIES)
        match answer:
            case Settled(found):
                return _standing(found, Started(execution))
            case ClaimLost(found):
                # The execution was faster than we, or another starter has taken over.
                return _standing(found, Running(execution))
            case Unavailable():
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
