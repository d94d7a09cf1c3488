"""The command `receiver init`: creates a complete project, or nothing."""

import keyword
import re
import sys
import tempfile
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Annotated

import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.terminal import Terminal, interruptible
from idempotent_receiver.operations.starter.project import WATCH, Project, contents, watch
from idempotent_receiver.operations.starter.senders import SendingService
from idempotent_receiver.operations.starter.source import source, vendor
from idempotent_receiver.transaction.outbox import STAMP

NAME = re.compile(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*")
MOST_CHARACTERS = 48
"""Limit for a project's name: Lambda's limit is 64, and function names of further consumers are longer."""
QUEUE_ARN = re.compile(r"arn:[a-z-]+:sqs:[a-z0-9-]+:[0-9]{12}:[A-Za-z0-9_-]{1,80}(\.fifo)?")
PLAIN_PATH = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
USED = ("customer", "cents")
ATTRIBUTE = re.compile(r"(?!(?i:aws|amazon)\.)[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")
"""Attribute names that SQS accepts."""
STRATEGIES = "message_id, body_field:PATH or message_attribute:NAME"
OURS = frozenset({"conftest", "test", "test_handler", "tests"})
"""Module names that the project's tests take, and Python's own `test`, which `sys.stdlib_module_names` omits."""
TOOLS = """
attr attrs defusedxml graphql greenlet h11 h2 hpack hypercorn hyperframe iniconfig jsonata jsonschema
jsonschema_specifications ministack packaging pluggy priority py pytest referencing rpds samtranslator wsproto yaml
"""
"""Packages that `make test` and `make local` use; this command does not need them."""


def init(
    *,
    name: Annotated[str, typer.Argument(help="The project's name, used for its folder, stack and Python package.")],
    fifo: Annotated[bool, typer.Option("--fifo", help="Use a FIFO queue.")] = False,
    asynchronous: Annotated[bool, typer.Option("--async", help="Use an `async def` handler.")] = False,
    key: Annotated[str, typer.Option(help=f"The source of keys: {STRATEGIES}.")] = "message_id",
    queue_arn: Annotated[
        str | None, typer.Option(help="Consume this existing queue instead of a new one.", show_default=False)
    ] = None,
    source: Annotated[
        SendingService | None,
        typer.Option(help="The service that sends to the queue; its event's id is the key.", show_default=False),
    ] = None,
    container: Annotated[
        bool,
        typer.Option("--container", help="Add an image to run outside Lambda, and a Kubernetes manifest."),
    ] = False,
    sql: Annotated[
        bool, typer.Option("--sql", help="Write to PostgreSQL, MySQL or SQLite: no DynamoDB, and no claims.")
    ] = False,
    update: Annotated[
        bool, typer.Option("--update", help=f"Only replace {WATCH} in an existing project with this version's file.")
    ] = False,
) -> None:
    """Create a project with a consumer of your own.

    The folder has a handler, a template, tests and events. `make test`, `make local` and `make deploy` work in it.
    """
    folder = Path.cwd() / name
    if update:
        _update(folder)
        return
    if source is not None:
        _require_possible(source, key, fifo=fifo, queue_arn=queue_arn)
    if sql and asynchronous:
        raise UsageError("--sql lends a session to a plain function: omit --async")
    project = Project(
        name=_name(name),
        fifo=fifo or (queue_arn or "").endswith(".fifo"),
        asynchronous=asynchronous,
        key=_key(key) if source is None or key != "message_id" else ("event_id", ""),
        queue_arn=_queue(queue_arn, fifo),
        container=container,
        source=source,
        sql=sql,
    )
    if folder.exists():
        raise UsageError(f"{folder} exists: choose another name, or run this in another folder")
    try:
        with interruptible():
            _make(project, folder)
    except OSError as error:
        raise UsageError(f"{folder} cannot be created: {error.strerror or error}") from None
    Terminal().note(f"Created {name}/. Next: cd {name} && make test")


def _make(project: Project, folder: Path) -> None:
    """Write the project next to its destination, then move it there once it is complete."""
    with tempfile.TemporaryDirectory(prefix=f".{project.name}-", dir=folder.parent) as beside:
        made, built = Path(beside, project.name), Path(beside, "wheel")
        made.mkdir()
        origin = source(built)
        for path, text in contents(project, requirement=origin.plain, requirement_dev=origin.full).items():
            (made / path).parent.mkdir(parents=True, exist_ok=True)
            (made / path).write_text(text)
        if origin.wheel is not None:
            vendor(origin.wheel, made)
        made.rename(folder)


def _update(folder: Path) -> None:
    path = folder / WATCH
    if not path.is_file():
        raise UsageError(f"{path} not found: --update needs a project that `receiver init` created")
    path.write_text(watch())


def _name(name: str) -> str:
    if not NAME.fullmatch(name) or len(name) > MOST_CHARACTERS:
        raise UsageError(
            f"{name!r} is not a valid project name: use at most {MOST_CHARACTERS} lower-case letters, digits, - and _, "
            "and begin with a letter, as in order-totals"
        )
    package = name.replace("-", "_")
    if keyword.iskeyword(package) or package in OURS:
        raise UsageError(f"{package!r} cannot be the name of the project's Python package: choose another name")
    if package in {*sys.stdlib_module_names, *packages_distributions(), *TOOLS.split(), "idempotent_receiver"}:
        raise UsageError(f"{package!r} would hide an installed Python package: choose another name")
    return name


def _key(text: str) -> tuple[str, str]:
    strategy, _, argument = text.partition(":")
    if text != "message_id" and (strategy not in ("body_field", "message_attribute") or not argument):
        raise UsageError(f"--key {text} is not a key strategy: use {STRATEGIES}")
    if strategy == "body_field" and (not PLAIN_PATH.fullmatch(argument) or argument.partition(".")[0] in USED):
        raise UsageError(
            f"--key {text}: init creates sample orders whose key is a field such as order_id or order.id, and their "
            f"{' and '.join(USED)} fields cannot be keys: choose another field now, and change the handler's key later"
        )
    if strategy == "message_attribute" and (not ATTRIBUTE.fullmatch(argument) or argument == STAMP):
        raise UsageError(
            f"--key {text}: the name of a message attribute has letters, digits, _, - and single inner dots, does not "
            f"begin with AWS. or Amazon., and is not {STAMP}, which the library writes itself"
        )
    return strategy, argument


def _require_possible(source: SendingService, key: str, *, fifo: bool, queue_arn: str | None) -> None:
    if fifo:
        raise UsageError(f"--source {source} is for a standard queue: omit --fifo")
    if queue_arn is not None:
        raise UsageError(f"--source {source} needs a queue of this template, whose policy it extends: omit --queue-arn")
    if key.startswith("message_attribute") or (source is SendingService.S3 and key != "message_id"):
        raise UsageError(f"--key {key}: the messages of {source} have no such key; omit --key to use the event's id")


def _queue(arn: str | None, fifo: bool) -> str | None:
    if arn is None:
        return None
    if not QUEUE_ARN.fullmatch(arn):
        raise UsageError(f"--queue-arn {arn}: a queue ARN looks like arn:aws:sqs:us-east-1:123456789012:orders")
    if fifo and not arn.endswith(".fifo"):
        raise UsageError(
            f"--queue-arn {arn} is not a FIFO queue: omit --fifo, or give a queue whose name ends with .fifo"
        )
    return arn
