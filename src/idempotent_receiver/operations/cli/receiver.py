"""The operator's command, `receiver`: its subcommands and exit codes. Never deployed."""

import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, NoReturn

try:
    import typer
except ImportError:  # pragma: no cover  # installed in the tests
    sys.stderr.write(
        "receiver needs the [cli] extra: pip install 'idempotent-receiver[cli]', "
        "or pip install '.[cli]' in a checkout\n"
    )
    sys.exit(2)  # the exit code of any usage error; `Exit` itself needs the missing package

from botocore.exceptions import BotoCoreError, ClientError

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import dlq
from idempotent_receiver.operations.cli.describe import describe
from idempotent_receiver.operations.cli.dlq_list import list_dead_letters
from idempotent_receiver.operations.cli.doctor import doctor
from idempotent_receiver.operations.cli.documentation import address
from idempotent_receiver.operations.cli.history import history
from idempotent_receiver.operations.cli.init import init
from idempotent_receiver.operations.cli.local import local
from idempotent_receiver.operations.cli.pause import pause, resume
from idempotent_receiver.operations.cli.records import stuck
from idempotent_receiver.operations.cli.terminal import EXIT_CODES, Exit, Terminal, examples
from idempotent_receiver.operations.cli.trace import trace
from idempotent_receiver.operations.cli.work import work
from idempotent_receiver.operations.dead_letters.history import NotKept

_DOCUMENTATION = "" if (found := address()) is None else f"\n\nDocumentation: {found}"

app = typer.Typer(
    name="receiver",
    help=f"Operate consumers whose messages take effect once.\n\n{EXIT_CODES}{_DOCUMENTATION}",
    epilog=examples("receiver dlq list --stack transfers"),
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
dlq.app.command(
    epilog=examples(
        "receiver dlq history --stack transfers --since 2h",
        "receiver dlq history --stack transfers --verb moved --verb dropped",
    )
)(history)
dlq.app.command(
    name="list",
    epilog=examples(
        "receiver dlq list --stack transfers",
        "receiver dlq list --stack transfers --group ConnectionError@app.ledger",
        "receiver dlq list --stack transfers --since 2h --out letters.html",
        "receiver dlq list --stack transfers --bodies --out letters.jsonl",
    ),
)(list_dead_letters)
app.add_typer(dlq.app, name="dlq")
app.command(
    epilog=examples(
        "receiver init orders",
        "receiver init refunds --fifo --key body_field:refund_id",
        "receiver init uploads --source s3",
    )
)(init)
app.command(epilog=examples("receiver describe orders:handler"))(describe)
app.command(
    epilog=examples("receiver doctor --stack transfers", "receiver doctor --stack transfers --consumer orders:handler")
)(doctor)
app.command(epilog=examples("receiver local template.yaml"))(local)
app.command(
    epilog=examples("receiver pause --stack transfers --yes", "receiver pause --queue transfers --function transfers")
)(pause)
app.command(epilog=examples("receiver resume --stack transfers --yes"))(resume)
app.command(epilog=examples("receiver stuck --stack transfers --yes"))(stuck)
app.command(
    epilog=examples(
        "receiver trace 5f2c1d64-0001-4000-8000-000000000001 --stack transfers",
        "receiver trace 5f2c1d64-0001-4000-8000-000000000001 --table records",
    )
)(trace)
app.command(epilog=examples("receiver work QUEUE_URL orders:handler --processes 4"))(work)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"receiver {version('idempotent-receiver')}")
        raise typer.Exit


@app.callback()
def _receiver(
    *,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command that the arguments name, and exit. Errors that an operator can fix show no traceback."""
    terminal = Terminal()
    try:
        app(args=None if arguments is None else list(arguments), prog_name="receiver")
    except UsageError as error:
        terminal.note(f"receiver: {error}")
        sys.exit(Exit.USAGE)
    except NotKept as error:
        terminal.note(f"receiver: {error}")
        sys.exit(Exit.AWS)
    except (ClientError, BotoCoreError) as error:
        terminal.note(f"receiver: {error} (see --region, --profile, --endpoint-url, and your permissions)")
        sys.exit(Exit.AWS)
    except KeyboardInterrupt:
        sys.exit(Exit.STOPPED)
    except Exception:  # noqa: BLE001  # a bug, which scripts must not mistake for a result
        traceback.print_exc()
        sys.exit(Exit.CRASHED)
    raise AssertionError("click exits by itself")
