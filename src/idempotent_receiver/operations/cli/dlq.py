"""The commands `receiver dlq ...` that act: redrive, resend, archive and delete."""

import re
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.command import of_a_deployment
from idempotent_receiver.operations.cli.common_options import NO_ARCHIVE
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_act import act, queue_session, session_with
from idempotent_receiver.operations.cli.dlq_options import Acting, Filters, Named, Task
from idempotent_receiver.operations.cli.dlq_resend import resend_task, resends_of
from idempotent_receiver.operations.cli.terminal import Terminal, examples, moment
from idempotent_receiver.operations.dead_letters.archive import Archive
from idempotent_receiver.operations.dead_letters.queue import DEFAULT_RATE
from idempotent_receiver.operations.dead_letters.verbs import (
    archive_dispositions,
    delete_dispositions,
    redrive_dispositions,
    restore_dispositions,
)

app = typer.Typer(
    help="Inspect and redrive dead letters.",
    epilog=examples(
        "receiver dlq list --stack transfers",
        "receiver dlq redrive --stack transfers --group no-record --yes",
    ),
    no_args_is_help=True,
)

FOLLOW_SECONDS = 900


class _Waiting(TyperCommand):
    """A command whose --wait may be given without a value, which typer does not support."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments."""
        return super().parse_args(ctx, [f"{each}={FOLLOW_SECONDS}" if each == "--wait" else each for each in args])


@app.command(
    cls=_Waiting,
    epilog=examples(
        "receiver dlq redrive --stack transfers --group no-record --yes",
        "receiver dlq redrive --stack transfers --include-permanent --limit 10 --yes",
        "receiver dlq redrive --stack transfers --since 2h --save-plan plan.json",
        "receiver dlq redrive --stack transfers --from-archive --yes",
        "receiver dlq redrive --stack transfers --wait --yes",
    ),
)
@of_a_deployment
def redrive(
    *,
    deployment: Deployment,
    terminal: Terminal,
    filters: Filters,
    acting: Acting,
    from_archive: Annotated[
        bool, typer.Option("--from-archive", help="Read from the archive instead of the dead-letter queue.")
    ] = False,
    to_dlq: Annotated[
        bool, typer.Option("--to-dlq", help="With --from-archive: restore to the dead-letter queue only.")
    ] = False,
    rate: Annotated[float, typer.Option(min=0.1, help="Messages per second.")] = DEFAULT_RATE,
    include_permanent: Annotated[
        bool, typer.Option("--include-permanent", help="Include dead letters that failed for good.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Include dead letters older than the record retention, or archived from another queue."
        ),
    ] = False,
    wait: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="[=SECONDS]", help=f"Follow the redriven messages, for {FOLLOW_SECONDS} s by default."
        ),
    ] = None,
) -> None:
    """Redrive dead letters; delete those already completed.

    Each message keeps its key. The command shows its plan and asks before it acts. Ctrl-C stops it between two
    requests. It is safe to run again: the consumer recognises a repeated message by its key. Dead letters whose key
    was used for another payload are listed and stay in the queue.

    --save-plan only writes the plan to a file for review. --plan carries it out: dead letters that have changed
    since then are listed and stay in the queue.

    --wait reports which messages completed, failed again, became dead letters again, or are still waiting.
    """
    options = {
        "include_permanent": include_permanent,
        "force": force,
        "from_archive": from_archive,
        "to_dlq": to_dlq,
    }
    saved = acting.saved("redrive", deployment, [*filters.given, *_typed(options)])
    options = options if saved is None else {**dict.fromkeys(options, False), **saved.options}
    if not options["from_archive"]:
        deployment.options.refuse("dlq redrive", archive=NO_ARCHIVE)
    if options["to_dlq"] and (wait is not None or not options["from_archive"]):
        raise UsageError("--to-dlq needs --from-archive and excludes --wait: it sends nothing to the consumer")
    rules = {name: options[name] for name in ("include_permanent", "force")}
    if options["from_archive"]:
        session = session_with(_archive(deployment, terminal), deployment, archived=True, **rules)
    else:
        session = queue_session(deployment, terminal, acting.hold, **rules)
    dispositions = (
        restore_dispositions(deployment.dead_letter_queue.url)
        if options["to_dlq"]
        else redrive_dispositions(deployment.queue.url, resends_of(session, deployment, terminal))
    )
    task = Task(
        command="redrive",
        asks="Move or drop",
        doing="moving",
        dispositions=dispositions,
        acting=acting,
        selection=acting.selection(filters, terminal.clock.epoch_ms(), saved),
        options=options,
        saved=saved,
        rate=rate,
        follow_seconds=wait,
    )
    act(task, session, deployment, terminal)


@app.command(
    epilog=examples(
        "receiver dlq resend --stack transfers --key order-17 --body body.json --yes",
        "receiver dlq resend --stack transfers --key order-17 --yes",
    )
)
@of_a_deployment
def resend(
    *,
    deployment: Deployment,
    terminal: Terminal,
    named: Named,
    acting: Acting,
    body: Annotated[
        Path | None, typer.Option(help="A file with the complete new body; omit it to finish a resend.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Resend a dead letter older than the record retention.")
    ] = False,
) -> None:
    """Send one dead letter back with another body.

    The command stores the new body in the record of the old key, so that the old body can no longer be processed. It
    then sends the new body under a new key, completes the record, and deletes the dead letter. If keys come from the
    body, the new body must have a different key.

    If the command is interrupted, run it again without --body. `dlq redrive` and `stuck --send` finish it as well.
    """
    deployment.options.refuse("dlq resend", archive=NO_ARCHIVE)
    options = {"force": force}
    saved = acting.saved("resend", deployment, [*named.given, *_typed(options)])
    options = options if saved is None else {**dict.fromkeys(options, False), **saved.options}
    # With another body, a message that failed for good may succeed. One older than the record retention may have run.
    rules = {"include_permanent": True, "force": options["force"]}
    session = queue_session(deployment, terminal, acting.hold, **rules)
    selection = acting.selection(named, terminal.clock.epoch_ms(), saved)
    task = resend_task(
        session,
        deployment,
        terminal,
        body=body,
        options=options,
        selection=selection,
        acting=acting,
        saved=saved,
    )
    act(task, session, deployment, terminal)


@app.command(epilog=examples("receiver dlq archive --stack transfers --group done --because INC-7 --yes"))
@of_a_deployment
def archive(*, deployment: Deployment, terminal: Terminal, filters: Filters, acting: Acting) -> None:
    """Move dead letters from the queue to the archive.

    Each dead letter is stored in full before it is deleted. `dlq redrive --from-archive` sends it back.
    """
    saved = acting.saved("archive", deployment, filters.given)
    kept = _archive(deployment, terminal)
    told = {"operator": deployment.operator, "archived_at": moment(terminal.clock.epoch_ms())}
    told |= {} if acting.because is None else {"archived_for": acting.because}
    task = Task(
        command="archive",
        asks="Archive",
        doing="archiving",
        dispositions=archive_dispositions(lambda decision: kept.put(decision, **told)),
        acting=acting,
        selection=acting.selection(filters, terminal.clock.epoch_ms(), saved),
        saved=saved,
    )
    act(task, queue_session(deployment, terminal, acting.hold), deployment, terminal)


@app.command(epilog=examples("receiver dlq delete --stack transfers --group done --because 'a test' --yes"))
@of_a_deployment
def delete(
    *,
    deployment: Deployment,
    terminal: Terminal,
    filters: Filters,
    acting: Acting,
    everything: Annotated[bool, typer.Option("--all", help="Select all of this consumer's dead letters.")] = False,
) -> None:
    """Permanently delete dead letters. Select them, and give a reason with --because.

    This cannot be undone. To keep a copy, use `dlq archive` instead.
    """
    deployment.options.refuse("dlq delete", archive=NO_ARCHIVE)
    if acting.because is None:
        raise UsageError("--because is missing: give the reason for deleting; the history keeps it")
    if not (filters.given or everything or acting.plan is not None):
        raise UsageError("no dead letters are selected: give --group, --key or another filter, or --all")
    if everything and (filters.given or acting.plan is not None):
        raise UsageError("--all means every dead letter: it takes no filter and no --plan")
    saved = acting.saved("delete", deployment, filters.given)
    task = Task(
        command="delete",
        asks="Permanently delete",
        doing="deleting",
        dispositions=delete_dispositions(),
        acting=acting,
        selection=acting.selection(filters, terminal.clock.epoch_ms(), saved),
        saved=saved,
    )
    act(task, queue_session(deployment, terminal, acting.hold), deployment, terminal)


def _typed(options: dict[str, bool]) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name, given in options.items() if given]


def _archive(deployment: Deployment, terminal: Terminal) -> Archive:
    """The dead-letter queue's archive. --dlq can name a queue that no longer exists."""
    given = deployment.options.dlq
    name = re.split("[/:]", given or deployment.dead_letter_queue.arn)[-1]
    return Archive(deployment.client("s3"), deployment.archive_bucket, name, terminal.clock)
