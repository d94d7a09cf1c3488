"""Starts an execution: claims its key, starts it, and hands the claim over to it.

The starter may die between claim and start, or between start and hand-over. Until the hand-over, the record keeps the
execution's input, so the next request or a scheduled sweep can continue. An orphan is a record whose lease ended
without an outcome because a starter or a machine died; `recover_orphan` continues it.
"""

import json
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol import answers, transitions
from idempotent_receiver.protocol.answers import AlreadyCompleted, AlreadyFailed, ClaimLost, Settled, SettleResult
from idempotent_receiver.protocol.exchange import SETTLE_RETRIES, ask
from idempotent_receiver.protocol.execution import hand_over
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.workflow.executions import NEVER_STARTED, Start, Workflow, executions_unavailable

MOST_STARTS = 10
"""How often to try to start an execution for an orphaned record before giving up."""


@dataclass(frozen=True, slots=True)
class Started:
    """An execution was started or found, and holds the key."""

    execution: str


@dataclass(frozen=True, slots=True)
class Running:
    """An earlier request's execution holds the key, or is about to."""

    execution: str


@dataclass(frozen=True, slots=True)
class Closed:
    """An execution has ended without recording its outcome: its effects need repair."""

    execution: str
    status: str
    input: str


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """The record needs no recovery, or recovery has already completed."""


_Refused = AlreadyCompleted | AlreadyFailed | answers.OtherPayload | answers.Unreadable
StartAnswer = Started | Running | _Refused | Unknown


def accept(workflow: Workflow, start: Start, deadline: Deadline, owner: str) -> StartAnswer:
    """Claim the key, start its execution and hand the claim over to it, or return the existing answer."""
    claimed = claim(workflow, start, deadline, owner)
    return claimed.begin() if isinstance(claimed, ClaimedStart) else claimed


def recover_orphan(workflow: Workflow, name: str, deadline: Deadline, owner: str) -> StartAnswer | Closed | NothingToDo:
    """Recover a record whose lease has ended: start its execution if it was never started, otherwise look it up."""
    found = workflow.record_of(name, deadline)
    if isinstance(found, Unknown):
        return found
    if found is None or found.status != Status.INPROGRESS:
        return NothingToDo()
    if found.lease_until_ms is None or found.lease_until_ms > deadline.now_ms:
        return NothingToDo()
    start = Start(name, found.validation or "", found.input or "")
    if found.execution is None and (found.attempts or 0) < MOST_STARTS and found.input is not None:
        return accept(workflow, start, deadline, owner)
    arn = found.execution or workflow.arn_of(name)
    execution = workflow.describe(arn)
    if isinstance(execution, Unknown):
        return execution
    if execution is not None and execution["status"] == "RUNNING":
        return NothingToDo()
    if execution is not None:
        return Closed(arn, execution["status"], execution["input"])
    orphan = claim(workflow, start, deadline, owner)
    if not isinstance(orphan, ClaimedStart):
        return orphan
    if found.execution is not None:
        return orphan.fail("ExecutionGone", "its execution is no longer known and wrote no outcome", 500, arn)
    # Checked again under the claim: another starter may have started the execution and died.
    never = f"no execution could be started in {MOST_STARTS} attempts"
    return orphan.adopt() or orphan.fail(NEVER_STARTED, never, 500, arn)


def claim(workflow: Workflow, start: Start, deadline: Deadline, owner: str) -> "ClaimedStart | StartAnswer":
    """Claim the key until the deadline. The record keeps the input, so that any starter can continue."""
    claim = Claim(
        id=workflow.id_of(start.name),
        fingerprint=start.fingerprint,
        owner=owner,
        lease_until_ms=deadline.ends_ms + int(workflow.lease_margin_seconds * 1000),
        retention_seconds=workflow.retention_seconds,
        failures_are_answers=True,
        input=start.input,
    )
    answer: Claimed | answers.Refusal | Unknown = ask(claim, None, workflow.store, deadline)
    if isinstance(answer, answers.HeldElsewhere):
        # The claiming request's record has the input, so the execution will be started, by a sweep at the latest.
        return Running(workflow.arn_of(start.name))
    if isinstance(answer, answers.Unsent):
        return answers.NOT_SENT_HERE
    assert not isinstance(answer, answers.Exhausted | answers.ClaimableAlone)  # the claim has no allowance
    return ClaimedStart(workflow, start, deadline, answer) if isinstance(answer, Claimed) else answer


@dataclass(frozen=True, slots=True)
class ClaimedStart:
    """A start whose key is claimed."""

    workflow: Workflow
    start: Start
    deadline: Deadline
    claimed: Claimed

    def begin(self) -> StartAnswer:
        """Start the execution. If that fails, the key stays claimed until the lease ends."""
        machine, client = self.workflow.state_machine_arn, self.workflow.client
        try:
            client.start_execution(stateMachineArn=machine, name=self.start.name, input=self.start.input)
        except client.exceptions.ExecutionAlreadyExists:
            return self.adopt() or Unknown("DescribeExecution: ExecutionDoesNotExist")
        except (ClientError, BotoCoreError) as error:
            return executions_unavailable("StartExecution", error)
        return self._hand_over(self.workflow.longest_seconds)

    def adopt(self) -> StartAnswer | None:
        """Continue an existing execution whose starter died before the hand-over or whose record is gone. None if no
        such execution exists.
        """
        arn = self.workflow.arn_of(self.start.name)
        found = self.workflow.describe(arn)
        if found is None or isinstance(found, Unknown):
            return found
        # Compared by fingerprint, not by text: parts of a payload outside the fingerprint may differ.
        if _fingerprint_of(found.get("input")) != self.start.fingerprint:
            other = "the key was used for another payload, by an earlier execution"
            return self.fail("FingerprintMismatch", other, 422, arn)
        if found["status"] == "SUCCEEDED":
            return self.settle(transitions.complete(self.claimed, found.get("output")), arn)
        # If it failed and recorded no outcome, its lease ends now: the next sweep finds it and repairs its effects.
        return self._hand_over(self.workflow.longest_seconds if found["status"] == "RUNNING" else 0)

    def fail(self, type: str, text: str, status: int, execution: str) -> StartAnswer:
        """Record that the execution failed for good, with the error and HTTP status that clients get."""
        error = json.dumps({"type": type, "text": text, "permanent": True, "status": status})
        return self.settle(transitions.fail(self.claimed, error), execution)

    def _hand_over(self, lease_seconds: int) -> StartAnswer:
        execution = self.workflow.arn_of(self.start.name)
        until_ms = self.deadline.now_ms + lease_seconds * 1000
        answer = self.settle(hand_over(self.claimed, execution, until_ms), execution)
        # The execution is running. Its outcome needs no hand-over, and a sweep makes up for a missing hand-over.
        return Started(execution) if isinstance(answer, Unknown) else answer

    def settle(self, settlement: transitions.Settlement, execution: str) -> StartAnswer:
        """Settle the claim. Returns the answer that the resulting record implies."""
        store, held = self.workflow.store, settlement.held
        answer: SettleResult | Unknown = ask(settlement, held, store, self.deadline, max_retries=SETTLE_RETRIES)
        match answer:
            case Settled(found):
                return _standing(found, Started(execution))
            case ClaimLost(found):
                # The execution was faster than this request, or another starter took over.
                return _standing(found, Running(execution))
            case Unknown():
                return answer


def _standing(found: Record | None, otherwise: Started | Running) -> StartAnswer:
    if found is None or found.unreadable is not None:
        return otherwise
    match found.status:
        case Status.COMPLETED:
            return AlreadyCompleted(found)
        case Status.FAILED:
            return AlreadyFailed(found)
    return otherwise


def _fingerprint_of(input: str | None) -> str | None:
    """The fingerprint in an execution's input; None if the workflow did not start it."""
    try:
        return str(json.loads(input or "")["fingerprint"])
    except (ValueError, TypeError, KeyError):
        return None
