"""The commands `receiver show` and `receiver stuck`: what a record says, and what is stuck."""

from typing import Annotated

import typer
from rich.text import Text

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import records_report as report
from idempotent_receiver.operations.cli.deployment import Deployment, of_a_deployment
from idempotent_receiver.operations.cli.layout import clean, counted
from idempotent_receiver.operations.cli.options import Yes
from idempotent_receiver.operations.cli.terminal import Exit, Terminal
from idempotent_receiver.operations.scan import Scan, cost_of, pages
from idempotent_receiver.protocol.store import Unknown


@of_a_deployment
def show(
    *,
    key: Annotated[str, typer.Argument(help="The key as stuck and dlq list print it, or a record's whole id.")],
    deployment: Deployment,
    terminal: Terminal,
) -> None:
    """Show the record of a key.

    That is its status, attempts, owner, lease, error and result.
    """
    if not key:
        raise UsageError("KEY is empty: give the key of a message, as its log line has it")
    ids = deployment.ids_of(key)
    found = next((each for each in deployment.store.read(ids) if each is not None), None)
    if isinstance(found, Unknown):
        terminal.note(f"the record of {key} could not be read: {found.why}")
        raise typer.Exit(Exit.AWS)
    if found is None:
        told = (
            f"There is no record {ids[-1]} in {deployment.table}: check --namespace. "
            "It may never have been claimed, or its record has expired."
        )
        terminal.answer({"key": deployment.key_of(ids[-1]), "id": ids[-1], "status": None}, Text(clean(told)))
        raise typer.Exit(Exit.LEFT)
    values = report.record_values(
        found, deployment.key_of(found.id), terminal.clock.epoch_ms(), deployment.retention_seconds
    )
    terminal.answer(values, report.record_table(values))


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
    dynamodb, table = deployment.dynamodb, deployment.table
    store = deployment.store
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
    values = report.scan_values(scan, deployment.namespace, deployment.key_of, now_ms, deployment.retention_seconds)
    shown = report.scan_tables(values, deployment.typed)
    terminal.answer({**values, "confirmed": True, "complete": not halted}, shown)
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if scan.scanned and not scan.own:
        terminal.note("A namespace that no record is in may be misspelt: check --namespace.")
        raise typer.Exit(Exit.LEFT)
