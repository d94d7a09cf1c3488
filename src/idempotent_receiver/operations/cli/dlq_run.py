"""How every command that acts on dead letters goes: a plan, an agreement, the run, and what became of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Group

from idempotent_receiver.operations.cli import dlq_report as report
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_options import none_of, write_plan
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, command, counted, moment, typed
from idempotent_receiver.operations.dead_letters.archive import Archive
from idempotent_receiver.operations.dead_letters.ends import End
from idempotent_receiver.operations.dead_letters.following import Fate, Following
from idempotent_receiver.operations.dead_letters.history import NotKept
from idempotent_receiver.operations.dead_letters.journal import Journal
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.dead_letters.run import DEFAULT_RATE, Run
from idempotent_receiver.operations.dead_letters.selection import Plan, Planned, SavedPlan, Selection
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.triage import Rules, Verdict

Hold = Annotated[
    int, typer.Option(min=1, max=43_200, help="How many seconds dead letters stay invisible to others after a crash.")
]

BEHIND = {
    True: "the same rules apply to what comes up behind it",
    False: "what comes up behind it needs another",
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """What a command is to do. `asks` begins its question, `doing` names what goes on; `reason` is the operator's.
    `plan_id` is a saved plan's. `check` raises UsageError for a plan that cannot be carried out, and returns what the
    answer adds for scripts. With `wait_held`, it first waits for what others hold; with `follow_seconds`, it follows
    for so long what becomes of what it returned.
    """

    command: str
    asks: str
    doing: str
    ends: Mapping[Verdict, End]
    selection: Selection = field(default_factory=Selection)
    rate: float = DEFAULT_RATE
    reason: str | None = None
    plan_id: str | None = None
    check: Callable[[Plan], Mapping[str, str]] = lambda plan: {}
    save_plan: Path | None = None
    wait_held: bool = False
    follow_seconds: float | None = None
    yes: bool = False


def session_of(
    deployment: Deployment, terminal: Terminal, hold: int, *, include_permanent: bool = False, force: bool = False
) -> Session[DeadLetterQueue]:
    """A session with the deployment's dead-letter queue."""
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


def act(
    task: Task, session: Session[DeadLetterQueue] | Session[Archive], deployment: Deployment, terminal: Terminal
) -> None:
    """Show the plan, carry it out once it is confirmed, and say what became of it. Ends the command if any is left.

    Ctrl-C stops it between two requests.
    """
    selection = task.selection
    held, followed = 0, None
    with terminal.stoppable() as stopped, session:
        if isinstance(session.queue, DeadLetterQueue):
            held = note_held(session.queue, terminal, wait=task.wait_held, ask=not task.yes, stopped=stopped)
        run = Run(session, task.ends, selection=selection, rate=task.rate, stopped=stopped)
        plan = run.plan()
        besides = task.check(plan)
        more = bool(session.queue.seen) and session.queue.more
        if more and selection.planned is None:
            terminal.note(f"The plan is for what is given out now; {BEHIND[task.save_plan is None]}.")
        which = "archived" if isinstance(session.queue, Archive) else "visible"
        terminal.show(report.plan_tables(plan, task.ends) if plan.decisions else none_of(selection, which))
        more = more and (selection.limit is None or len(plan.acting) < selection.limit)
        seconds = _about_seconds(run, plan, more=more)
        if seconds > 0:
            terminal.show(f"At {run.rate:g} messages a second, this takes about {seconds} s (see --rate).")
        if task.save_plan is not None and not stopped():
            raise typer.Exit(_save(plan, task, session.rules, deployment, terminal))
        run.journal = _journal(deployment, terminal, task)
        confirmed = not stopped() and _confirmed(task, len(plan.acting), terminal, more=more)
        if confirmed:
            _run(run, task, plan, terminal)
            if task.follow_seconds is not None and run.returned and not stopped():
                followed = _follow(run, terminal, task.follow_seconds)
        else:
            run.decline(plan)
        halted = stopped()
    summary, missing = run.summary, selection.missing(session.queue.seen)
    shown = [report.summary_text(summary, plan, confirmed=confirmed)]
    shown += [report.missing_table(missing)] if missing else []
    shown += [] if followed is None else [report.fates_table(followed)]
    values = {
        "plan": report.counts(plan),
        **besides,
        "about_seconds": seconds,
        "confirmed": confirmed,
        "stopped": halted,
        **report.summary_values(summary),
        "missing": [each.message_id for each in missing],
        "held_elsewhere": held,
        "followed": None if followed is None else report.fates_values(followed),
    }
    terminal.answer(values, Group(*shown))
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if not confirmed or summary.left or summary.undeleted:
        raise typer.Exit(Exit.LEFT)
    if held:
        raise typer.Exit(Exit.HELD)
    found = selection.all or plan.decisions or summary.acted
    if not found or missing or summary.unseen or (followed is not None and not followed.completed):
        raise typer.Exit(Exit.LEFT)


def note_held(
    queue: DeadLetterQueue,
    terminal: Terminal,
    *,
    wait: bool = False,
    ask: bool = False,
    stopped: Callable[[], bool],
) -> int:
    """Say how many dead letters others hold, and wait for them if that is wanted; returns how many they hold then."""
    held = queue.held_elsewhere()
    if not held:
        return 0
    until = moment(terminal.clock.epoch_ms() + queue.hold_seconds * 1000)
    terminal.note(
        f"About {held} of {queue.count()} dead letters are held by another session, which may have been killed. They "
        f"come up by {until} at the latest, unless its --hold was longer than {queue.hold_seconds}."
    )
    if wait or (ask and terminal.offer("Wait for them?")):
        with terminal.progress("waiting", None):
            held = queue.wait_for_others(stopped)
        if held:
            terminal.note(f"About {held} are still held: that session is at work, or its --hold is longer.")
    return held


def _about_seconds(run: Run, plan: Plan, *, more: bool) -> int:
    """About how long the rate makes it take."""
    count = sum(run.ends[each.verdict].returns for each in plan.acting)
    if more and any(end.returns for end in run.ends.values()):
        count += run.session.queue.unseen()
    return round(min(count, run.selection.limit or count) / run.rate)


def _follow(run: Run, terminal: Terminal, seconds: float) -> Following:
    following = Following(run.session, run.returned.values())  # type: ignore[arg-type]  # nothing follows a restore
    with terminal.progress("completed", len(following.fates)) as tell:
        for counts in following.looks(seconds, run.stopped):
            tell(counts[Fate.COMPLETED], len(following.fates))
    return following


def _save(plan: Plan, task: Task, rules: Rules, deployment: Deployment, terminal: Terminal) -> Exit:
    """Write the plan to a file, if there is anything to do."""
    file = task.save_plan
    assert file is not None
    values = {"plan": report.counts(plan), "saved": str(file) if plan.acting else None}
    if not plan.acting:
        terminal.answer(values, clean(f"There is nothing to do, so {file} was not written."))
        return Exit.LEFT
    saved = SavedPlan(
        id=_new_id(terminal),
        command=task.command,
        made_at=moment(terminal.clock.epoch_ms()),
        queue=deployment.queue.arn,
        dead_letter_queue=deployment.dead_letter_queue.arn,
        include_permanent=rules.include_permanent,
        force=rules.force,
        letters=[Planned.of(each) for each in plan.acting],
    )
    write_plan(saved, file)
    carry_out = command(f"receiver dlq {task.command}", *typed(plan=file, reason=task.reason), *deployment.typed)
    count = counted(len(plan.acting), "dead letter")
    terminal.answer(values, clean(f"{count} in {file}; nothing was done. To carry it out:\n{carry_out}"))
    return Exit.OK


def _confirmed(task: Task, acting: int, terminal: Terminal, *, more: bool) -> bool:
    what = [counted(acting, "dead letter")] if acting else []
    what += ["what comes up behind"] if more else []
    return not what or terminal.confirm(f"{task.asks} {' and '.join(what)}?", yes=task.yes)


def _run(run: Run, task: Task, plan: Plan, terminal: Terminal) -> None:
    total = len(plan.acting)
    with terminal.progress(task.doing, total) as tell:
        try:
            run.carry_out(plan, lambda summary: tell(summary.acted, max(total, summary.acted)))
        except (ClientError, BotoCoreError, NotKept):
            terminal.show(report.summary_text(run.summary, plan))
            terminal.note("The rest is where it was. It is safe to start again.")
            raise


def _new_id(terminal: Terminal) -> str:
    (version,) = terminal.clock.versions(1)
    return version[:8]


def _journal(deployment: Deployment, terminal: Terminal, task: Task) -> Journal | None:
    """Where the acts of this run are kept, as acts of a plan; None if the deployment keeps no history."""
    history = deployment.history(terminal)
    if history.table is None:
        return None
    return Journal(
        history=history,
        queue=deployment.queue.arn,
        dead_letter_queue=deployment.dead_letter_queue.arn,
        operator=deployment.operator,
        plan=task.plan_id or _new_id(terminal),
        why=task.reason,
    )
