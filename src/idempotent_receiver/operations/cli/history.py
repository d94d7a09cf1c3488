"""The command `receiver dlq history`: what operators did, and the result."""

from collections.abc import Container, Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.command import of_a_deployment
from idempotent_receiver.operations.cli.common_options import NO_ARCHIVE
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_options import TIMES, epoch_ms
from idempotent_receiver.operations.cli.terminal import Terminal, clean, command, counted, listing, moment
from idempotent_receiver.operations.dead_letters.history import Act, History, Verb, in_doubt

_FOR_EVER_MS = 253_402_300_799_000  # the end of the year 9999

AGAIN = {
    Verb.MOVED: "If the dead letter is still there, redrive it again: its key prevents a second run.",
    Verb.DROPPED: "If the dead letter is still there, redrive it again: it has completed and will be dropped.",
    Verb.ARCHIVED: "If the dead letter is still there, archive it again: this replaces the archived copy.",
    Verb.DELETED: "If the dead letter is still there, delete it again.",
    Verb.RESTORED: "If the dead letter is still in the archive, redrive it again: its key prevents a second run.",
    Verb.RESENT: "If the dead letter is still there, redrive it: that finishes the resend once it has begun.",
    Verb.GIVEN_UP: "If the record still has the message to send, give it up again.",
    Verb.PAUSED: "Pause again.",
    Verb.RESUMED: "Resume again.",
}
"""What is safe to do after an action with an unknown result."""


@of_a_deployment
def history(
    *,
    deployment: Deployment,
    terminal: Terminal,
    key: Annotated[str | None, typer.Option(help="Show only actions on this key, messageId or queue ARN.")] = None,
    since: Annotated[str | None, typer.Option(help=f"Only actions begun since {TIMES}.")] = None,
    until: Annotated[str | None, typer.Option(help="Only actions begun up to this time.")] = None,
    verb: Annotated[
        list[Verb] | None, typer.Option(metavar="VERB", help=f"Only {', '.join(Verb)}; repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show at most this many of the latest actions.")] = 100,
) -> None:
    """Show what operators did with dead letters and the queue.

    Each line shows who acted, when, why, on which key and message, from which plan, and the result. Without --key, the
    command reads the whole history table.
    """
    deployment.options.refuse("dlq history", archive=NO_ARCHIVE)
    if key == "":
        raise UsageError("--key is empty: give it a value or omit it")
    now_ms = terminal.clock.epoch_ms()
    since_ms = 0 if since is None else epoch_ms("--since", since, now_ms)
    # Another operator's clock may be ahead, so without --until future acts count too.
    until_ms = _FOR_EVER_MS if until is None else epoch_ms("--until", until, now_ms)
    if until_ms < since_ms:
        raise UsageError(f"--until {until} is before --since {since}: no action can match")
    kept = History(deployment.client("dynamodb"), deployment.kept_history_table, terminal.clock)
    # Includes later acts, because one may have repeated an act whose result is unknown.
    acts = list(kept.between(since_ms, _FOR_EVER_MS) if key is None else _acts_on(key, kept, deployment))
    doubts = in_doubt(acts)
    found = [each for each in acts if since_ms <= each.at_ms <= until_ms and (not verb or each.verb in verb)]
    latest = sorted(found, key=lambda act: act.id)[-limit:]
    if len(latest) < len(found):
        terminal.note(f"These are the latest {limit} of {len(found)} actions: --limit shows more.")
    if kept.foreign:
        terminal.note(f"Left out: {counted(kept.foreign, 'item')} of {kept.table} that are not readable actions.")
    values = {
        "history": kept.table,
        "count": len(found),
        "not_confirmed": sum(each in doubts for each in found),
        "foreign": kept.foreign,
        "acts": [act_values(each, deployment, doubt=each in doubts) for each in latest],
    }
    terminal.answer(values, _shown(latest, doubts, deployment) if latest else "The history has no matching act.")


def _acts_on(key: str, kept: History, deployment: Deployment) -> Iterator[Act]:
    # A dead letter without a usable key is filed under its messageId.
    for id in dict.fromkeys([*deployment.ids_of(key), key]):
        yield from kept.of_key(id)


def act_values(act: Act, deployment: Deployment, *, doubt: bool) -> dict[str, Any]:
    """An act, for the JSON output. Its outcome is "begun" until confirmed; with `doubt`, the act may have happened."""
    other = deployment.key_of(act.other) if act.other else None
    return {
        "at": moment(act.at_ms),
        "verb": act.verb,
        "key": deployment.key_of(act.key),
        "id": act.key,
        "message_id": act.message_id or None,
        "resent_as": None if act.mirror else other,
        "resent_from": other if act.mirror else None,
        "outcome": act.outcome or "begun",
        "code": act.code,
        "ended": None if act.ended_ms is None else moment(act.ended_ms),
        "may_have_happened": doubt,
        "operator": act.operator,
        "why": act.why,
        "plan": act.plan,
        "queue": act.queue,
        "dead_letter_queue": act.dead_letter_queue or None,
    }


def _shown(acts: Sequence[Act], doubts: Container[Act], deployment: Deployment) -> RenderableType:
    rows = []
    for each in acts:
        key = deployment.key_of(each.key)
        message = f"message {each.message_id}" if each.message_id not in ("", key) else None
        link = f"{'from' if each.mirror else 'as'} {deployment.key_of(each.other)}" if each.other else None
        said = "; ".join(part for part in (message, link, each.why, each.plan and f"plan {each.plan}") if part)
        settled = "repeated later" if each.may_have_happened and each not in doubts else None
        became = settled or (each.became if each.may_have_happened or each.code else None)
        rows.append(((moment(each.at_ms), each.verb, key, each.outcome or "begun"), (said, each.operator, became)))
    shown = listing(("at", "verb", "key", "outcome"), rows)
    open_ = [each for each in acts if each in doubts]
    if not open_:
        return shown
    advice = [f"{verb}: {AGAIN[verb]}" for verb in Verb if any(each.verb == verb for each in open_)]
    asked = f"The result of {counted(len(open_), 'action')} is unknown. Check each key with:"
    trace = command("receiver trace KEY", *deployment.typed)
    return Group(shown, Text(), Text(clean("\n".join([asked, trace, "Then:", *advice]))))
