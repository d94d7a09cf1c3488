"""The options of every command: which consumer is meant, in which account, and how to answer."""

import shlex
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.sqs import keys

STRATEGIES = "message_id, body_field:PATH or message_attribute:NAME"

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Confirm in advance.")]


def flag(name: str) -> str:
    """An option as it is typed."""
    return f"--{name.replace('_', '-')}"


def typed(**given: object) -> list[str]:
    """Options with their values, quoted for a shell; those that were not given are left out."""
    return [f"{flag(name)} {shlex.quote(str(value))}" for name, value in given.items() if value is not None]


def examples(*lines: str) -> str:
    """The examples below a command's help; the tests run them."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def key_strategy(text: str, option: str = "--key-strategy") -> keys.KeyStrategy:
    """The strategy that an option's text names. Raises UsageError for an unknown one."""
    name, _, argument = text.partition(":")
    if text == "message_id":
        return keys.message_id
    if name == "message_attribute" and argument:
        return keys.message_attribute(argument)
    if name == "body_field" and argument:
        try:
            return keys.body_field(argument)
        except ValueError as error:
            raise UsageError(f"{option} {text}: {error}") from None
    raise UsageError(f"{option} {text} is not known here: use {STRATEGIES}, as in the consumer's code")


def _option(help: str) -> Any:
    return typer.Option(help=help, show_default=False)


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the operator said with every command. Raises UsageError at once for a value that no command understands."""

    stack: Annotated[
        str | None,
        _option("The consumer's CloudFormation stack, whose outputs name the rest; STACK/ID for one of several in it."),
    ] = None
    queue: Annotated[str | None, _option("Its queue: URL, ARN or name.")] = None
    dlq: Annotated[
        str | None,
        _option("Its dead-letter queue: URL, ARN or name; by default as the stack or the queue's redrive policy says."),
    ] = None
    table: Annotated[str | None, _option("The table of its records.")] = None
    namespace: Annotated[str | None, _option("Its store's namespace.")] = None
    key_strategy: Annotated[str | None, _option(f"Where its keys come from: {STRATEGIES}.")] = None
    envelope: Annotated[str | None, _option("Its envelope: a JMESPath expression.")] = None
    retention_days: Annotated[float | None, _option("How long its records last; 30 by default.")] = None
    region: Annotated[str | None, _option("The AWS region.")] = None
    profile: Annotated[str | None, _option("The AWS profile.")] = None
    endpoint_url: Annotated[str | None, _option("Another endpoint for all of AWS.")] = None
    json: Annotated[bool, typer.Option("--json", help="Answer with one JSON document.", show_default=False)] = False

    @property
    def account(self) -> dict[str, str | None]:
        """Those that name the AWS account to work in, as for every AWS tool."""
        return {"region": self.region, "profile": self.profile, "endpoint_url": self.endpoint_url}

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            # A script that leaves a value empty meant to name something: to look elsewhere would be a guess.
            if value == "":
                raise UsageError(f"{flag(name)} is empty: give it a value, or leave it out")
        if self.key_strategy is not None:
            key_strategy(self.key_strategy)
        if self.retention_days is not None and not 0 < self.retention_days < float("inf"):
            raise UsageError(f"--retention-days {self.retention_days:g}: it has to be a positive number")
