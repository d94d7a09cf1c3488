"""The commands `receiver dlq list` and `receiver dlq redrive`: dead letters by group, and the way back."""

from pathlib import Path
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Group

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import dlq_report as report
from idempotent_receiver.operations.cli.deployment import Deployment, Yes, examples, flag, of_a_deployment, typed
from idempotent_receiver.operations.cli.dlq_options import (
    Filters,
    FromPlan,
    SavePlan,
    none_of,
    saved_plan,
    write_plan,
)
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, command, counted, moment
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
from idempotent_receiver.operations.dead_letters.selection import Plan, SavedPlan, Selection
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.triage import Rules

app = typer.Typer(
    help="Dead letters: why they are there, and how they come back.",
    epilog=examples(
        "receiver dlq list --stack transfers",
        "receiver dlq redrive --stack transfers --group never-claimed --yes",
    ),
    no_args_is_help=True,
)

Hold = Annotated[
    int, typer.Option(min=1, max=43_200, help="How many seconds dead letters stay invisible to others after a crash.")
]

BEHIND = {
    True: "the same rules apply to what comes up behind it",
    False: "what comes up behind it needs another",
}

WHOSE = (
    "SQS does not say whose dead-letter queue this is: if others share it, first allow sqs:ListDeadLetterSourceQueues "
    "on it, as the stack's operator policy does."
)


@app.command(
    name="list",
    epilog=examples(
        "receiver dlq list --stack transfers",
        "receiver dlq list --stack transfers --group ConnectionError@app.ledger",
    ),
)
@of_a_deployment
def list_dead_letters(
    *,
    deployment: Deployment,
    terminal: Terminal,
    filters: Filters,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Look at this many dead letters at most.")] = 1000,
    bodies: Annotated[bool, typer.Option("--bodies", help="Show the bodies too.")] = False,
    hold: Hold = 60,
) -> None:
    """List dead letters, grouped by what they failed of.

    A group is an error's type and the function that raised it; --group lists its dead letters. While the command runs,
    it holds dead letters; then it releases them.
    """
    selection = filters.selection(terminal.clock.epoch_ms())
    session = _session(deployment, terminal, hold)
    with terminal.stoppable() as stopped, session:
        taken = session.take(limit, stopped)[:limit]
        total = max(len(taken), session.queue.count())
    halted = stopped()
    decisions = [each for each in taken if selection.includes(each)]
    sample = total > len(taken)
    if sample:
        why = "of a FIFO group SQS gives out ten at most" if session.queue.fifo else "see --limit"
        terminal.note(f"This is a sample: {len(taken)} of about {total} ({why}; what others hold is not seen).")
    groups = [report.group_values(name, group, bodies=bodies) for name, group in report.grouped(decisions).items()]
    values = {
        "queue": deployment.dead_letter_queue.url,
        "letters": len(decisions),
        "about": total,
        "sample": sample,
        "groups": groups,
    }
    tables = report.letter_tables if filters.group or filters.key else report.group_tables
    terminal.answer(values, tables(groups) if groups else none_of(selection))
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if not groups and not selection.all:
        raise typer.Exit(Exit.LEFT)


@app.command(
    epilog=examples(
        "receiver dlq redrive --stack transfers --group never-claimed --yes",
        "receiver dlq redrive --stack transfers --include-permanent --limit 10 --yes",
        "receiver dlq redrive --stack transfers --since 2h --save-plan plan.json",
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
    native: Annotated[bool, typer.Option("--native", help="Let SQS move everything, by its own task.")] = False,
    yes: Yes = False,
) -> None:
    """Redrive dead letters under their old keys; drop what was done.

    It shows the plan first and acts once that is confirmed. Ctrl-C stops it between two requests, and it can be
    started again: a message that is moved twice is recognised by its key. Dead letters whose key was used for
    another payload are listed and stay.

    --save-plan writes the plan to a file and does nothing else. Once it is reviewed, --plan carries it out: what has
    changed by then is listed and stays.
    """
    rules = {"limit": limit, "include_permanent": include_permanent, "force": force, "save_plan": save_plan}
    given = [*filters.given, *(flag(name) for name, value in rules.items() if value)]
    if native:
        if given or plan is not None:
            raise UsageError(f"--native moves everything: it takes no {', '.join(given or ['--plan'])}")
        raise typer.Exit(_move_natively(deployment, terminal, rate, yes=yes))
    if plan is None:
        selection = filters.selection(terminal.clock.epoch_ms(), limit=limit)
    elif given:
        raise UsageError(f"--plan says what is meant: it takes no {', '.join(given)}")
    else:
        saved = saved_plan(plan, "redrive", deployment)
        selection, include_permanent, force = Selection.of_plan(saved.letters), saved.include_permanent, saved.force
    session = _session(deployment, terminal, hold, include_permanent=include_permanent, force=force)
    with terminal.stoppable() as stopped, session:
        ends = redrive_ends(session.queue.sqs, deployment.queue.url)
        run = Run(session, ends, selection=selection, rate=rate or DEFAULT_RATE, stopped=stopped)
        run.journal = _journal(deployment, terminal)
        planned = run.plan()
        more = bool(session.queue.seen) and session.queue.more
        if more and plan is None:
            terminal.note(f"The plan is for what SQS gives out now; {BEHIND[save_plan is None]}.")
        terminal.show(report.plan_tables(planned) if planned.decisions else none_of(selection))
        if save_plan is not None and not stopped():
            raise typer.Exit(_save(planned, save_plan, session.rules, deployment, terminal))
        more = more and (selection.limit is None or len(planned.acting) < selection.limit)
        confirmed = not stopped() and _confirmed(len(planned.acting), terminal, more=more, yes=yes)
        if confirmed:
            _run(run, planned, terminal)
        else:
            run.decline(planned)
        halted = stopped()
    summary, missing = run.summary, selection.missing(session.queue.seen)
    shown = (
        report.summary_text(summary, planned)
        if confirmed
        else f"Nothing was moved or dropped: {counted(len(planned.decisions), 'dead letter')} left in place."
    )
    values = {
        "plan": report.counts(planned),
        "confirmed": confirmed,
        "stopped": halted,
        **report.summary_values(summary),
        "missing": [each.message_id for each in missing],
    }
    terminal.answer(values, Group(shown, report.missing_table(missing)) if missing else shown)
    found = selection.all or planned.decisions or summary.acted or summary.left
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if not (confirmed and found) or missing or summary.left or summary.undeleted or summary.unseen:
        raise typer.Exit(Exit.LEFT)


def _save(plan: Plan, file: Path, rules: Rules, deployment: Deployment, terminal: Terminal) -> Exit:
    """Write the plan to a file, if there is anything to do."""
    values = {"plan": report.counts(plan), "saved": str(file) if plan.acting else None}
    if not plan.acting:
        terminal.answer(values, clean(f"There is nothing to do, so {file} was not written."))
        return Exit.LEFT
    dead, now = deployment.dead_letter_queue.arn, moment(terminal.clock.epoch_ms())
    write_plan(SavedPlan.of(plan, command="redrive", rules=rules, dead_letter_queue=dead, made_at=now), file)
    carry_out = command("receiver dlq redrive", *typed(plan=file), *deployment.typed)
    count = counted(len(plan.acting), "dead letter")
    terminal.answer(values, clean(f"{count} in {file}; nothing was done. To carry it out:\n{carry_out}"))
    return Exit.OK


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
