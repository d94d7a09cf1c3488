"""The command `receiver doctor`: the checks of a deployed consumer, for people and for scripts."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.operations.account import UsageError, require_table
from idempotent_receiver.operations.cli.command import of_a_deployment
from idempotent_receiver.operations.cli.common_options import NO_ARCHIVE, not_both
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, counted
from idempotent_receiver.operations.doctor.checks import (
    Finding,
    Unchecked,
    check_name,
    checks_of,
    examine,
    notes,
    unknown_promises,
)
from idempotent_receiver.operations.doctor.facts import DeployedConsumer, consumer_of, gather


@of_a_deployment
def doctor(
    *,
    deployment: Deployment,
    terminal: Terminal,
    function: Annotated[str | None, typer.Option(help="The consumer's function, if there is no stack.")] = None,
) -> None:
    """Check a deployed consumer against what the guarantees need.

    Select it by stack, by function, or, for workers outside Lambda, by --queue and --table. With --consumer, doctor
    also compares the stack's description with your code. Each finding includes a remedy. Checks that could not run are
    listed, but are not findings; where a promise needs one, the exit code is 5.
    """
    consumer, client = _consumer(deployment, function), deployment.client
    if consumer.table is not None:
        require_table(client, consumer.table)
    facts = gather(client, consumer)
    names, found, noted = [check_name(check) for check in checks_of(facts)], examine(facts), list(notes(facts))
    values = {
        "checks": names,
        "findings": [asdict(each) for each in found if isinstance(each, Finding)],
        "unchecked": [asdict(each) for each in found if isinstance(each, Unchecked)],
        "notes": noted,
    }
    terminal.answer(values, findings_text(names, found, noted))
    if values["findings"]:
        raise typer.Exit(Exit.LEFT)
    if unknown_promises(found):
        raise typer.Exit(Exit.UNKNOWN)


def _consumer(deployment: Deployment, function: str | None) -> DeployedConsumer:
    options = deployment.options
    own = "it reads the dead-letter queue from the redrive policy"
    options.refuse("doctor", dlq=own, archive=NO_ARCHIVE, history="it reads no history")
    given = {"--stack": options.stack, "--function": function, "--queue": options.queue}
    if len(named := [name for name, value in given.items() if value is not None]) > 1:
        raise UsageError(f"{not_both(*named[:2])}: each selects a consumer")
    if options.stack is not None:
        consumer = consumer_of(deployment.client, options.stack)
    elif function is not None:
        consumer = DeployedConsumer(function=function)
    elif options.queue is not None:
        consumer = DeployedConsumer(queue=deployment.queue.arn, table=deployment.table)
    else:
        raise UsageError("no consumer is selected: give --stack, --function, or --queue and --table")
    return replace(consumer, table=options.table or consumer.table, given=deployment.given)


def findings_text(
    names: Sequence[str], found: Sequence[Finding | Unchecked], noted: Sequence[str] = ()
) -> RenderableType:
    """The report: findings, checks that could not run, notes, and the names of the checks in order."""
    lines: list[Text] = []
    for each in found:
        match each:
            case Finding(check, problem, remedy):
                said = (f"  {clean(problem)}", f"  remedy: {clean(remedy)}")
                lines += [Text(check, style="bold red"), *map(Text, said)]
            case Unchecked(check, why):
                lines += [Text(check, style="bold yellow"), Text(f"  could not be checked: {clean(why)}")]
    lines += [Text(f"note: {clean(each)}") for each in noted]
    in_order = [name for name in names if name not in {each.check for each in found}]
    findings = sum(isinstance(each, Finding) for each in found)
    summary = f"{len(in_order)} passed, {counted(findings, 'finding')}, {len(found) - findings} not checked."
    return Group(*lines, Text(f"passed: {', '.join(in_order) or 'none'}"), Text(f"{len(names)} checks: {summary}"))
