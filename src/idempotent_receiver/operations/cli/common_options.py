"""The options that every command takes."""

import os
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.terminal import flag

STACK_VARIABLE = "RECEIVER_STACK"
NO_ARCHIVE = "only dlq archive, and dlq redrive with --from-archive, use it"

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]


def _option(help: str) -> Any:
    return typer.Option(help=help)


def not_both(first: str, second: str) -> str:
    """What to type if two options select different consumers."""
    told = f" ({STACK_VARIABLE} is set)" if first == "--stack" and os.environ.get(STACK_VARIABLE) else ""
    return f"give {first}{told} or {second}, not both"


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options that every command takes. Raises UsageError for an empty value."""

    stack: Annotated[
        str | None,
        typer.Option(
            envvar=STACK_VARIABLE,
            help="The consumer's CloudFormation stack; its outputs supply the rest. STACK/ID selects one of several.",
        ),
    ] = None
    queue: Annotated[str | None, _option("The queue: URL, ARN or name.")] = None
    dlq: Annotated[
        str | None,
        _option("The dead-letter queue: URL, ARN or name. Default: from the stack or the queue's redrive policy."),
    ] = None
    table: Annotated[str | None, _option("The records table.")] = None
    history: Annotated[str | None, _option("The history table, which logs every act on a dead letter.")] = None
    archive: Annotated[str | None, _option("The bucket for archived dead letters.")] = None
    consumer: Annotated[
        str | None,
        _option(
            "The consumer's description: a file from `receiver describe`, or module:function to import the handler."
        ),
    ] = None
    region: Annotated[str | None, _option("The AWS region.")] = None
    profile: Annotated[str | None, _option("The AWS profile.")] = None
    endpoint_url: Annotated[str | None, _option("Send all AWS requests to this endpoint.")] = None
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.", show_default=False)] = False

    @property
    def account(self) -> dict[str, str | None]:
        """The options that select the AWS account, by name."""
        return {"region": self.region, "profile": self.profile, "endpoint_url": self.endpoint_url}

    def refuse(self, command: str, **why: str) -> None:
        """Raise UsageError for an option that the command would ignore, with the reason."""
        for name, reason in why.items():
            if getattr(self, name) is not None:
                raise UsageError(f"{command} takes no {flag(name)}: {reason}")

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            # An empty value usually means an unset shell variable. Falling back to another source would be a guess.
            if value == "":
                raise UsageError(f"{flag(name)} is empty: give it a value or omit it")
