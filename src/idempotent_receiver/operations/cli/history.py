"""The command `receiver dlq history`: what operators did with dead letters, and what became of it."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.deployment import Deployment, of_a_deployment
from idempotent_receiver.operations.cli.dlq_options import TIMES, epoch_ms
from idempotent_receiver.operations.cli.terminal import Terminal, clean, command, counted, listing, moment
from idempotent_receiver.operations.dead_letters.history import Act, History, Verb

_FOR_EVER_MS = 253_402_300_799_000  # the end of the year 9999

NOT_CONFIRMED = """\
Of {acts} nobody knows: the command ended before it was confirmed, or AWS did not
say. Look whether the dead letter is still there, and what its record says:
{trace}
If it is there, do it again: what was done is recognised by its key."""


@of_a_deployment
def history(
    *,
    deployment: Deployment,
    terminal: Terminal,
    key: Annotated[str | None, typer.Option(help="Only acts on this key, or on this messageId.")] = None,
    since: Annotated[str | None, typer.Option(help=f"Only acts begun since {TIMES}.")] = None,
    until: Annotated[str | None, typer.Option(help="Only acts begun until then.")] = None,
    verb: Annotated[list[Verb] | None, typer.Option(help="Only acts of this kind; may be given again.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="Show this many at most: the latest.")] = 100,
) -> None:
    """Show what was done with dead letters.

    Each act has who did it, when, with which key and message, why, from which plan, and what became of it. Without
    --key, the whole table of the history is read.
    """
    now_ms = terminal.clock.epoch_ms()
    since_ms = 0 if since is None else epoch_ms("--since", since, now_ms)
    # Another operator's clock may be ahead of this one: without --until, nothing is too late.
    until_ms = _FOR_EVER_MS if until is None else epoch_ms("--until", until, now_ms)
    if until_ms < since_ms:
        raise UsageError(f"--until {until} is before --since {since}: nothing was done between them")
    kept = History(deployment.client("dynamodb"), deployment.kept_history_table, terminal.clock)
    acts = kept.between(since_ms, until_ms + 1) if key is None else _acts_on(key, kept, deployment)
    found = [each for each in acts if since_ms <= each.at_ms <= until_ms and (not verb or each.verb in verb)]
    latest = sorted(found, key=lambda act: act.id)[-limit:]
    if len(latest) < len(found):
        terminal.note(f"These are the latest {limit} of {len(found)} acts: --limit shows more.")
    values = {
        "history": kept.table,
        "count": len(found),
        "not_confirmed": sum(each.may_have_happened for each in found),
        "acts": [act_values(each, deployment) for each in latest],
    }
    terminal.answer(values, _shown(latest, deployment) if latest else "The history has no such act.")


def _acts_on(key: str, kept: History, deployment: Deployment) -> Iterator[Act]:
    # A dead letter without a usable key is under its messageId.
    for id in dict.fromkeys([*deployment.ids_of(key), key]):
        yield from kept.of_key(id)


def act_values(act: Act, deployment: Deployment) -> dict[str, Any]:
    """An act as a script reads it; its outcome is "begun" until it is confirmed."""
    return {
        "at": moment(act.at_ms),
        "verb": act.verb,
        "key": deployment.key_of(act.key),
        "id": act.key,
        "message_id": act.message_id,
        "outcome": act.outcome or "begun",
        "code": act.code,
        "ended": None if act.ended_ms is None else moment(act.ended_ms),
        "may_have_happened": act.may_have_happened,
        "operator": act.operator,
        "why": act.why,
        "plan": act.plan,
        "queue": act.queue,
        "dead_letter_queue": act.dead_letter_queue,
    }


def _shown(acts: Sequence[Act], deployment: Deployment) -> RenderableType:
    rows = []
    for each in acts:
        key = deployment.key_of(each.key)
        message = None if each.message_id == key else f"message {each.message_id}"
        said = "; ".join(part for part in (message, each.why, each.plan and f"plan {each.plan}") if part)
        became = each.became if each.may_have_happened or each.code else None
        rows.append(((moment(each.at_ms), each.verb, key, each.outcome or "begun"), (said, each.operator, became)))
    shown = listing(("at", "verb", "key", "outcome"), rows)
    doubtful = sum(each.may_have_happened for each in acts)
    if not doubtful:
        return shown
    trace = command("receiver trace KEY", *deployment.typed)
    return Group(shown, Text(), Text(clean(NOT_CONFIRMED.format(acts=counted(doubtful, "act"), trace=trace))))
