"""`receiver dlq redrive --native`: SQS's own redrive, started and watched, with the warnings that it needs."""

import shlex

import typer
from rich.text import Text

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.layout import command, counted
from idempotent_receiver.operations.cli.options import typed
from idempotent_receiver.operations.cli.terminal import Exit, Terminal
from idempotent_receiver.operations.dead_letters import move_task
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue

WHOSE = (
    "SQS does not say whose dead-letter queue this is: if others share it, first allow sqs:ListDeadLetterSourceQueues "
    "on it, as the stack's operator policy does."
)


def move_natively(deployment: Deployment, terminal: Terminal, rate: float | None, *, yes: bool) -> None:
    """Let SQS move everything, once that is confirmed, and watch it."""
    source, target = deployment.dead_letter_queue, deployment.queue
    if deployment.sharers:
        others = ", ".join(deployment.sharers)
        raise UsageError(f"{source.arn} has dead letters of {others} too, and --native would move them all")
    if deployment.sharers is None:
        terminal.note(f"SQS moves dead letters of other queues too, if any come here. {WHOSE}")
    if deployment.strategy == "message_id":
        terminal.note(
            "This consumer's keys are messageIds, and a native redrive makes new ones: what was done runs again. "
            "Without --native, dead letters come back under their old keys."
        )
    count = DeadLetterQueue(deployment.sqs, source.url, terminal.clock).count()
    if not terminal.confirm(f"Let SQS move about {counted(count, 'dead letter')}?", yes=yes):
        terminal.answer({"native": True, "confirmed": False}, Text("Nothing was moved."))
        raise typer.Exit(Exit.LEFT)
    handle = move_task.start(deployment.sqs, source.arn, target.arn, rate)
    with terminal.stoppable() as stopped, terminal.progress("moving", None) as tell:
        task = move_task.watch(
            deployment.sqs,
            source.arn,
            terminal.clock,
            on_progress=lambda task: tell(task.moved, task.to_move),
            stopped=stopped,
        )
    values = {"native": True, "confirmed": True, "handle": handle, "status": task.status, "moved": task.moved}
    told = f"{task.status}: about {task.moved} moved." + (f" {task.failure}" if task.failure else "")
    terminal.answer({**values, "failure": task.failure}, Text(told))
    if not task.over:
        account = deployment.account
        where = typed(region=account.region, profile=account.profile, endpoint_url=account.endpoint_url)
        ending = command("aws sqs cancel-message-move-task", f"--task-handle {shlex.quote(handle)}", *where)
        terminal.note(f"SQS goes on with it; to end it:\n{ending}")
        raise typer.Exit(Exit.STOPPED)
    raise typer.Exit(Exit.OK if task.status == "COMPLETED" else Exit.AWS)
