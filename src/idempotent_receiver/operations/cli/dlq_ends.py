"""The commands that end a dead letter for which there is no way back as it is, and those that keep it elsewhere."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment, Yes, of_a_deployment
from idempotent_receiver.operations.cli.dlq_options import (
    FromPlan,
    SavePlan,
    Which,
    chosen,
)
from idempotent_receiver.operations.cli.dlq_run import Hold, Task, act, session_of
from idempotent_receiver.operations.cli.terminal import Terminal, command, examples, moment
from idempotent_receiver.operations.dead_letters.archive import Archive
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.ends import archive_ends, delete_ends, resend_ends, restore_ends
from idempotent_receiver.operations.dead_letters.history import Outcome, Verb
from idempotent_receiver.operations.dead_letters.journal import key_of
from idempotent_receiver.operations.dead_letters.queue import HOLD_SECONDS
from idempotent_receiver.operations.dead_letters.run import DEFAULT_RATE
from idempotent_receiver.operations.dead_letters.selection import Plan
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.triage import claim_on
from idempotent_receiver.protocol.store import RecordStore, Unknown
from idempotent_receiver.protocol.transitions import AlreadyCompleted, HeldElsewhere, OtherPayload
from idempotent_receiver.sqs.dead_letter import MOST_BYTES

UNSENDABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""SQS takes the characters of XML 1.0. Source: Amazon SQS API Reference, SendMessage."""

app = typer.Typer()

Why = Annotated[str, typer.Option("--reason", help="Why, for the history: in your own words.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Act on this many at most.")]


@app.command(epilog=examples("receiver dlq archive --stack transfers --group done --reason INC-7 --yes"))
@of_a_deployment
def archive(
    *,
    deployment: Deployment,
    terminal: Terminal,
    which: Which,
    reason: Why = "",
    limit: Limit = None,
    hold: Hold = HOLD_SECONDS,
    save_plan: SavePlan = None,
    plan: FromPlan = None,
    yes: Yes = False,
) -> None:
    """Keep dead letters in the stack's archive instead of the queue.

    Each is stored, whole, before it is deleted. `dlq restore` brings it back.
    """
    kept = _archive(deployment, terminal)
    selection, saved = chosen(which, "archive", plan, deployment, terminal, limit=limit, save_plan=save_plan)
    at = moment(terminal.clock.epoch_ms())
    task = Task(
        command="archive",
        asks="Archive",
        doing="archiving",
        ends=archive_ends(kept, operator=deployment.operator, reason=reason or None, at=at),
        selection=selection,
        reason=reason or None,
        plan_id=None if saved is None else saved.id,
        save_plan=save_plan,
        yes=yes,
    )
    act(task, session_of(deployment, terminal, hold), deployment, terminal)


@app.command(epilog=examples("receiver dlq restore --stack transfers --group no-record --yes"))
@of_a_deployment
def restore(
    *,
    deployment: Deployment,
    terminal: Terminal,
    which: Which,
    reason: Why = "",
    limit: Limit = None,
    rate: Annotated[float, typer.Option(min=0.1, help="Messages a second.")] = DEFAULT_RATE,
    yes: Yes = False,
) -> None:
    """Send archived dead letters to the queue they came from.

    That is the dead-letter queue, and they keep their keys. Each is sent before it leaves the archive. `dlq redrive`
    then brings it back to the consumer.
    """
    dead = session_of(deployment, terminal, HOLD_SECONDS)
    session = Session(queue=_archive(deployment, terminal), reader=dead.reader, store=dead.store, rules=dead.rules)
    task = Task(
        command="restore",
        asks="Restore",
        doing="restoring",
        ends=restore_ends(deployment.client("sqs"), deployment.dead_letter_queue.url),
        selection=which.selection(terminal.clock.epoch_ms(), limit=limit),
        rate=rate,
        reason=reason or None,
        yes=yes,
    )
    act(task, session, deployment, terminal)


@app.command(epilog=examples("receiver dlq delete --stack transfers --group done --reason 'a test' --yes"))
@of_a_deployment
def delete(
    *,
    deployment: Deployment,
    terminal: Terminal,
    which: Which,
    reason: Why = "",
    everything: Annotated[bool, typer.Option("--all", help="All dead letters of this consumer.")] = False,
    limit: Limit = None,
    hold: Hold = HOLD_SECONDS,
    save_plan: SavePlan = None,
    plan: FromPlan = None,
    yes: Yes = False,
) -> None:
    """Delete dead letters for good. --reason says why, and which ones has to be said as well.

    Nothing brings them back: `dlq archive` keeps them.
    """
    if not reason.strip():
        raise UsageError("--reason is missing: say why these dead letters may be deleted; the history keeps it")
    if not (which.given or everything or plan is not None):
        raise UsageError("--reason tells why, not which: give --group, --key or another filter, or --all")
    if everything and (which.given or plan is not None):
        raise UsageError("--all means every dead letter: it takes no filter and no --plan")
    selection, saved = chosen(which, "delete", plan, deployment, terminal, limit=limit, save_plan=save_plan)
    task = Task(
        command="delete",
        asks="Delete for good",
        doing="deleting",
        ends=delete_ends(),
        selection=selection,
        reason=reason,
        plan_id=None if saved is None else saved.id,
        save_plan=save_plan,
        yes=yes,
    )
    act(task, session_of(deployment, terminal, hold), deployment, terminal)


@app.command(epilog=examples("receiver dlq resend --stack transfers --key order-17 --body body.json --yes"))
@of_a_deployment
def resend(
    *,
    deployment: Deployment,
    terminal: Terminal,
    which: Which,
    body: Annotated[Path, typer.Option(help="A file with the whole new body.")],
    reason: Why = "",
    force: Annotated[bool, typer.Option("--force", help="Even if it is older than records last.")] = False,
    hold: Hold = HOLD_SECONDS,
    yes: Yes = False,
) -> None:
    """Send one dead letter back with another body.

    It gets another key, and is deleted once it was sent. The key is made of the dead letter's id and the new body, so
    a repeated command runs it once. Where keys come from the message itself, the new body has to make another one.
    """
    text = _body(body)
    session = session_of(deployment, terminal, hold, force=force)

    def edited(letter: DeadLetter) -> DeadLetter:
        return session.reader.read(letter.edited(text), terminal.clock.epoch_ms())

    def new_key(plan: Plan) -> dict[str, str]:
        key = _resendable(plan, edited, session.store, terminal.clock.epoch_ms())
        if key is None:
            return {}
        _note_other_bodies(plan.acting[0].dead_letter, key, deployment, terminal)
        follow = command("receiver trace", shlex.quote(key), *deployment.typed)
        terminal.note(f"Its new key is {key}. To follow it once it is sent:\n{follow}")
        return {"new_key": key}

    task = Task(
        command="resend",
        asks="Send edited, and delete,",
        doing="sending",
        ends=resend_ends(deployment.client("sqs"), deployment.queue.url, edited),
        selection=which.selection(terminal.clock.epoch_ms()),
        check=new_key,
        reason=reason or None,
        yes=yes,
    )
    act(task, session, deployment, terminal)


def _archive(deployment: Deployment, terminal: Terminal) -> Archive:
    bucket = deployment.archive_bucket
    return Archive(deployment.client("s3"), bucket, deployment.dead_letter_queue.arn, terminal.clock)


def _note_other_bodies(letter: DeadLetter, new_key: str, deployment: Deployment, terminal: Terminal) -> None:
    """Say if a dead letter was sent with another body before, and not deleted: that is another message."""
    if deployment.history_table is None:
        return
    acts = deployment.history(terminal).of_key(key_of(letter))
    sent = [each for each in acts if each.verb == Verb.RESENT and each.outcome != Outcome.REFUSED]
    if others := [each for each in sent if new_key not in each.why]:
        last = others[-1]
        terminal.note(
            f"At {moment(last.at_ms)}, {last.operator} sent a dead letter of this key with another body "
            f"({last.became}). If it was this one, both run: send the same body again, or delete it."
        )


def _body(file: Path) -> str:
    try:
        text = file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--body {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"--body {file} is not text in UTF-8, and SQS takes no other") from None
    if not text:
        raise UsageError(f"--body {file} is empty, and SQS takes no empty message")
    if len(text.encode()) > MOST_BYTES:
        raise UsageError(f"--body {file} is larger than SQS's 1 MiB")
    if refused := UNSENDABLE.search(text):
        line = text.count("\n", 0, refused.start()) + 1
        raise UsageError(f"--body {file} has the character U+{ord(refused[0]):04X} in line {line}, and SQS takes none")
    return text


def _resendable(plan: Plan, edited: Callable[[DeadLetter], DeadLetter], store: RecordStore, now_ms: int) -> str | None:
    """The key under which the one dead letter of the plan goes edited; None if none goes.

    Raises UsageError unless it is one that may be sent again so, under a key of its own.
    """
    if not plan.decisions:
        return None
    if len(plan.decisions) > 1:
        raise UsageError(f"{len(plan.decisions)} dead letters are meant, and resend takes one: name it by --message-id")
    (decision,) = plan.decisions
    if not plan.acting:
        return None
    match claim_on(decision.dead_letter, decision.record, now_ms):
        case AlreadyCompleted():
            raise UsageError("it is done already: to send another message is for its producer")
        case HeldElsewhere():
            raise UsageError("a worker holds its claim, and may do it as it is: wait until the lease is over")
    letter = edited(decision.dead_letter)
    if letter.unkeyed is not None:
        raise UsageError(f"the new body has no usable key: {letter.unkeyed}")
    if letter.record_id == decision.dead_letter.record_id:
        raise UsageError(f"the new body has the same key, {letter.key}: give it another, or `dlq redrive` it as it is")
    (found,) = store.read([letter.record_id])
    if isinstance(found, Unknown):
        raise UsageError(f"the record of the new key {letter.key} could not be read: {found.why}")
    if isinstance(claim_on(letter, found, now_ms), OtherPayload):
        raise UsageError(f"the key {letter.key} of the new body was used for another payload: give it another")
    return letter.key
