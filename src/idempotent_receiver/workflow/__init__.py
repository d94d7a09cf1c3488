"""The entry point for a Step Functions workflow: a request starts one execution.

The names below are public: a workflow, its requests and its answers. `workflow_endpoint` is loaded on first use,
because only the function behind HTTP needs it.
"""

import typing

from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    AlreadyFailed,
    ClaimLost,
    OtherPayload,
    Settled,
    Unreadable,
)
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.protocol.transitions import completed, failed
from idempotent_receiver.workflow.executions import NEVER_STARTED, Start, Workflow, name_of
from idempotent_receiver.workflow.starts import Closed, NothingToDo, Running, Started, accept, recover_orphan

if typing.TYPE_CHECKING:
    from idempotent_receiver.workflow.endpoint import workflow_endpoint

__all__ = [
    "NEVER_STARTED", "AlreadyCompleted", "AlreadyFailed", "ClaimLost", "Closed", "Deadline", "NothingToDo",
    "OtherPayload", "Record", "Running", "Settled", "Start", "Started", "Status", "Unknown", "Unreadable",
    "Workflow", "accept", "completed", "failed", "name_of", "recover_orphan", "workflow_endpoint",
]  # fmt: skip


def __getattr__(name: str) -> typing.Any:
    if name == "workflow_endpoint":
        from idempotent_receiver.workflow.endpoint import workflow_endpoint  # noqa: PLC0415

        return workflow_endpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
