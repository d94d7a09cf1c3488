"""Orphans: records whose lease has ended although no outcome was written, because a starter or a machine died."""

from dataclasses import dataclass

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.exchange import Unavailable
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.workflow.executions import Start, Workflow
from idempotent_receiver.workflow.starts import ClaimedStart, StartAnswer, accept, claim, error_json

MOST_STARTS = 10
"""Attempts to start an execution before its orphan is given up."""

NEVER_STARTED = "NeverStarted"
"""The error of a record whose execution was given up. If a late request starts it all the same, whoever mends what it
did may revise the record."""

_NEVER_STARTED = error_json(NEVER_STARTED, f"no execution could be started in {MOST_STARTS} attempts", 500)
_GONE = error_json("ExecutionGone", "its execution is no longer known, and wrote no outcome", 500)


@dataclass(frozen=True, slots=True)
class Closed:
    """An execution has ended and its record does not say so: what it left behind must be mended."""

    execution: str
    status: str
    input: str


@dataclass(frozen=True, slots=True)
class NothingToDo:
    """Nothing needs to be done about a record, or it has been done."""


def recover_orphan(workflow: Workflow, name: str, deadline: Deadline, owner: str) -> StartAnswer | Closed | NothingToDo:
    """Go on with a record whose lease has ended: start what was never started, and find out about what was."""
    found = workflow.record_of(name, deadline)
    if isinstance(found, Unavailable):
        return found
    if found is None or found.status != Status.INPROGRESS or not _lease_ended(found, deadline.now_ms):
        return NothingToDo()
    start = Start(name, found.validation or "", found.input or "")
    if found.execution is None and (found.attempts or 0) < MOST_STARTS and found.input is not None:
        return accept(workflow, start, deadline, owner)
    arn = found.execution or workflow.arn_of(name)
    execution = workflow.describe(arn)
    if isinstance(execution, Unavailable):
        return execution
    if execution is None:
        return _give_up(workflow, found.execution, start, deadline, owner)
    if execution["status"] == "RUNNING":
        return NothingToDo()
    return Closed(arn, execution["status"], execution["input"])


def _lease_ended(found: Record, now_ms: int) -> bool:
    return found.lease_until_ms is not None and found.lease_until_ms <= now_ms


def _give_up(workflow: Workflow, execution: str | None, start: Start, deadline: Deadline, owner: str) -> StartAnswer:
    orphan = claim(workflow, start, deadline, owner)
    if not isinstance(orphan, ClaimedStart):
        return orphan
    if execution is not None:
        return orphan.settle(transitions.fail(orphan.claimed, _GONE), execution)
    # Asked again under the claim: another starter may have started it meanwhile, and died.
    found = workflow.describe(orphan.execution)
    if found is None:
        return orphan.settle(transitions.fail(orphan.claimed, _NEVER_STARTED), orphan.execution)
    return orphan.adopt(found)
