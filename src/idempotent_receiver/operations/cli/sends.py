"""The command `receiver stuck --send`: sends one key's messages from its record, and with --give-up gives one up."""

from typing import NoReturn

import typer
from rich.text import Text

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_act import drop_resent
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, counted
from idempotent_receiver.operations.dead_letters.history import Act, ActOutcome, Verb
from idempotent_receiver.operations.unsent import GaveUp, give_up, send_from, to_give_up
from idempotent_receiver.protocol.record import Record, idempotency_key
from idempotent_receiver.protocol.resend import resending
from idempotent_receiver.protocol.store import Unknown
from idempotent_receiver.transaction.outbox import GivenUp, OutboxCall, calls_in, from_text, target_of


def send_stored(
    key: str, deployment: Deployment, terminal: Terminal, *, number: int | None, because: str | None, yes: bool
) -> NoReturn:
    """Send a record's messages, after giving up the one with this `number`, if any. Exits with a code."""
    if (number is None) != (because is None) or (because is not None and not because.strip()):
        raise UsageError("--give-up N needs --because WHY, which the record keeps, and --because needs --give-up N")
    store, ids, clock = deployment.store, deployment.ids_of(key), terminal.clock
    found = dict(zip(ids, store.read(ids), strict=True))
    id = next((id for id, each in found.items() if each is not None), ids[0])
    question, reason, left = f"Send the messages of {clean(key)}, some of which may have been sent before?", None, True
    if calls_of(found[id]):
        question = f"Make the calls of {clean(key)} and send its messages? Some may have been made and sent before."
    if number is not None and because is not None:
        meant = to_give_up(found[id], number, clock.epoch_ms())
        if isinstance(meant, str):
            _end(key, terminal, why=meant)
        target = target_of(meant)
        reason = GivenUp(target, deployment.operator, because)
        question = f"Never send message {number} of {clean(key)}, to {clean(target)}, and send the others?"
        if isinstance(meant, OutboxCall):
            question = f"Never make call {number} of {clean(key)}, to {clean(target)}, and do what else is left?"
    if not terminal.confirm(question, yes=yes):
        terminal.answer({"confirmed": False}, Text("Nothing was sent."))
        raise typer.Exit(Exit.LEFT)
    if number is not None and reason is not None:
        done = _give_up(id, number, reason, deployment, terminal)
        if done.why is not None:
            _end(key, terminal, why=done.why)
        left = done.left
    why = None
    if left:
        callees = deployment.description.callees
        lasts = deployment.retention_seconds
        why = send_from(store, deployment.client("sqs"), id, clock, lasts, callees=callees)
    before = found[id]
    resend = isinstance(before, Record) and resending(before) is not None
    if why is None and resend and left:
        dropped = drop_resent(deployment.key_of(id), deployment, terminal)
        _end(key, terminal, why=why, dropped=dropped.acted, complete=not dropped.left)
    _end(key, terminal, why=why, gave_up=number, left=left, stays=resend, calls=calls_of(before))


def calls_of(found: Record | Unknown | None) -> bool:
    """Whether a record has calls to make."""
    try:
        return isinstance(found, Record) and len(calls_in(from_text(found.outbox))) > 0
    except Exception:  # noqa: BLE001  # anyone may have edited the record; sending it says what is wrong
        return False


def _end(
    key: str,
    terminal: Terminal,
    *,
    why: str | None,
    gave_up: int | None = None,
    left: bool = True,
    stays: bool = False,
    calls: bool = False,
    dropped: int | None = None,
    complete: bool = True,
) -> NoReturn:
    sent = "Sent the messages and made the calls" if calls else "Sent the messages"
    done = f"{sent} for {clean(key)}." if left else f"{clean(key)} has none left to send."
    told = done if why is None else f"Not done: {clean(why)}."
    values = {"confirmed": True, "key": key, "sent": why is None, "why": why}
    if gave_up is not None:
        told, values = f"Message {gave_up} is given up. {told}", {**values, "gave_up": gave_up}
        told += " Its dead letter stays: resend it with another body, archive or delete it." if stays else ""
    if dropped is not None:
        told = f"{told} Its resend is complete: {counted(dropped, 'dead letter')} dropped."
        values = {**values, "dropped": dropped}
    terminal.answer(values, Text(told))
    raise typer.Exit(Exit.OK if why is None and complete else Exit.LEFT)


def _give_up(id: str, number: int, reason: GivenUp, deployment: Deployment, terminal: Terminal) -> GaveUp:
    """Give a message up. The history has it before it happens, and how it ended."""
    history = deployment.history(terminal)
    act = Act(
        verb=Verb.GIVEN_UP,
        key=id,
        message_id=f"{idempotency_key(id)}-{number}",
        queue=deployment.queue.arn if deployment.names_queue else "",
        dead_letter_queue="",
        operator=reason.operator,
        why=f"message {number} to {reason.queue_url}: {reason.why}",
        plan="",
    )
    begun = history.begin([act])
    lasts = deployment.retention_seconds
    done = give_up(deployment.store, id, number, reason, clock=terminal.clock, retention_seconds=lasts)
    outcome = ActOutcome.UNCONFIRMED if done.in_doubt else ActOutcome.DONE if done.why is None else ActOutcome.REFUSED
    history.confirm([each.ended(outcome) for each in begun])
    return done
