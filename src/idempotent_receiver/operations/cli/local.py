"""The command `receiver local`: a project's consumer on a local cloud, its events delivered twice, workers killed."""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from botocore.exceptions import ClientError
from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.local.cloud import Ministack, NotInstalled, embedded_cloud
from idempotent_receiver.local.deployment import NO_ARRIVALS, DeployError
from idempotent_receiver.local.samples import Sample, TrialError, samples_in
from idempotent_receiver.local.server import ServerError
from idempotent_receiver.local.trial import LEASE_MARGIN_SECONDS, Trial, chosen, consumers_of, deployed
from idempotent_receiver.local.verdict import Ended, Evidence, Verdict, fine, judged, kills
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, counted, interruptible, listing

AGAIN = (
    "Whatever a killed run had done outside its Transaction was done twice: pass\n"
    "current_claim().idempotency_key on, so that it counts once there."
)
NOTHING = "Nothing took effect: have the sample events the bodies that the handler expects?"
CLAIMLESS = (
    "With effects='transaction' two workers may run one message, and one commits. What a\n"
    "handler does outside its Transaction is not seen here."
)
PLAIN = (
    "This handler does not seem to be made by sqs_consumer, so every delivery counts\n"
    "as a run. If it is, a decorator around it lacks functools.wraps."
)


def local(
    *,
    template: Annotated[Path, typer.Argument(help="The project's SAM template.")] = Path("template.yaml"),
    events: Annotated[
        Path | None, typer.Option(help="The folder of sample SQS events; by default `events` beside the template.")
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="Which of several consumers, by its name in the template.")
    ] = None,
    parameter: Annotated[list[str] | None, typer.Option(help="A parameter of the template: NAME=VALUE.")] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long to wait for the queue to be empty.")] = 90.0,
    as_json: Annotated[bool, typer.Option("--json", help="Answer with one JSON document.")] = False,
) -> None:
    """Try a consumer on a local cloud, with duplicates and crashes.

    Deploys the template on this machine, sends the sample events, has each delivered at least twice, and kills workers
    in the middle. Then it says what took effect once, twice or never. It takes about half a minute, and leaves nothing.
    """
    terminal = Terminal(as_json=as_json)
    try:
        given = _parameters(parameter or [])
        _require(template)
        samples = samples_in(template.parent / "events" if events is None else events)
        with interruptible():
            found = _tried(terminal, template, samples, parameters=given, function=function, seconds=seconds)
    except (TrialError, DeployError, NotInstalled) as error:
        raise UsageError(str(error)) from None
    except ClientError as error:
        raise UsageError(f"{template} cannot be deployed: {error}") from None
    except ServerError as error:
        terminal.note(f"receiver: {error}")
        raise typer.Exit(Exit.AWS) from None
    messages, died = judged(found), kills(found.lines)
    plain = not any(line["what"] == "consumer" for line in found.lines)
    values = {
        "messages": [asdict(each) for each in messages],
        "workers_killed": died,
        **{each.name.lower(): sum(one.verdict is each for one in messages) for each in Verdict},
    }
    terminal.answer(values, text(messages, died, plain=plain, claims=found.claims))
    if not fine(messages):
        raise typer.Exit(Exit.LEFT)


def _require(template: Path) -> None:
    if not template.is_file():
        raise TrialError(f"there is no template {template}: name yours, as in receiver local path/to/template.yaml")
    try:
        template.read_text()
    except ValueError as error:
        raise TrialError(f"{template} is no text: {error}") from None


def _parameters(given: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise TrialError(f"--parameter {wrong[0]}: write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}


def _tried(
    terminal: Terminal,
    template: Path,
    samples: Sequence[Sample],
    *,
    parameters: Mapping[str, str],
    function: str | None,
    seconds: float,
) -> Evidence:
    with tempfile.TemporaryDirectory(prefix="receiver-local-") as name, embedded_cloud(Ministack()) as cloud:
        folder = Path(name)
        terminal.note(f"building and deploying {template} on a local cloud")
        stack = deployed(cloud, template, folder / "build", parameters)
        if "DeadLetterAlarm" in stack.resources:
            terminal.note(NO_ARRIVALS)
        consumer = chosen(consumers_of(cloud, stack), function)
        trial = Trial(cloud, consumer, folder)
        timeout = trial.prepare()
        terminal.note(f"{consumer.name}: time-out {timeout} s, visibility timeout {timeout + LEASE_MARGIN_SECONDS} s")
        trial.send(samples)
        terminal.note(f"sent {counted(len(samples), 'message')}; workers are killed, so their leases have to end first")
        with terminal.progress("out of queue", len(samples)) as say:
            trial.wait(seconds, say)
        return trial.evidence()


def text(messages: Sequence[Ended], died: Sequence[str], *, plain: bool, claims: bool = True) -> RenderableType:
    """How it ended for each message, and for all."""
    rows = [
        ((each.name, each.sent, each.deliveries, each.runs, each.record or "none", each.verdict), (each.why,))
        for each in messages
    ]
    counts = Counter(each.verdict for each in messages)
    summary = ", ".join(f"{counts[each]} {each}" for each in Verdict if counts[each])
    killed = "; ".join(died) or "no handler came to its end"
    again = any(each.runs > 1 and each.verdict is Verdict.ONCE for each in messages)
    return Group(
        listing(("message", "sent", "delivered", "runs", "record", "took effect"), rows),
        Text(),
        Text(f"{counted(len(died), 'worker')} killed: {killed}", overflow="fold"),
        *([Text(AGAIN)] if again and not plain else []),
        *([Text(PLAIN)] if plain else []),
        *([] if claims else [Text(CLAIMLESS)]),
        Text(f"{counted(len(messages), 'message')}: {summary}", style="bold green" if fine(messages) else "bold red"),
        *([Text(NOTHING)] if {*counts} == {Verdict.DEAD_LETTER} else []),
    )
