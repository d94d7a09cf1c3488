"""The command `receiver dlq redrive`: the way back for dead letters."""

from typing import Annotated

import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import dlq_ends
from idempotent_receiver.operations.cli.deployment import Deployment, Yes, of_a_deployment
from idempotent_receiver.operations.cli.dlq_options import Filters, FromPlan, SavePlan, chosen
from idempotent_receiver.operations.cli.dlq_run import Hold, Task, act, session_of
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, command, counted, examples, flag, typed
from idempotent_receiver.operations.dead_letters.ends import redrive_ends
from idempotent_receiver.operations.dead_letters.queue import (
    HOLD_SECONDS,
    UNFINISHED,
    DeadLetterQueue,
    start_move_task,
    watch_move_task,
)
from idempotent_receiver.operations.dead_letters.run import DEFAULT_RATE

app = typer.Typer(
    help="Dead letters: why they are there, and how they come back.",
    epilog=examples(
        "receiver dlq list --stack transfers",
        "receiver dlq redrive --stack transfers --group no-record --yes",
    ),
    no_args_is_help=True,
)

FOLLOW_SECONDS = 900

WHOSE = (
    "SQS does not say whose dead-letter queue this is: if others share it, first allow sqs:ListDeadLetterSourceQueues "
    "on it, as the stack's operator policy does."
)


@app.command(
    epilog=examples(
        "receiver dlq redrive --stack transfers --group no-record --yes",
        "receiver dlq redrive --stack transfers --include-permanent --limit 10 --yes",
        "receiver dlq redrive --stack transfers --since 2h --save-plan plan.json",
        "receiver dlq redrive --stack transfers --wait --yes",
    )
)
@of_a_deployment
def redrive(
    *,
    deployment: Deployment,
    terminal: Terminal,
    filters: Filters,
    limit: Annotated[int | None, typer.Option(min=1, help="Move or drop this many at most.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Messages a second; 100 by default.")] = None,
    include_permanent: Annotated[bool, typer.Option("--include-permanent", help="Also what failed for good.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also what is older than records last.")] = False,
    hold: Hold = HOLD_SECONDS,
    save_plan: SavePlan = None,
    plan: FromPlan = None,
    wait_held: Annotated[
        bool, typer.Option("--wait-held", help="First wait for dead letters that another session holds.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Follow what becomes of what was moved.")] = False,
    wait_seconds: Annotated[
        int | None, typer.Option(min=1, help=f"How long --wait follows it; {FOLLOW_SECONDS} by default.")
    ] = None,
    native: Annotated[bool, typer.Option("--native", help="Let SQS move everything, by its own task.")] = False,
    yes: Yes = False,
) -> None:
    """Redrive dead letters under their old keys; drop what was done.

    It shows the plan first and acts once that is confirmed. Ctrl-C stops it between two requests, and it can be
    started again: a message that is moved twice is recognised by its key. Dead letters whose key was used for
    another payload are listed and stay.

    --save-plan writes the plan to a file and does nothing else. Once it is reviewed, --plan carries it out: what has
    changed by then is listed and stays.

    --wait tells which of the moved messages completed, failed again, are dead letters again, or are still waiting.
    """
    rules = {"limit": limit, "include_permanent": include_permanent, "force": force, "save_plan": save_plan}
    if native:
        given = [
            *filters.given,
            *(flag(name) for name, value in {**rules, "plan": plan, "wait": wait}.items() if value),
        ]
        if given:
            raise UsageError(f"--native moves everything: it takes no {', '.join(given)}")
        raise typer.Exit(_move_natively(deployment, terminal, rate, yes=yes))
    selection, saved = chosen(filters, "redrive", plan, deployment, terminal, **rules)
    if saved is not None:
        include_permanent, force = saved.include_permanent, saved.force
    sqs = deployment.client("sqs")
    session = session_of(deployment, terminal, hold, include_permanent=include_permanent, force=force)
    act(
        Task(
            command="redrive",
            asks="Move or drop",
            doing="moving",
            ends=redrive_ends(sqs, deployment.queue.url),
            selection=selection,
            rate=rate or DEFAULT_RATE,
            plan_id=None if saved is None else saved.id,
            save_plan=save_plan,
            wait_held=wait_held,
            follow_seconds=(wait_seconds or FOLLOW_SECONDS) if wait or wait_seconds else None,
            yes=yes,
        ),
        session,
        deployment,
        terminal,
    )


def _move_natively(deployment: Deployment, terminal: Terminal, rate: float | None, *, yes: bool) -> Exit:
    """SQS's own redrive: warn of what it does, let it move everything once that is confirmed, and watch it."""
    source, target = deployment.dead_letter_queue, deployment.queue
    sqs = deployment.client("sqs")
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
    count = DeadLetterQueue(sqs, source.url, terminal.clock).count()
    if not terminal.confirm(f"Let SQS move about {counted(count, 'dead letter')}?", yes=yes):
        terminal.answer({"native": True, "confirmed": False}, "Nothing was moved.")
        return Exit.LEFT
    handle = start_move_task(sqs, source.arn, target.arn, rate)
    with terminal.stoppable() as stopped, terminal.progress("moving", None) as tell:
        for task in watch_move_task(sqs, source.arn, terminal.clock):
            tell(task.get("ApproximateNumberOfMessagesMoved", 0), task.get("ApproximateNumberOfMessagesToMove"))
            if stopped():
                break
    status, failure = task.get("Status", "UNKNOWN"), task.get("FailureReason")
    moved = task.get("ApproximateNumberOfMessagesMoved", 0)
    values = {"native": True, "confirmed": True, "handle": handle, "status": status, "moved": moved, "failure": failure}
    terminal.answer(values, f"{status}: about {moved} moved." + (f" {failure}" if failure else ""))
    if status in UNFINISHED:
        where = typed(task_handle=handle, **deployment.options.account)
        ending = command("aws sqs cancel-message-move-task", *where)
        terminal.note(f"SQS goes on with it; to end it:\n{ending}")
        return Exit.STOPPED
    return Exit.OK if status == "COMPLETED" else Exit.AWS


app.add_typer(dlq_ends.app)
