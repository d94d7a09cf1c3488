"""The command `receiver dlq report`: dead letters on a page to look at, each beside its record and its history."""

import shlex
from collections.abc import Mapping, Sequence
from heapq import nlargest
from pathlib import Path
from typing import Annotated, Any

import typer

from idempotent_receiver.operations.cli import dlq_report
from idempotent_receiver.operations.cli.deployment import Deployment, of_a_deployment
from idempotent_receiver.operations.cli.dlq_look import Hold, Look, look
from idempotent_receiver.operations.cli.dlq_options import Filters, write_new
from idempotent_receiver.operations.cli.history import act_values
from idempotent_receiver.operations.cli.terminal import Terminal, clean, counted, moment, typed
from idempotent_receiver.operations.dead_letters.archive import document
from idempotent_receiver.operations.dead_letters.following import became
from idempotent_receiver.operations.dead_letters.history import Act, History, Verb
from idempotent_receiver.operations.dead_letters.queue import chunks
from idempotent_receiver.operations.dead_letters.selection import Selection
from idempotent_receiver.operations.dead_letters.triage import ACTS, DAY_MS, Decision, Verdict
from idempotent_receiver.operations.dead_letters.verbs import redrive_ends
from idempotent_receiver.operations.dead_letters.workers import Workers
from idempotent_receiver.operations.page import html_of
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import READS_A_CALL, Unknown

TEMPLATE = Path(__file__).with_name("dlq_page.html")

ACTS_MS = 14 * DAY_MS
"""SQS keeps no message for longer, so older acts say nothing of the dead letters that are there."""

MOST_ACTS = 10_000

_STAYING = sorted(set(Verdict) - {Verdict.OTHER_QUEUE})
COMMANDS = (
    ("Move what may run, and drop what is done", "receiver dlq redrive", ACTS),
    (
        "Also move what failed for good, once its cause is fixed",
        "receiver dlq redrive --include-permanent",
        [Verdict.PERMANENT],
    ),
    (
        "Also move what is older than records last, if it was not done",
        "receiver dlq redrive --force",
        [Verdict.TOO_OLD],
    ),
    ("Keep in the archive", "receiver dlq archive --reason WHY", _STAYING),
    ("Delete for good", "receiver dlq delete --reason WHY", _STAYING),
)
"""What may be done with selected dead letters: in words, how the command begins, and for which verdicts it is shown."""

PRIVATE = ("data", "input")
"""What a record keeps of a function's result or of a workflow's input: left out where bodies are."""


@of_a_deployment
def report(
    *,
    file: Annotated[Path, typer.Argument(help="A new file, for a browser.")],
    deployment: Deployment,
    terminal: Terminal,
    filters: Filters,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="Look at this many dead letters at most.")] = 5000,
    bodies: Annotated[bool, typer.Option("--bodies", help="Bodies, attributes and results too.")] = False,
    hold: Hold = 60,
) -> None:
    """Write a page of dead letters, for a browser.

    It has the groups, each dead letter beside its record and its history, and what became of what was moved in the last
    14 days. Select there what you mean, and copy the command. The page acts on nothing and loads nothing.
    """
    now_ms = terminal.clock.epoch_ms()
    selection = filters.selection(now_ms)
    # First: it may take its time, and meanwhile no dead letter should be held.
    acts = _acts(deployment.history(terminal), deployment, now_ms)
    looked = look(deployment, terminal, selection, limit, hold)
    values = {
        **looked.values,
        "title": f"Dead letters of {deployment.queue.arn.rpartition(':')[2]}",
        "dead_letter_queue": deployment.dead_letter_queue.arn,
        "made_at": moment(now_ms),
        "bodies": bodies,
        "options": deployment.typed,
        "commands": [dict(zip(("does", "begins", "verdicts"), each, strict=True)) for each in COMMANDS],
        "plan": _plan(looked.meant, deployment),
        "groups": [_group(name, each) for name, each in dlq_report.grouped(looked.meant).items()],
        "letters": [_letter(each, bodies=bodies) for each in looked.meant],
        "acts": _became(acts, looked, deployment, terminal.clock.epoch_ms()),
    }
    write_new(file, [html_of(TEMPLATE.read_text(encoding="utf-8"), values)])
    what = f"{counted(len(looked.meant), 'dead letter')} and {counted(len(acts), 'act')} in {file}"
    told = {"file": str(file), **looked.values, "acts": len(acts), "bodies": bodies}
    terminal.answer(told, clean(f"{what}, {'bodies included' if bodies else 'without bodies'}."))
    looked.end(selection)


def _plan(decisions: Sequence[Decision], deployment: Deployment) -> list[dict[str, Any]]:
    ends = redrive_ends(deployment.queue.url)
    return dlq_report.plan_values(Selection().plan(decisions, 0, ends), ends)


def _group(name: str, group: Sequence[Decision]) -> dict[str, Any]:
    values = dlq_report.group_values(name, group, bodies=False)
    del values["letters"]
    return {**values, "typed": typed(group=name)[0]}


def _letter(decision: Decision, *, bodies: bool) -> dict[str, Any]:
    """A dead letter as the archive would keep it. Without `bodies`, nothing that its producer or a function wrote."""
    of, values = decision.dead_letter, document(decision)
    message, record = values["message"], values["record"]
    if not bodies:
        message = {name: message[name] for name in ("messageId", "attributes")}
        record = record and {name: value for name, value in record.items() if name not in PRIVATE}
    message.pop("receiptHandle", None)
    # A key may begin like an option.
    key = None if not of.key else f"-- {shlex.quote(of.key)}" if of.key.startswith("-") else shlex.quote(of.key)
    own = {"since": moment(of.since_ms), "typed": typed(message_id=of.id)[0], "typed_key": key}
    return {**values, "message": message, "record": record, **own}


def _acts(kept: History, deployment: Deployment, now_ms: int) -> list[Act]:
    """The latest acts on dead letters of this consumer, the latest first."""
    found = kept.between(now_ms - ACTS_MS, now_ms + DAY_MS)  # another operator's clock may be ahead
    own = (each for each in found if each.queue == deployment.queue.arn)
    return nlargest(MOST_ACTS, own, key=lambda act: act.id)


def _became(acts: Sequence[Act], looked: Look, deployment: Deployment, now_ms: int) -> list[dict[str, Any]]:
    """The acts, with what became of what they moved; the latest first."""
    records = _records(list(dict.fromkeys(act.key for act in acts if act.verb == Verb.MOVED)), deployment)
    since = {each.dead_letter.record_id: each.dead_letter.id for each in looked.taken}
    values = []
    for act in acts:
        # A later act on its key, or a dead letter that is there now, if it is another than the one that was moved.
        dead = since.get(act.key, act.message_id) != act.message_id
        fate = became(act, records.get(act.key), now_ms, deployment.retention_seconds, dead=dead)
        values.append({**act_values(act, deployment), "became": fate})
        since[act.key] = act.message_id
    return values


def _records(ids: Sequence[str], deployment: Deployment) -> Mapping[str, Record | Unknown | None]:
    reads = Workers().results(deployment.store.read, chunks(ids, READS_A_CALL))
    return dict(zip(ids, (record for read in reads for record in read), strict=True))
