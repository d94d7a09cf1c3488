"""The command `receiver stuck`: claims that nobody settled and keys that fail, and what becomes of them."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.operations.cli.deployment import Deployment, Yes, of_a_deployment
from idempotent_receiver.operations.cli.show import UNDATED, record_values, undated
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, command, counted, listing
from idempotent_receiver.operations.scan import Scan, cost_of, pages
from idempotent_receiver.protocol.record import Record

TAKEN_OVER = """\
The next delivery or request takes over the claim: do nothing. If none comes:
{redrive}
If it is no dead letter, it is an orphan: see docs/operating.md, "Orphans"."""
TRIED_AGAIN = """\
The next delivery or request tries the key again. If it is a dead letter by now:
{redrive}"""
FIXED_FIRST = """\
Fix the cause; trying again does not help before that. Then:
{redrive_permanent}"""
ANSWERED = """\
These belong to a workflow. A failure is an answer: retry under another key.
What is overdue is resumed by its sweep. See docs/workflow.md, "Operating it\"."""

KINDS = {
    "unsettled": ("Claims that nobody settled", TAKEN_OVER),
    "failing": ("Keys that failed, and are tried again", TRIED_AGAIN),
    "permanent": ("Keys that failed for good", FIXED_FIRST),
    "workflow": ("Workflow executions that failed, or are overdue", ANSWERED),
}
"""What a scan names: its title, and what becomes of it."""


@of_a_deployment
def stuck(
    *,
    deployment: Deployment,
    terminal: Terminal,
    rate: Annotated[float, typer.Option(min=0.5, help="Read units a second.")] = 25.0,
    top: Annotated[int, typer.Option(min=1, max=1000, help="How many of each kind to name.")] = 20,
    yes: Yes = False,
) -> None:
    """Find claims that nobody settled, and keys that fail.

    It scans the whole table, and a scan pays for every item: it tells its cost before it starts. With a
    namespace, only the records in it count, and it is an error if there are none: it may be misspelt.
    """
    table, store, dynamodb = deployment.table, deployment.store, deployment.client("dynamodb")
    cost = cost_of(dynamodb, table)
    terminal.note(
        f"A scan of {table} reads about {counted(cost.items, 'item')}, {cost.size_bytes / 1e6:.1f} MB: "
        f"{counted(cost.read_units, 'read unit')}, in {cost.read_units / rate:.0f} s at {rate:g} a second. "
        "DynamoDB updates these figures about every six hours."
    )
    if not terminal.confirm("Scan?", yes=yes):
        terminal.answer({"confirmed": False}, Text("Nothing was scanned."))
        raise typer.Exit(Exit.LEFT)
    now_ms = terminal.clock.epoch_ms()
    scan = Scan(now_ms, most=top, prefix=deployment.prefix)
    with terminal.stoppable() as stopped, terminal.progress("scanning", cost.items or None) as tell:
        for page in pages(dynamodb, table, terminal.clock, units_a_second=rate, page_items=cost.page_items(rate)):
            scan.take(page)
            tell(scan.scanned, max(cost.items, scan.scanned))
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
        terminal.note("A namespace that no record is in may be misspelt: check --namespace.")
        raise typer.Exit(Exit.LEFT)


def scan_values(scan: Scan, deployment: Deployment, now_ms: int) -> dict[str, Any]:
    """What a scan found in a namespace, or without one in the whole table, as a script reads it."""

    def values(record: Record) -> dict[str, Any]:
        whole = record_values(record, deployment, now_ms)
        return {name: value for name, value in whole.items() if name not in ("was", "result")}

    return {
        "scanned": scan.scanned,
        "namespace": deployment.namespace,
        "own": scan.own,
        "given_back_count": scan.released_count,
        **{f"{kind}_count": count for kind, count in scan.counts.items()},
        **{kind: [values(record) for record in records] for kind, records in scan.named.items()},
    }


def scan_tables(values: dict[str, Any], options: Sequence[str]) -> RenderableType:
    """What a scan found, as a person reads it, and below each kind what becomes of it.

    With the `options`, a command means the same consumer.
    """
    records = counted(values["scanned"], "record")
    if values["namespace"] is not None:
        are = "is" if values["own"] == 1 else "are"
        records = f"{values['own']} of {records} {are} in the namespace {values['namespace']}"
    summary = (
        f"{records}: {counted(values['unsettled_count'], 'claim')} that nobody settled, "
        f"{values['given_back_count']} released and waiting, {counted(values['failing_count'], 'key')} failing, "
        f"{values['permanent_count']} failed for good"
    )
    if values["workflow_count"]:
        summary += f", {counted(values['workflow_count'], 'workflow execution')} failed or overdue"
    shown: list[RenderableType] = [Text(clean(f"{summary}."))]
    for kind, (title, then) in KINDS.items():
        if values[kind]:
            becomes = Text(advice(then, options), style="italic")
            shown += [Text(""), Text(title, style="bold"), _named(kind, values[kind]), becomes]
    return Group(*shown)


def advice(then: str, options: Sequence[str]) -> str:
    """What becomes of a kind, with commands that run as they stand once KEY is filled in."""
    redrive = ("receiver dlq redrive", *options)
    return then.format(
        redrive=command(*redrive, "--key KEY"), redrive_permanent=command(*redrive, "--include-permanent", "--key KEY")
    )


def _named(kind: str, records: Sequence[dict[str, Any]]) -> RenderableType:
    head, time = ("lease over since", "lease_until") if kind == "unsettled" else ("written about", "written_about")
    rows = [
        (
            (each["key"], each["status"], each["attempts"], each[time]),
            (each["error"], each["owner"] and f"owner: {each['owner']}"),
        )
        for each in records
    ]
    shown = listing(("key", "status", "attempts", head), rows)
    if kind != "unsettled" and any(map(undated, records)):
        return Group(shown, Text(f"written about: {UNDATED}"))
    return shown
