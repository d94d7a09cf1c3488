"""The way in for a Step Functions workflow: a request starts one execution.

The names below are public. `workflow_endpoint` is loaded when it is first asked for: only the function behind HTTP
needs it.
"""

import typing

from idempotent_receiver.protocol.exchange import Unavailable
from idempotent_receiver.workflow.executions import Start, Workflow, name_of
from idempotent_receiver.workflow.orphans import NEVER_STARTED, Closed, NothingToDo, recover_orphan
from idempotent_receiver.workflow.starts import Running, Started, accept

if typing.TYPE_CHECKING:
    from idempotent_receiver.workflow.endpoint import workflow_endpoint

__all__ = [
    "NEVER_STARTED", "Closed", "NothingToDo", "Running", "Start", "Started", "Unavailable", "Workflow", "accept",
    "name_of", "recover_orphan", "workflow_endpoint",
]  # fmt: skip


def __getattr__(name: str) -> typing.Any:
    if name == "workflow_endpoint":
        from idempotent_receiver.workflow.endpoint import workflow_endpoint  # noqa: PLC0415

        return workflow_endpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
