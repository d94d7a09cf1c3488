"""`receiver dlq`: dead letters listed by reason, and brought back."""

import shlex
from collections.abc import Sequence
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import RenderableType
from rich.text import Text

from idempotent_receiver.operations import native, report
from idempotent_receiver.operations.deployment import Deployment, Refused
from idempotent_receiver.operations.layout import clean, command, counted
from idempotent_receiver.operations.letters import HOLD_SECONDS, DeadLetterQueue
from idempotent_receiver.operations.redrive import Desk, Redrive, Tally, Wanted
from idempotent_receiver.operations.terminal import Exit, Terminal, Yes, examples, of_a_deployment
from idempotent_receiver.operations.verdict import Judgement, Rules

app = typer.Typer(
    help="Dead letters: why they are there, and how they come back.",
    epilog=examples(
        "receiver dlq list --stack transfers",
        "receiver dlq redrive --stack transfers --reason ConnectionError --yes",
    ),
    no_args_is_help=True,
)

Hold = Annotated[
    int, typer.Option(min=1, max=43_200, help="Seconds that letters are invisible to others, should this be killed.")
]

STRAYS = "Some letters do not tell their queue, and count as this one's."
ASK = (
    "SQS does not say whose dead-letter queue this is: if others share it, first allow sqs:ListDeadLetterSourceQueues "
    "on it, as the stack's operator policy does."
)


@app.command(name="list", epilog=examples("receiver dlq list --stack transfers"))
@of_a_deployment
def list_letters(
    *,
    deployment: Deployment,
    terminal: Terminal,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Look at so many letters at most.")] = 1000,
    bodies: Annotated[bool, typer.Option("--bodies", help="Show the bodies too.")] = False,
    hold: Hold = 60,
) -> None:
    """List dead letters by the reason why they died.

    A letter's own attribute or its record holds the reason. Letters are taken from the queue for as long as it lasts,
    and given back.
    """
    desk = _desk(deployment, terminal, hold)
    with terminal.stoppable() as stopped:
        try:
            letters = desk.take(limit, stopped)[:limit]
            total = max(len(letters), desk.queue.count())
        finally:
            desk.queue.give_back()
        halted = stopped()
    sample = total > len(letters)
    if _strays(deployment, letters):
        terminal.note(f"{STRAYS} {ASK}")
    groups = report.grouped(letters)
    values = {
        "queue": deployment.dead_letter_queue_url,
        "letters": len(letters),
        "about": total,
        "sample": sample,
        "groups": [report.group_values(reason, group, bodies=bodies) for reason, group in groups.items()],
    }
    if sample:
        terminal.note(_of_a_sample(len(letters), total, desk.queue))
    shown = report.letters_tables(groups, bodies=bodies) if letters else Text("There are no dead letters to be had.")
    terminal.answer(values, shown)
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
    reason: Annotated[str | None, typer.Option(help="Only letters whose reason or error type has this in it.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Only letters of this key; may be given again.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Move or drop so many at most.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.1, help="Messages a second; 100 unless told otherwise.")] = None,
    include_permanent: Annotated[bool, typer.Option("--include-permanent", help="Also what failed for good.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Also what is older than records last.")] = False,
    hold: Hold = HOLD_SECONDS,
    native_move: Annotated[bool, typer.Option("--native", help="Let SQS move everything, by its own task.")] = False,
    yes: Yes = False,
) -> None:
    """Bring dead letters back under their old keys; drop what was done.

    First comes the plan, then, once confirmed, the moving. Ctrl-C stops it between two requests, and it can be started
    again: what is moved twice is recognised by its key. Letters whose key was used for another payload are listed and
    stay.
    """
    wanted = Wanted(reason=reason, keys=frozenset(key or ()), limit=limit)
    if native_move:
        if wanted != Wanted() or include_permanent or force:
            raise Refused(
                "--native moves everything: it takes no --reason, --key, --limit, --include-permanent, --force"
            )
        _move_natively(deployment, terminal, rate, yes=yes)
        return
    desk = _desk(deployment, terminal, hold, include_permanent=include_permanent, force=force)
    with terminal.stoppable() as stopped:
        run = Redrive(desk, deployment.queue_url, wanted=wanted, rate=100.0 if rate is None else rate, stopped=stopped)
        try:
            _redrive(run, desk, wanted, deployment, terminal, yes=yes)
        finally:
            run.close()


def _redrive(
    run: Redrive, desk: Desk, wanted: Wanted, deployment: Deployment, terminal: Terminal, *, yes: bool
) -> None:
    plan = run.plan()
    acts, beyond = wanted.within(plan)
    more = desk.queue.taken > 0 and (desk.queue.fifo or not desk.queue.exhausted)
    if more:
        terminal.note("The plan is of what SQS gives out now; what comes up behind it is judged by the same rules.")
    if _strays(deployment, plan):
        terminal.note(f"{STRAYS} {ASK}")
    terminal.show(report.plan_tables(plan, beyond) if plan else Text(_none_of(wanted)))
    behind = more and (wanted.limit is None or len(acts) < wanted.limit)
    confirmed = not run.stopped() and _agreed(len(acts), terminal, more=behind, yes=yes)
    if confirmed:
        _run(run, plan, wanted, terminal)
        told: RenderableType = report.tally_text(run.tally, plan, beyond)
    else:
        run.leave(plan)
        told = Text(f"Nothing was moved or dropped: {counted(len(plan), 'letter')} left in place.")
    values = {"plan": report.counts(plan, beyond), "confirmed": confirmed, "stopped": run.stopped()}
    terminal.answer({**values, **report.tally_values(run.tally)}, told)
    tally = run.tally
    found = wanted.all or bool(plan) or tally.moved + tally.dropped + len(tally.left) > 0
    raise typer.Exit(_exit_of(tally, confirmed=confirmed and found, stopped=run.stopped()))


def _none_of(wanted: Wanted) -> str:
    of = [f"of the key {' or '.join(sorted(wanted.keys))}"] if wanted.keys else []
    of += [] if wanted.reason is None else [f'with "{wanted.reason}" in their reason or error type']
    return clean(" ".join(["There are no dead letters", *of, "to be had."]))


def _agreed(acts: int, terminal: Terminal, *, more: bool, yes: bool) -> bool:
    if acts == 0 and not more:
        return True
    what = [counted(acts, "letter")] if acts else []
    what += ["what comes up behind"] if more else []
    return terminal.agreed(f"Move and drop {' and '.join(what)}?", yes=yes)


def _run(run: Redrive, plan: Sequence[Judgement], wanted: Wanted, terminal: Terminal) -> None:
    acts, beyond = wanted.within(plan)
    with terminal.progress("moving", len(acts)) as tell:

        def told(tally: Tally) -> None:
            done = tally.moved + tally.dropped
            tell(done, max(len(acts), done))

        try:
            run.run(plan, told)
        except (ClientError, BotoCoreError):
            terminal.show(report.tally_text(run.tally, plan, beyond))
            terminal.note("The rest is where it was. It is safe to start again.")
            raise


def _exit_of(tally: Tally, *, confirmed: bool, stopped: bool) -> Exit:
    if stopped:
        return Exit.STOPPED
    return Exit.LEFT if not confirmed or tally.left or tally.undeleted or tally.unseen else Exit.OK


def _move_natively(deployment: Deployment, terminal: Terminal, rate: float | None, *, yes: bool) -> None:
    source, target = deployment.dead_letter_queue_arn, deployment.queue_arn
    if deployment.sharers:
        raise Refused(f"{source} has letters of {', '.join(deployment.sharers)} too, and --native would move them all")
    if deployment.sharers is None:
        terminal.note(f"SQS moves letters of other queues too, if any come here. {ASK}")
    if deployment.by_message_id:
        terminal.note(
            "This consumer's keys are messageIds, and a native redrive makes new ones: what was done runs again. "
            "Without --native, letters come back under their old keys."
        )
    count = DeadLetterQueue(deployment.sqs, deployment.dead_letter_queue_url, terminal.clock).count()
    if not terminal.agreed(f"Let SQS move about {counted(count, 'letter')}?", yes=yes):
        terminal.answer({"native": True, "confirmed": False}, Text("Nothing was moved."))
        raise typer.Exit(Exit.LEFT)
    handle = native.start(deployment.sqs, source, target, rate)
    with terminal.stoppable() as stopped, terminal.progress("moving", None) as tell:
        task = native.watch(
            deployment.sqs,
            source,
            terminal.clock,
            tell=lambda task: tell(task.moved, task.to_move),
            stopped=stopped,
        )
    values = {"native": True, "confirmed": True, "handle": handle, "status": task.status, "moved": task.moved}
    told = f"{task.status}: about {task.moved} moved." + (f" {task.failure}" if task.failure else "")
    terminal.answer({**values, "failure": task.failure}, Text(told))
    if not task.over:
        ending = ("aws sqs cancel-message-move-task", f"--task-handle {shlex.quote(handle)}")
        terminal.note(f"SQS goes on with it; to end it:\n{command(*ending, *deployment.account.options)}")
        raise typer.Exit(Exit.STOPPED)
    raise typer.Exit(Exit.OK if task.status == "COMPLETED" else Exit.AWS)


def _desk(
    deployment: Deployment, terminal: Terminal, hold: int, *, include_permanent: bool = False, force: bool = False
) -> Desk:
    if deployment.dead_letter_queue_url.endswith(".fifo"):
        terminal.note("While letters are held, SQS gives out nothing more of their groups, to nobody.")
    return Desk(
        queue=DeadLetterQueue(deployment.sqs, deployment.dead_letter_queue_url, terminal.clock, hold_seconds=hold),
        reader=deployment.reader(),
        store=deployment.store,
        rules=Rules(
            queue_arn=deployment.queue_arn,
            retention_seconds=deployment.retention_seconds,
            include_permanent=include_permanent,
            force=force,
            shared=bool(deployment.sharers),
        ),
        clock=terminal.clock,
    )


def _strays(deployment: Deployment, letters: Sequence[Judgement]) -> bool:
    """Whether there are letters that count as this queue's for want of an answer."""
    return deployment.sharers is None and any(each.letter.source is None for each in letters)


def _of_a_sample(letters: int, total: int, queue: DeadLetterQueue) -> str:
    why = "of a FIFO group SQS gives out ten at most" if queue.fifo else "see --limit"
    return f"This is a sample: {letters} of about {total} ({why}; what others hold is not seen)."
