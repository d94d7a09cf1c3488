"""Bugs of workflows: executions that are started, found again, and swept up after."""

from __future__ import annotations

from tests.mutants.change import argument, instead_of, leave_out, never, replace, returns
from tests.mutants.mutant import Mutant, unit

EXECUTIONS = unit("workflow/executions")
WORKFLOW = unit("workflow/endpoint")

MUTANTS = {
    "an execution of another payload is taken for ours": Mutant(
        "workflow.starts:ClaimedStart.adopt", never("_fingerprint_of"), promise=3, where=EXECUTIONS
    ),
    "an execution that was faster than its hand-over is said to run": Mutant(
        "workflow.starts:ClaimedStart.settle",
        replace("_standing($RECORD, Running($ARN))", "Running($ARN)"),
        where=EXECUTIONS,
    ),
    "an execution that runs is refused because its hand-over was not confirmed": Mutant(
        "workflow.starts:ClaimedStart._hand_over", never("Unavailable"), where=EXECUTIONS
    ),
    "a starter that lives is swept up after": Mutant(
        "workflow.starts:recover_orphan", never("deadline.now_ms"), promise=2, where=EXECUTIONS
    ),
    "an orphan is started for ever": Mutant(
        "workflow.starts:recover_orphan", leave_out("$STARTS < MOST_STARTS"), promise=6, where=EXECUTIONS
    ),
    "an execution is given up without looking again": Mutant(
        "workflow.starts:recover_orphan", replace("$ORPHAN.adopt()", "None"), promise=6, where=EXECUTIONS
    ),
    "an execution of a replaced machine is looked for by another name": Mutant(
        "workflow.starts:recover_orphan", replace("$RECORD.execution or $ARN", "$ARN"), promise=6, where=EXECUTIONS
    ),
    "an execution that runs is swept up as if it were over": Mutant(
        "workflow.starts:recover_orphan", never("'RUNNING'"), promise=2, where=EXECUTIONS
    ),
    "what is to be started is not kept": Mutant(
        "workflow.starts:claim", argument("input", "None"), promise=6, where=EXECUTIONS
    ),
    "a failed execution is started again": Mutant(
        "workflow.starts:claim", argument("failures_are_answers", "False"), promise=3, where=EXECUTIONS
    ),
    "an execution has its key no longer than its starter": Mutant(
        "workflow.executions:Workflow.longest_seconds", returns("13"), promise=2, where=EXECUTIONS
    ),
    # The endpoint.
    "two tenants share their executions": Mutant(
        "workflow.endpoint:workflow_endpoint.start_for",
        replace("name_of($KEY, $SCOPE)", "name_of($KEY)"),
        where=WORKFLOW,
    ),
    "what was never accepted is said to run": Mutant(
        "workflow.endpoint:_report",
        instead_of("HTTPStatus.NOT_FOUND", "return _running(HTTPStatus.OK, workflow.arn_of(name), None)"),
        where=WORKFLOW,
    ),
    "a stored failure is told without its status": Mutant(
        "workflow.endpoint:_ended", replace("HTTPStatus($ERROR.get('status', $DEFAULT))", "$DEFAULT"), where=WORKFLOW
    ),
}
