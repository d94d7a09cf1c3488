"""The commands `receiver dlq list` and `receiver dlq redrive`: dead letters by reason, and the way back."""

from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import dlq_report as report
from idempotent_receiver.operations.cli.deployment import Deployment, Yes, examples, of_a_deployment, typed
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, command, counted
from idempotent_receiver.operations.dead_letters.ends import redrive_ends
from idempotent_receiver.operations.dead_letters.history import NotKept
from idempotent_receiver.operations.dead_letters.journal import Journal
from idempotent_receiver.operations.dead_letters.queue import (
    HOLD_SECONDS,
    UNFINISHED,
    DeadLetterQueue,
    start_move_task,
    watch_move_task,
)
from idempotent_receiver.operations.dead_letters.run import DEFAULT_RATE, Run
from idempotent_receiver.operations.dead_letters.selection import Plan, Selection
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.triage import Rules

app = typer.Typer(
    help="Dead letters: why they are there, and how they come back.",
    epilog=examples(
        "receiver dlq list --stack transfers",
        "receiver dlq redrive --stack transfers --reason ConnectionError --yes",
    ),
    no_args_is_help=True,
)

Hold = Annotated[
    int, typer.Option(min=1, max=43_200, help="How many seconds dead letters stay invisible to others after a crash.")
]


WHOSE = (
    "SQS does not say whose dead-letter queue this is: if others share it, first allow sqs:ListDeadLetterSourceQueues "
    "on it, as the stack's operator policy does."
)


@app.command(name="list", epilog=examples("receiver dlq list --stack transfers"))
@of_a_deployment
def list_dead_letters(
    *,
    deployment: Deployment,
    terminal: Terminal,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Look at this many dead letters at most.")] = 1000,
    bodies: Annotated[bool, typer.Option("--bodies", help="Show the bodies too.")] = False,
    hold: Hold = 60,
) -> None:
    """List dead letters by the reason why they failed.

    The reason is in a dead letter's own attribute or in its record. While the command runs, it holds dead letters; then
    it releases them.
    """
    session = _session(deployment, terminal, hold)
    with terminal.stoppable() as stopped, session:
        decisions = session.take(limit, stopped)[:limit]
        total = max(len(decisions), session.queue.count())
    halted = stopped()
    sample = total > len(decisions)
    if sample:
        why = "of a FIFO group SQS gives out ten at most" if session.queue.fifo else "see --limit"
        terminal.note(f"This is a sample: {len(decisions)} of about {total} ({why}; what others hold is not seen).")
    groups = [report.group_values(reason, group, bodies=bodies) for reason, group in report.grouped(decisions).items()]
    values = {
        "queue": deployment.dead_letter_queue.url,
        "letters": len(decisions),
        "about": total,
        "sample": sample,
        "groups": groups,
    }
    terminal.answer(values, report.group_tables(groups) if groups else "There are no visible dead letters.")
    if halted:
        raise typer.Exit(Exit.STOPPED)


@app.command(
    epilog=examples(
        "receiver dlq redrive --stack transfers --reason ConnectionError --yes",
        "receiver dlq redrive --stack transfers --include-permanent --limit 10 --yes",
    )
)
@of_a_deployment
def redrive(
    *,
    deployment: Deployment,
    terminal: Terminal,
    reason: Annotated[str | None, typer.Option(help="Only those whose reason or error type contains this.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Only those of this key; may be given again.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Move or drop this many at most.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Messages a second; 100 by default.")] = None,
    include_permanent: Annotated[bool, typer.Option("--include-permanent", help="Also what failed for good.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also what is older than records last.")] = False,
    hold: Hold = HOLD_SECONDS,
    native: Annotated[bool, typer.Option("--native", help="Let SQS move everything, by its own task.")] = False,
    yes: Yes = False,
) -> None:
    """Redrive dead letters under their old keys; drop what was done.

    It shows the plan first and acts once that is confirmed. Ctrl-C stops it between two requests, and it can be
    started again: a message that is moved twice is recognised by its key. Dead letters whose key was used for
    another payload are listed and stay.
    """
    selection = Selection(reason=reason, keys=frozenset(key or ()), limit=limit)
    if native:
        if selection != Selection() or include_permanent or force:
            raise UsageError(
                "--native moves everything: it takes no --reason, --key, --limit, --include-permanent, --force"
            )
        raise typer.Exit(_move_natively(deployment, terminal, rate, yes=yes))
    session = _session(deployment, terminal, hold, include_permanent=include_permanent, force=force)
    with terminal.stoppable() as stopped, session:
        ends = redrive_ends(session.queue.sqs, deployment.queue.url)
        run = Run(session, ends, selection=selection, rate=rate or DEFAULT_RATE, stopped=stopped)
        run.journal = _journal(deployment, terminal)
        plan = run.plan()
        more = bool(session.queue.seen) and session.queue.more
        if more:
            terminal.note("The plan is for what SQS gives out now; the same rules apply to what comes up behind it.")
        terminal.show(report.plan_tables(plan) if plan.decisions else _none_of(selection))
        more = more and (limit is None or len(plan.acting) < limit)
        confirmed = not stopped() and _confirmed(len(plan.acting), terminal, more=more, yes=yes)
        if confirmed:
            _run(run, plan, terminal)
        else:
            run.decline(plan)
        halted = stopped()
    summary = run.summary
    shown = (
        report.summary_text(summary, plan)
        if confirmed
        else f"Nothing was moved or dropped: {counted(len(plan.decisions), 'dead letter')} left in place."
    )
    values = {"plan": report.counts(plan), "confirmed": confirmed, "stopped": halted, **report.summary_values(summary)}
    terminal.answer(values, shown)
    found = selection.all or plan.decisions or summary.acted or summary.left
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if not (confirmed and found) or summary.left or summary.undeleted or summary.unseen:
        raise typer.Exit(Exit.LEFT)


def _none_of(selection: Selection) -> str:
    of = [f"of the key {' or '.join(sorted(selection.keys))}"] if selection.keys else []
    of += [] if selection.reason is None else [f'with "{selection.reason}" in their reason or error type']
    return clean(" ".join(["There are no visible dead letters", *of]) + ".")


def _confirmed(acting: int, terminal: Terminal, *, more: bool, yes: bool) -> bool:
    what = [counted(acting, "dead letter")] if acting else []
    what += ["what comes up behind"] if more else []
    return not what or terminal.confirm(f"Move or drop {' and '.join(what)}?", yes=yes)


def _run(run: Run, plan: Plan, terminal: Terminal) -> None:
    total = len(plan.acting)
    with terminal.progress("moving", total) as tell:
        try:
            run.carry_out(plan, lambda summary: tell(summary.acted, max(total, summary.acted)))
        except (ClientError, BotoCoreError, NotKept):
            terminal.show(report.summary_text(run.summary, plan))
            terminal.note("The rest is where it was. It is safe to start again.")
            raise


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


def _journal(deployment: Deployment, terminal: Terminal) -> Journal | None:
    """Where the acts of this run are kept, under a plan of their own; None if the deployment keeps no history."""
    history = deployment.history(terminal)
    if history.table is None:
        return None
    (plan,) = terminal.clock.versions(1)
    return Journal(
        history=history,
        queue=deployment.queue.arn,
        dead_letter_queue=deployment.dead_letter_queue.arn,
        operator=deployment.operator,
        plan=plan[:8],
    )


def _session(
    deployment: Deployment, terminal: Terminal, hold: int, *, include_permanent: bool = False, force: bool = False
) -> Session:
    dead = deployment.dead_letter_queue.url
    if dead.endswith(".fifo"):
        terminal.note("While dead letters are held, SQS gives out nothing more of their groups, to anybody.")
    return Session(
        queue=DeadLetterQueue(deployment.client("sqs"), dead, terminal.clock, hold_seconds=hold),
        reader=deployment.reader(),
        store=deployment.store,
        rules=Rules(
            queue_arn=deployment.queue.arn,
            retention_seconds=deployment.retention_seconds,
            include_permanent=include_permanent,
            force=force,
        ),
    )
