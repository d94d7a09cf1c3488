"""The operator's command, `receiver`: what a record says, and what is stuck. The others are in `dlq.py`, `checkup.py`.

Each command finds its consumer, asks a module that decides, and lets `report.py` say it. None of it is deployed.
"""

import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

try:
    import typer
except ImportError:  # pragma: no cover  # the tests have it
    sys.exit(
        "receiver needs typer and rich: install the package with its extra [cli], in a checkout by pip install '.[cli]'"
    )

from botocore.exceptions import BotoCoreError, ClientError
from rich.text import Text

from idempotent_receiver.operations import checkup, dlq, report
from idempotent_receiver.operations.deployment import Deployment, Refused
from idempotent_receiver.operations.layout import clean, counted
from idempotent_receiver.operations.survey import BYTES_A_UNIT, Survey, cost_of, scan
from idempotent_receiver.operations.terminal import EXIT_CODES, Exit, Terminal, Yes, examples, of_a_deployment
from idempotent_receiver.protocol.store import Unknown

SMALLEST_ITEM = 100
"""Bytes, for a table that does not know its size yet."""

app = typer.Typer(
    name="receiver",
    help=f"Look after consumers whose messages take effect once.\n\n{EXIT_CODES}",
    epilog=examples("receiver dlq list --stack transfers"),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(dlq.app, name="dlq")
app.command(epilog=examples("receiver doctor --stack transfers"))(checkup.doctor)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"receiver {version('idempotent-receiver')}")
        raise typer.Exit


@app.callback()
def _receiver(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version and exit.")
    ] = False,
) -> None:
    pass


@app.command(epilog=examples("receiver show 5f2c1d64-0001-4000-8000-000000000001 --stack transfers"))
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
        raise Refused("KEY is empty: give the key of a message, as its log line has it")
    ids = deployment.ids_of(key)
    found = next((each for each in deployment.store.read(ids) if each is not None), None)
    if isinstance(found, Unknown):
        terminal.note(f"the record of {key} could not be read: {found.why}")
        raise typer.Exit(Exit.AWS)
    if found is None:
        told = (
            f"There is no record {ids[-1]} in {deployment.table}: check --namespace; "
            "it may never have been claimed, or its record has expired."
        )
        terminal.answer({"key": deployment.key_of(ids[-1]), "id": ids[-1], "status": None}, Text(clean(told)))
        raise typer.Exit(Exit.LEFT)
    values = report.record_values(
        found, deployment.key_of(found.id), terminal.clock.epoch_ms(), deployment.retention_seconds
    )
    terminal.answer(values, report.record_table(values))


@app.command(epilog=examples("receiver stuck --stack transfers --yes"))
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

    It scans the whole table, and a scan pays for every item: its cost is told before it starts. Where a
    namespace is known, only its records count, and that it has none is an error: it may be misspelt.
    """
    store, options = deployment.store, deployment.options
    cost = cost_of(deployment.dynamodb, deployment.table)
    terminal.note(
        f"A scan of {deployment.table} reads about {counted(cost.items, 'item')}, {cost.size_bytes / 1e6:.1f} MB: "
        f"{counted(cost.read_units, 'read unit')}, in {cost.read_units / rate:.0f} s at {rate:g} a second. "
        "DynamoDB counts items every six hours or so."
    )
    if not terminal.agreed("Scan?", yes=yes):
        terminal.answer({"confirmed": False}, Text("Nothing was scanned."))
        raise typer.Exit(Exit.LEFT)
    now_ms = terminal.clock.epoch_ms()
    survey = Survey(now_ms, most=top, prefix=deployment.prefix)
    item_bytes = max(SMALLEST_ITEM, cost.size_bytes / max(1, cost.items))
    pages = scan(
        deployment.dynamodb,
        deployment.table,
        terminal.clock,
        units_a_second=rate,
        page_items=max(1, min(1000, int(rate * BYTES_A_UNIT / item_bytes))),
    )
    with terminal.stoppable() as stopped, terminal.progress("scanning", cost.items or None) as tell:
        for page in pages:
            survey.take(page)
            tell(survey.found.scanned, max(cost.items, survey.found.scanned))
            if stopped():
                break
        halted = stopped()
    survey.confirm(store)
    values = report.findings_values(
        survey.found, deployment.namespace, deployment.key_of, now_ms, deployment.retention_seconds
    )
    terminal.answer({**values, "confirmed": True, "complete": not halted}, report.findings_tables(values, options))
    if halted:
        raise typer.Exit(Exit.STOPPED)
    if survey.found.scanned and not survey.found.own:
        terminal.note("A namespace that no record is in may be misspelt: check --namespace.")
        raise typer.Exit(Exit.LEFT)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that the arguments name, and exit. No traceback for what an operator can mend."""
    terminal = Terminal()
    try:
        app(args=None if arguments is None else list(arguments), prog_name="receiver")
    except Refused as error:
        terminal.note(f"receiver: {error}")
        sys.exit(Exit.USAGE)
    except (ClientError, BotoCoreError) as error:
        terminal.note(f"receiver: {error} (see --region, --profile, --endpoint-url, and what the operator is allowed)")
        sys.exit(Exit.AWS)
    except KeyboardInterrupt:
        sys.exit(Exit.STOPPED)
    raise AssertionError("click exits by itself")


if __name__ == "__main__":
    main()
