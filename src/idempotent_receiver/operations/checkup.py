"""The command `receiver doctor`: what `inspection.py` gathers and `doctor.py` judges, as people and scripts read it."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.operations.deployment import Deployment, Refused
from idempotent_receiver.operations.doctor import CHECKS, Finding, Unchecked, examine, name_of
from idempotent_receiver.operations.inspection import Consumer, NotFound, gather, of_stack
from idempotent_receiver.operations.layout import clean, counted
from idempotent_receiver.operations.terminal import Exit, Terminal, of_a_deployment

UNUSED = ("queue", "dlq", "namespace", "key_strategy", "envelope")
"""Flags of every command that would be passed over here in silence."""


@of_a_deployment
def doctor(
    *,
    deployment: Deployment,
    terminal: Terminal,
    function: Annotated[str | None, typer.Option(help="The consumer's function, where there is no stack.")] = None,
) -> None:
    """Compare a deployed consumer with what the promises need.

    Each finding comes with its remedy. What could not be checked is said, and is no finding.
    """
    try:
        consumer = _consumer(deployment, function)
        if consumer.table is not None:
            deployment.account.require_table(consumer.table)
        found = examine(gather(deployment.account.client, consumer))
    except NotFound as error:
        raise Refused(str(error)) from None
    terminal.answer(_values(found), text(found))
    if any(isinstance(each, Finding) for each in found):
        raise typer.Exit(Exit.LEFT)


def _consumer(deployment: Deployment, function: str | None) -> Consumer:
    flags = deployment.flags
    unused = [name for name in UNUSED if getattr(flags, name) is not None]
    if unused:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise Refused(f"doctor takes no {options}: it finds the queues by the function's event source mapping")
    if flags.stack is not None and function is not None:
        raise Refused("give --stack or --function, not both: a stack names its function")
    if flags.stack is not None:
        consumer = of_stack(deployment.account.client, flags.stack)
    elif function is not None:
        consumer = Consumer(function=function)
    else:
        raise Refused("say which consumer: give --stack or --function")
    return replace(consumer, table=flags.table or consumer.table, retention_days=flags.retention_days)


def _values(found: Sequence[Finding | Unchecked]) -> dict[str, Any]:
    return {
        "checks": [name_of(check) for check in CHECKS],
        "findings": [asdict(each) for each in found if isinstance(each, Finding)],
        "unchecked": [asdict(each) for each in found if isinstance(each, Unchecked)],
    }


def text(found: Sequence[Finding | Unchecked]) -> RenderableType:
    """The findings, what could not be checked, and by name what is in order."""
    lines: list[Text] = []
    for each in found:
        match each:
            case Finding(check, problem, remedy):
                lines += [
                    Text(check, style="bold red"),
                    Text(f"  {clean(problem)}"),
                    Text(f"  remedy: {clean(remedy)}"),
                ]
            case Unchecked(check, why):
                lines += [Text(check, style="bold yellow"), Text(f"  could not be checked: {clean(why)}")]
    names = [name_of(check) for check in CHECKS]
    in_order = [name for name in names if name not in {each.check for each in found}]
    findings = sum(isinstance(each, Finding) for each in found)
    told = f"{len(in_order)} in order, {counted(findings, 'finding')}, {len(found) - findings} not checked."
    return Group(*lines, Text(f"in order: {', '.join(in_order) or 'none'}"), Text(f"{len(CHECKS)} checks: {told}"))
