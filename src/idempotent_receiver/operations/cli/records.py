"""The command `receiver stuck`, which finds records that need attention. Also shows one record in `receiver trace`."""

import json
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from idempotent_receiver.handler.lending import LendingStore
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import sends
from idempotent_receiver.operations.cli.command import of_a_deployment
from idempotent_receiver.operations.cli.common_options import NO_ARCHIVE, Yes
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.documentation import section
from idempotent_receiver.operations.cli.terminal import (
    BETWEEN_COLUMNS,
    Exit,
    Terminal,
    clean,
    command,
    counted,
    line,
    listing,
    moment,
)
from idempotent_receiver.operations.records import (
    charged_in,
    charged_text,
    state_of,
    unreadable,
    why_failed,
    written_ms,
)
from idempotent_receiver.operations.scan import Scan, cost_of, pages
from idempotent_receiver.protocol.record import Record, Status, error_of, permanent
from idempotent_receiver.protocol.resend import resend_of
from idempotent_receiver.transaction.outbox import given_up

LABEL = len("written about")
UNDATED = "give --consumer to see when"
TAKEN_OVER = """\
The next delivery or request takes over the claim: wait. If none comes:
{redrive}
If no dead letter has the key, see {orphans}."""
SENT_NEXT = """\
The next delivery of the key's message sends them. If that message is already a
dead letter:
{redrive}
If it is gone, send the messages from the record:
{send}
If message N can never be sent, because its queue is gone or it is too long:
{give_up}"""
TRIED_AGAIN = """\
The next delivery or request retries the key. If its message is already a dead
letter:
{redrive}"""
FIXED_FIRST = """\
Fix the cause first; until then, a retry does not help. Then:
{redrive_permanent}"""
ANSWERED = """\
These belong to a workflow. A failure is final: retry under a new key.
The workflow's sweep resumes overdue executions. See {operating_it}."""
BEING_RESENT = """\
A resend of their dead letters with another body has not finished.
Until it does, no message with these keys runs. Finish it:
{redrive}
If the dead letter is gone:
{send}"""
NOT_UNDERSTOOD = """\
A newer version, or another program, writes to this table. No message with these
keys runs until its record can be read: upgrade, or see
{verdicts}."""

KIND_TEXTS = {
    "unsettled": ("Claims that were never settled", TAKEN_OVER),
    "unsent": ("Keys whose effect took place but whose messages are not sent", SENT_NEXT),
    "failing": ("Keys that failed and will be retried", TRIED_AGAIN),
    "permanent": ("Keys that failed for good", FIXED_FIRST),
    "workflow": ("Workflow executions that failed, or are overdue", ANSWERED),
    "resending": ("Keys whose dead letters are being resent with another body", BEING_RESENT),
    "unreadable": ("Records that this version cannot read", NOT_UNDERSTOOD),
}
"""The kinds of records that a scan lists: title and advice."""


def record_values(found: Record, deployment: Deployment, now_ms: int) -> dict[str, Any]:
    """A record, for the JSON output. `status` comes from `state_of`; `was` is the status stored in the table."""
    error = error_of(found)
    until = found.lease_until_ms if found.status in (Status.INPROGRESS, Status.SENDING) else None
    written = written_ms(found, now_ms, deployment.known_retention(found.id))
    return {
        "key": deployment.key_of(found.id),
        "id": found.id,
        "status": state_of(found, now_ms),
        "was": found.status,
        "attempts": found.attempts,
        "charged": charged_in(found, now_ms),
        "max_attempts": deployment.description.max_attempts,
        "owner": found.owner,
        "lease_until": None if until is None else moment(until),
        "lease_left_seconds": None if until is None else max(0, (until - now_ms) // 1000),
        "error": why_failed(found),
        "error_type": error.get("type"),
        "error_at": error.get("at"),
        "permanent": permanent(found),
        "written_about": None if written is None else moment(written),
        "expires": None if found.expiration is None else moment(found.expiration * 1000),
        "given_up": [{"message": number, **each._asdict()} for number, each in given_up(found.outbox).items()] or None,
        "resend": _resend(found, deployment),
        "result": _result(found.data),
        "unreadable": unreadable(found, now_ms),
    }


def _resend(found: Record, deployment: Deployment) -> dict[str, str] | None:
    """The keys, the operator and the reason of a resend."""
    resend = resend_of(found)
    if resend is None:
        return None
    old, new = map(deployment.key_of, (resend.old_id or found.id, resend.new_id))
    told = {"old_key": old, "new_key": new, "operator": resend.operator, "why": resend.why}
    return told | ({"dead_letter": resend.message_id} if resend.message_id else {})


def _result(data: str | None) -> Any:
    try:
        return None if data is None else json.loads(data)
    except (ValueError, RecursionError):
        return data


def record_table(values: dict[str, Any]) -> RenderableType:
    """A record, for people."""
    shown = {**values, "lease": _lease(values), "charged": charged_text(values)}
    if values["status"] == "EXPIRED":
        shown["status"] = f"EXPIRED (it was {values['was']}; the key is free again)"
    if undated(values):
        shown["written_about"] = UNDATED
    if values["result"] is not None:
        shown["result"] = json.dumps(values["result"], ensure_ascii=False, indent=2)
    table = Table.grid(Column(min_width=LABEL), Column(overflow="fold"), padding=BETWEEN_COLUMNS)
    shown |= values["resend"] or {}
    names = (
        "status",
        "old_key",
        "new_key",
        "dead_letter",
        "attempts",
        "charged",
        "owner",
        "why",
        "lease",
        "error",
        "error_type",
        "error_at",
    )
    for name in (*names, "written_about", "expires", "result", "unreadable"):
        if shown.get(name) is not None:
            table.add_row(name.replace("_", " "), clean(shown[name]))
    return Group(*(line((name, clean(values[name])), (LABEL, 0)) for name in ("key", "id")), table)


def undated(values: dict[str, Any]) -> bool:
    """Whether the time of a record's last write is unknown, because its retention is unknown."""
    return values["expires"] is not None and values["written_about"] is None


def _lease(values: dict[str, Any]) -> str | None:
    until, left = values["lease_until"], values["lease_left_seconds"]
    if until is None:
        return None
    return f"{timedelta(seconds=left)} left, until {until}" if left else f"ended at {until}"


@of_a_deployment
def stuck(
    *,
    deployment: Deployment,
    terminal: Terminal,
    rate: Annotated[float, typer.Option(min=0.5, help="Read units per second.")] = 25.0,
    top: Annotated[int, typer.Option(min=1, max=1000, help="List at most this many records of each kind.")] = 20,
    send: Annotated[
        str | None, typer.Option(metavar="KEY", help="Send the messages stored in this key's record.")
    ] = None,
    give_up: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="With --send: never send message N, and keep the reason in the record."),
    ] = None,
    because: Annotated[str | None, typer.Option(help="The reason for --give-up.")] = None,
    yes: Yes = False,
) -> None:
    """Find claims that were never settled, and keys that fail.

    With --send, the command instead sends one key's messages from its record. The key's own message must be gone;
    otherwise a worker may send them as well. If they are a resend, its dead letter is dropped. --give-up N ends what
    can never be sent, such as a message to a queue that is gone.

    The command scans the whole table. AWS charges for every item in DynamoDB, so the command shows the cost before it
    starts. With a namespace, only its records count; a namespace without records is an error, because it may be
    misspelled.
    """
    deployment.options.refuse("stuck", archive=NO_ARCHIVE)
    store = deployment.store
    if send is not None:
        sends.send_stored(send, deployment, terminal, number=give_up, because=because, yes=yes)
    if give_up is not None or because is not None:
        raise UsageError("--give-up and --because need --send KEY")
    found, about = _found(deployment, terminal, rate, yes=yes)
    now_ms = terminal.clock.epoch_ms()
    scan = Scan(now_ms, most=top, prefix=deployment.prefix)
    with terminal.stoppable() as stopped, terminal.progress("scanning", about or None) as tell:
        for page in found:
            scan.take(page)
            tell(scan.scanned, max(about, scan.scanned))
            if stopped():
                break
        halted = stopped()
    scan.confirm(store)
    values = scan_values(scan, deployment, now_ms)
    answer = {**values, "confirmed": True, "complete": not halted}
    terminal.answer(answer, scan_tables(values, deployment.typed))
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if scan.scanned and not scan.own:
        terminal.note("There are no records in this namespace, which may be misspelled: check --consumer.")
        raise typer.Exit(Exit.LEFT)


def _found(deployment: Deployment, terminal: Terminal, rate: float, *, yes: bool) -> tuple[Iterator[list[Record]], int]:
    """The records to look at, page by page, and about how many there are; 0 if unknown. Exits if a scan is refused."""
    if isinstance(store := deployment.store, LendingStore):
        from idempotent_receiver.operations.sql_scan import not_completed  # noqa: PLC0415  # it needs SQLAlchemy

        return not_completed(store, deployment.prefix), 0
    table, dynamodb = deployment.table, deployment.client("dynamodb")
    cost = cost_of(dynamodb, table)
    terminal.note(
        f"A scan of {table} reads about {counted(cost.items, 'item')}, {cost.size_bytes / 1e6:.1f} MB: "
        f"{counted(cost.read_units, 'read unit')}, in {cost.read_units / rate:.0f} s at {rate:g} per second. "
        "DynamoDB updates these figures about every six hours."
    )
    if not terminal.confirm("Scan?", yes=yes):
        terminal.answer({"confirmed": False}, Text("Nothing was scanned."))
        raise typer.Exit(Exit.LEFT)
    page_items = cost.page_items(rate)
    return pages(dynamodb, table, terminal.clock, units_a_second=rate, page_items=page_items), cost.items


def scan_values(scan: Scan, deployment: Deployment, now_ms: int) -> dict[str, Any]:
    """The result of a scan of a namespace, or of the whole table, for the JSON output."""

    def values(record: Record) -> dict[str, Any]:
        whole = record_values(record, deployment, now_ms)
        return {name: value for name, value in whole.items() if name not in ("was", "result")}

    return {
        "scanned": scan.scanned,
        "namespace": deployment.namespace,
        "own": scan.own,
        "released_count": scan.released_count,
        "resent_count": scan.resent_count,
        **{f"{kind}_count": count for kind, count in scan.counts.items()},
        **{kind: [values(record) for record in records] for kind, records in scan.named.items()},
    }


def scan_tables(values: dict[str, Any], options: Sequence[str]) -> RenderableType:
    """The result of a scan, for people, with advice below each kind.

    `options` make the suggested commands select the same consumer.
    """
    records = counted(values["scanned"], "record")
    if values["namespace"] is not None:
        are = "is" if values["own"] == 1 else "are"
        records = f"{values['own']} of {records} {are} in the namespace {values['namespace']}"
    summary = (
        f"{records}: {counted(values['unsettled_count'], 'claim')} never settled, "
        f"{values['released_count']} released and waiting, {counted(values['failing_count'], 'key')} failing, "
        f"{values['permanent_count']} failed for good"
    )
    if values["unsent_count"]:
        summary += f", {counted(values['unsent_count'], 'key')} with messages to send"
    if values["workflow_count"]:
        summary += f", {counted(values['workflow_count'], 'workflow execution')} failed or overdue"
    if values["resending_count"]:
        summary += f", {counted(values['resending_count'], 'key')} with a dead letter being resent"
    if values["resent_count"]:
        summary += f", {values['resent_count']} resent under another key"
    if values["unreadable_count"]:
        summary += f", {counted(values['unreadable_count'], 'record')} unreadable"
    shown: list[RenderableType] = [Text(clean(f"{summary}."))]
    for kind, (title, then) in KIND_TEXTS.items():
        if values[kind]:
            becomes = Text(advice(then, options), style="italic")
            shown += [Text(), Text(title, style="bold"), _named(kind, values[kind]), becomes]
    return Group(*shown)


def advice(then: str, options: Sequence[str]) -> str:
    """The advice for a kind, with commands that run as shown once KEY is filled in."""
    redrive = ("receiver dlq redrive", *options)
    return then.format(
        redrive=command(*redrive, "--key KEY"),
        send=command("receiver stuck", *options, "--send KEY"),
        give_up=command("receiver stuck", *options, "--send KEY", "--give-up N", "--because WHY"),
        redrive_permanent=command(*redrive, "--include-permanent", "--key KEY"),
        orphans=section("operating", "Orphans"),
        operating_it=section("workflow", "Operating it"),
        verdicts=section("operating", "Verdicts"),
    )


def _named(kind: str, records: Sequence[dict[str, Any]]) -> RenderableType:
    leased = kind in ("unsettled", "unsent")
    head, time = ("lease ended at", "lease_until") if leased else ("written about", "written_about")
    rows = [
        (
            (each["key"], each["status"], each["attempts"], each[time]),
            (
                each["error"],
                each["unreadable"],
                each["owner"] and f"owner: {each['owner']}",
                (told := charged_text(each)) and f"charged {told}",
            ),
        )
        for each in records
    ]
    shown = listing(("key", "status", "attempts", head), rows)
    if not leased and any(map(undated, records)):
        return Group(shown, Text(f"written about: {UNDATED}"))
    return shown
