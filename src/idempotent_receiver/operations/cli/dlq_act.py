"""The flow of every command that acts on dead letters: plan, confirm, act and report."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Group, RenderableType

from idempotent_receiver.operations.cli import dlq_report as report
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_options import Task, none_of, write_plan
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, command, counted, flag, moment, typed
from idempotent_receiver.operations.dead_letters.archive import Archive
from idempotent_receiver.operations.dead_letters.following import Fate, Following
from idempotent_receiver.operations.dead_letters.history import NotKept
from idempotent_receiver.operations.dead_letters.journal import Journal
from idempotent_receiver.operations.dead_letters.queue import HOLD_SECONDS, DeadLetterQueue
from idempotent_receiver.operations.dead_letters.run import Run, Summary
from idempotent_receiver.operations.dead_letters.selection import Plan, PlannedLetter, SavedPlan, Selection
from idempotent_receiver.operations.dead_letters.session import Session, Source
from idempotent_receiver.operations.dead_letters.steps import Steps
from idempotent_receiver.operations.dead_letters.triage import Rules, Verdict
from idempotent_receiver.operations.dead_letters.verbs import redrive_dispositions
from idempotent_receiver.operations.mappings import DISABLED, mappings_of

BEHIND = {
    True: "the same rules apply to dead letters that appear later",
    False: "dead letters that appear later need a new plan",
}


def queue_session(deployment: Deployment, terminal: Terminal, hold: int, **rules: bool) -> Session:
    """A session with the deployment's dead-letter queue."""
    dead = deployment.dead_letter_queue.url
    if dead.endswith(".fifo"):
        terminal.note("While this command holds dead letters, SQS delivers no other messages of their groups.")
    queue = DeadLetterQueue(deployment.client("sqs"), dead, terminal.clock, hold_seconds=hold)
    return session_with(queue, deployment, **rules)


def session_with(source: Source, deployment: Deployment, **rules: bool) -> Session:
    """A session with a source of dead letters, under these rules."""
    return Session(
        source=source,
        reader=deployment.reader(),
        store=deployment.store,
        rules=Rules(
            queue_arn=deployment.queue.arn,
            retention_seconds=deployment.retention_seconds,
            payload_known=deployment.described,
            **rules,
        ),
        gone=deployment.is_gone,
    )


def act(task: Task, session: Session, deployment: Deployment, terminal: Terminal) -> None:
    """Show the plan, carry it out once confirmed, and report the result. Exits with a code if dead letters are left.

    Ctrl-C stops it between two requests.
    """
    with terminal.stoppable() as stopped, session:
        _Command(task, session, deployment, terminal, stopped).go()


@dataclass
class _Command:
    """One run of a command. However it ends, its answer reports what is known so far."""

    task: Task
    session: Session
    deployment: Deployment
    terminal: Terminal
    stopped: Callable[[], bool]
    held: int = 0
    confirmed: bool = False
    followed: Following | None = None
    values: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        task, source = self.task, self.session.source
        steps = Steps(self.deployment.client("sqs"), source)
        self.plan_id = new_id(self.terminal) if task.saved is None else task.saved.id
        self.run = Run(
            self.session, task.dispositions, steps, selection=task.selection, rate=task.rate, stopped=self.stopped
        )

    def go(self) -> None:
        """Plan, confirm, act, answer."""
        queue, acting = self.session.source, self.task.acting
        if isinstance(queue, DeadLetterQueue):
            self.held = note_held(queue, self.terminal, ask=not acting.yes, stopped=self.stopped)
        plan = self.run.plan()
        told = self._shown(plan)
        if acting.save_plan is not None and not self.stopped():
            raise typer.Exit(self._save(plan))
        try:
            self._carry_out(plan)
        except (ClientError, BotoCoreError, NotKept) as error:
            self.terminal.note("The rest is unchanged. It is safe to run the command again.")
            self._answer(told, error=str(error))
            raise
        self._answer(told)
        self._end(found=bool(told or self.run.summary.acted))

    def _shown(self, plan: Plan) -> set[str]:
        """Show the plan; returns the ids of the dead letters in it."""
        source = self.session.source
        self.values = {"command": f"dlq {self.task.command}", "plan_id": self.plan_id}
        self.values |= {"plan": report.counts(plan), **self.task.check(plan)}
        if self._more(plan) and self.task.selection.planned is None:
            self.terminal.note(
                f"The plan covers the dead letters that are visible now; {BEHIND[self.task.acting.save_plan is None]}."
            )
        which = "archived" if isinstance(source, Archive) else "visible"
        nothing = none_of(self.task.selection, which)
        self.terminal.show(report.plan_tables(plan, self.task.dispositions) if plan.decisions else nothing)
        self.values["about_seconds"] = seconds = self._about_seconds(plan)
        if seconds > 0:
            self.terminal.show(f"At {self.run.rate:g} messages a second, this takes about {seconds} s (see --rate).")
        self._note_order(plan)
        self._note_paused(plan)
        return {each.dead_letter.id for each in plan.decisions}

    def _more(self, plan: Plan) -> bool:
        """Whether dead letters beyond the plan may be treated the same way."""
        source, limit = self.session.source, self.task.selection.limit
        return bool(source.seen) and source.more and (limit is None or len(plan.acting) < limit)

    def _about_seconds(self, plan: Plan) -> int:
        """The approximate duration at the current rate."""
        dispositions = self.task.dispositions
        count = sum(dispositions[each.verdict].returns for each in plan.acting)
        if self._more(plan) and any(each.returns for each in dispositions.values()):
            count += self.session.source.unseen()
        return round(min(count, self.task.selection.limit or count) / self.run.rate)

    def _note_order(self, plan: Plan) -> None:
        """Say which messages lose their place in their FIFO group."""
        stay = {each.dead_letter.line for each in (*plan.changed, *plan.staying, *plan.beyond)}
        anew = isinstance(self.session.source, Archive)
        back = [(each.dead_letter, self.task.dispositions[each.verdict]) for each in plan.acting]
        if any(
            letter.message.fifo and to.returns and (anew or to.resend is not None or letter.line in stay)
            for letter, to in back
        ):
            self.terminal.note(
                "On a FIFO queue, what is resent, restored from the archive, or redriven although others of its group "
                "stay, goes to the end of its group."
            )

    def _note_paused(self, plan: Plan) -> None:
        """Warn if nothing reads the queue that messages return to. Silent without permission to check."""
        back = [each for each in self.task.dispositions.values() if each.returns]
        to_consumer = any(each.to in ("", self.deployment.queue.url) for each in back)
        if not to_consumer or not plan.acting:
            return
        with suppress(ClientError, BotoCoreError):
            found = mappings_of(self.deployment.client("lambda"), self.deployment.queue.arn)
            self.values["paused"] = paused = bool(found) and all(each.state == DISABLED for each in found)
            if paused:
                self.terminal.note("The consumer is paused: messages stay in the queue until `receiver resume`.")

    def _carry_out(self, plan: Plan) -> None:
        self.run.journal = journal_of(
            self.session.source, self.deployment, self.terminal, self.plan_id, self.task.acting.because
        )
        self.confirmed = not self.stopped() and self._agreed(plan)
        if not self.confirmed:
            self.run.decline(plan)
            return
        total = len(plan.acting)
        with self.terminal.progress(self.task.doing, total) as tell:
            self.run.carry_out(plan, lambda summary: tell(summary.acted, max(total, summary.acted)))
        if self.task.follow_seconds is not None and self.run.returned and not self.stopped():
            self._follow(self.task.follow_seconds)

    def _agreed(self, plan: Plan) -> bool:
        what = [counted(len(plan.acting), "dead letter")] if plan.acting else []
        what += ["any that appear later"] if self._more(plan) else []
        question = f"{self.task.asks} {' and '.join(what)}?"
        return not what or self.terminal.confirm(question, yes=self.task.acting.yes)

    def _follow(self, seconds: float) -> None:
        session = queue_session(self.deployment, self.terminal, self.task.acting.hold)
        assert isinstance(session.source, DeadLetterQueue)
        self.session.source.release()
        following = self.followed = Following(session, session.source, self.run.returned.values())
        with self.terminal.progress("completed", len(following.fates)) as tell, session:
            for counts in following.looks(seconds, self.stopped):
                tell(counts[Fate.COMPLETED], len(following.fates))

    def _save(self, plan: Plan) -> Exit:
        """Write the plan to a file, unless it is empty."""
        task, file = self.task, self.task.acting.save_plan
        assert file is not None
        values = {**self.values, "saved": str(file) if plan.acting else None}
        if not plan.acting:
            self.terminal.answer(values, clean(f"Nothing to do: {file} was not written."))
            return Exit.LEFT
        saved = SavedPlan(
            id=self.plan_id,
            command=task.command,
            made_at=moment(self.terminal.clock.epoch_ms()),
            queue=self.deployment.queue.arn,
            dead_letter_queue=source_name(self.session.source, self.deployment),
            options=task.options,
            letters=[PlannedLetter.of(each) for each in plan.acting],
            new_body_sha256=task.new_body_sha256,
        )
        write_plan(saved, file)
        body = [] if task.new_body_sha256 is None else [f"{flag('body')} FILE"]
        options = [*typed(plan=file, because=task.acting.because), *body, *self.deployment.typed]
        carry_out = command(f"receiver dlq {task.command}", *options)
        count = counted(len(plan.acting), "dead letter")
        self.terminal.answer(values, clean(f"{count} in {file}; nothing was done. To carry out the plan:\n{carry_out}"))
        return Exit.OK

    def _answer(self, told: set[str], error: str | None = None) -> None:
        summary, missing = self.run.summary, self._missing()
        shown: list[RenderableType] = [report.summary_text(summary, told, confirmed=self.confirmed)]
        shown += [report.missing_table(missing)] if missing else []
        shown += [] if self.followed is None else [report.fates_table(self.followed)]
        source = self.session.source
        stray = source.stray if isinstance(source, Archive) else []
        shown += [clean(f"Skipped, because they are not archived dead letters: {', '.join(stray)}")] if stray else []
        values = {
            **self.values,
            "confirmed": self.confirmed,
            "stopped": self.stopped(),
            **report.summary_values(summary),
            "missing": [each.message_id for each in missing],
            "stray": stray,
            "held_elsewhere": self.held,
            "followed": None if self.followed is None else report.fates_values(self.followed),
            "error": error,
        }
        self.terminal.answer(values, Group(*shown))

    def _missing(self) -> list[PlannedLetter]:
        return self.task.selection.missing(self.session.source.seen)

    def _end(self, *, found: bool) -> None:
        """End the command with its exit code, unless everything succeeded."""
        summary = self.run.summary
        if self.stopped():
            raise typer.Exit(Exit.STOPPED)
        if not self.confirmed or summary.left or summary.undeleted:
            raise typer.Exit(Exit.LEFT)
        if self.held:
            raise typer.Exit(Exit.HELD)
        asked = found or self.task.selection.all
        complete = self.followed is None or self.followed.completed
        if not asked or self._missing() or summary.unseen or not complete:
            raise typer.Exit(Exit.LEFT)


def drop_resent(key: str, deployment: Deployment, terminal: Terminal) -> Summary:
    """Drop this key's dead letters whose resend is complete."""
    with queue_session(deployment, terminal, HOLD_SECONDS) as session:
        dropped = {Verdict.RESENT: redrive_dispositions("")[Verdict.RESENT]}
        steps = Steps(deployment.client("sqs"), session.source)
        run = Run(session, dropped, steps, selection=Selection(keys=frozenset([key])))
        run.journal = journal_of(session.source, deployment, terminal, new_id(terminal))
        run.carry_out(run.plan())
    return run.summary


def journal_of(
    source: Source, deployment: Deployment, terminal: Terminal, plan_id: str, why: str | None = None
) -> Journal | None:
    """The journal of a run; None if the deployment keeps no history."""
    history = deployment.history(terminal)
    if history.table is None:
        return None
    return Journal(
        history=history,
        queue=deployment.queue.arn,
        dead_letter_queue=source_name(source, deployment),
        operator=deployment.operator,
        plan=plan_id,
        why=why,
    )


def note_held(queue: DeadLetterQueue, terminal: Terminal, *, ask: bool = False, stopped: Callable[[], bool]) -> int:
    """Report how many dead letters others hold, and offer to wait for them. Returns the number still held."""
    held = queue.held_elsewhere()
    if not held:
        return 0
    until = moment(terminal.clock.epoch_ms() + queue.hold_seconds * 1000)
    terminal.note(
        f"About {held} of {queue.count()} dead letters are held by another session, which may have been killed. They "
        f"become visible by {until}, unless its --hold is longer than {queue.hold_seconds}."
    )
    if ask and terminal.offer("Wait for them?"):
        with terminal.progress("waiting", None):
            held = queue.wait_for_others(stopped)
        if held:
            terminal.note(f"About {held} are still held: that session is still running, or its --hold is longer.")
    return held


def source_name(source: Source, deployment: Deployment) -> str:
    """The name of a source in the history and in plans: the dead-letter queue's ARN, or the archive's address."""
    return source.address if isinstance(source, Archive) else deployment.dead_letter_queue.arn


def new_id(terminal: Terminal) -> str:
    """A new plan id."""
    (version,) = terminal.clock.versions(1)
    return version[:8]
