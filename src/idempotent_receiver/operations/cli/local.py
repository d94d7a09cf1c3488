"""The command `receiver local`: runs a project's consumer on a local cloud, with duplicate events and killed
workers.
"""

import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from botocore.exceptions import ClientError
from rich.console import Group, RenderableType
from rich.text import Text

from idempotent_receiver.local.cloud import PORT, Ministack, NotInstalled, embedded_cloud
from idempotent_receiver.local.deployment import DeployError
from idempotent_receiver.local.project import LocalProject
from idempotent_receiver.local.runs import Found, TrialRuns
from idempotent_receiver.local.samples import Sample, TrialError, samples_in
from idempotent_receiver.local.server import ServerError
from idempotent_receiver.local.stay import commands, staying
from idempotent_receiver.local.verdict import EffectVerdict
from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, command, counted, interruptible, listing

UNSEEN = (
    "A message that ran twice left nothing to compare in the stack's tables, buckets,\n"
    "topics and other queues. If what it does elsewhere may be repeated, or is given\n"
    "current_claim().idempotency_key, say so with --accept-unseen."
)
CLAIMLESS = (
    "With effects='transaction', two workers may process a message, but only one\n"
    "commits. Outside the Transaction, this command sees only what is in the stack."
)
PLAIN = (
    "This handler does not seem to be decorated with sqs_consumer, so every delivery\n"
    "counts as a run. If it is decorated, an outer decorator lacks functools.wraps."
)
IN_ITS_MODULE = (
    "No consumer was found in this handler, so every delivery counts as a run. Its\n"
    "module has: {names}. Give one of them a function in the template,\n"
    "or use functools.wraps in what decorates it."
)
STAYS_UP = """
The stack is called {stack}, at {at}.
In another terminal, in the project's folder:

{lines}

AWS tools need credentials, and any will do here: AWS_ACCESS_KEY_ID=test and
AWS_SECRET_ACCESS_KEY=test.{missing}

Press Ctrl-C to stop it. Nothing is left behind.
"""
NO_ENGINE = "`sam local` needs a container engine, and none is running: start one, then run this again."
WATCH_SECONDS = 0.2
NOT_COMPARED = "Not compared, because these are times or differ between fault-free runs:"
NOTHING = "Nothing took effect: check that the sample events have the bodies that the handler expects."


def local(
    *,
    template: Annotated[Path, typer.Argument(help="The project's SAM template.")] = Path("template.yaml"),
    events: Annotated[
        Path | None, typer.Option(help="The folder of sample SQS events; by default `events` next to the template.")
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="The consumer's name in the template, if there are several.")
    ] = None,
    parameter: Annotated[list[str] | None, typer.Option(help="A template parameter, NAME=VALUE; repeatable.")] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="Seconds to wait for the queue to empty while workers are killed.")
    ] = 90.0,
    stay: Annotated[
        bool, typer.Option("--stay", help="Only deploy, print useful commands, and run until Ctrl-C.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(min=1, max=65_535, help=f"With --stay: the port; {PORT} by default.")
    ] = None,
    accept_unseen: Annotated[
        bool, typer.Option("--accept-unseen", help="Succeed though effects of messages that ran twice are unseen.")
    ] = False,
    logs: Annotated[bool, typer.Option("--logs", help="Show the function's output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Try a consumer on a local cloud, with duplicates and crashes.

    Deploys the template on this machine and sends the sample events three times: without faults, with one failure in a
    batch, and with duplicates and killed workers. From the records, and the stack's tables, buckets, topics and other
    queues, it reports whether each message took effect once, twice or never. It takes about a minute and leaves nothing
    behind.

    With --stay, it only deploys, prints commands to try, and runs until Ctrl-C.
    """
    terminal = Terminal(as_json=as_json)
    if port is not None and not stay:
        raise UsageError("--port needs --stay")
    try:
        given = _parameters(parameter or [])
        samples = samples_in(template.parent / "events" if events is None else events)
        with interruptible(), tempfile.TemporaryDirectory(prefix="receiver-local-") as name:
            project = LocalProject(template, Path(name), given)
            if stay:
                _stay(terminal, project, samples[0], PORT if port is None else port)
                return
            found = _tried(terminal, project, samples, function=function, seconds=seconds, logs=logs)
    except (TrialError, DeployError, NotInstalled) as error:
        raise UsageError(str(error)) from None
    except ClientError as error:
        raise UsageError(f"{template} cannot be deployed: {error}") from None
    except ServerError as error:
        terminal.note(f"receiver: {error}")
        raise typer.Exit(Exit.AWS) from None
    found = replace(found, accepts_unseen=accept_unseen)
    values = {
        "messages": [asdict(each) for each in found.messages],
        "workers_killed": found.killed,
        "not_compared": [str(each) for each in found.incomparable],
        "unexplained": [str(each) for each in found.unexplained],
        "missing": found.missing,
        **{each.name.lower(): sum(one.verdict is each for one in found.messages) for each in EffectVerdict},
    }
    terminal.answer(values, verdict_text(found))
    if not found.fine:
        raise typer.Exit(Exit.LEFT)


def _tried(
    terminal: Terminal,
    project: LocalProject,
    samples: Sequence[Sample],
    *,
    function: str | None,
    seconds: float,
    logs: bool,
) -> Found:
    program = Ministack()
    runs = TrialRuns(
        project,
        samples,
        function,
        seconds,
        cloud=lambda: embedded_cloud(program),
        tell=terminal.note,
        progress=terminal.progress,
    )
    try:
        return runs.found()
    finally:
        for what, path in runs.printed if logs else ():
            printed = path.read_text(errors="replace").rstrip("\n") if path.exists() else ""
            terminal.note(f"{what}: the function printed {f'this:{chr(10)}{printed}' if printed else 'nothing'}")


def _stay(terminal: Terminal, project: LocalProject, sample: Sample, port: int) -> None:
    terminal.note(f"building {project.template} and deploying it on a local cloud")
    with suppress(KeyboardInterrupt), staying(project, port) as stays:
        typed = commands(stays, sample)
        values = {
            "endpoint_url": stays.cloud.endpoint_url,
            "stack": stays.stack.name,
            "commands": [" ".join(parts) for _, parts in typed],
        }
        lines = [f"    # {meaning}\n{command(*parts)}" for meaning, parts in typed]
        missing = "" if stays.contained else f"\n\n{NO_ENGINE}"
        shown = STAYS_UP.format(
            stack=stays.stack.name, at=stays.cloud.endpoint_url, lines="\n".join(lines), missing=missing
        )
        if terminal.as_json:
            terminal.answer(values, shown)
        else:
            sys.stdout.write(shown)  # Bypasses rich: text to copy must not be wrapped or cut.
        sys.stdout.flush()
        while stays.cloud.alive:
            terminal.clock.sleep(WATCH_SECONDS)
        raise ServerError("the local cloud stopped unexpectedly")


def _parameters(given: Sequence[str]) -> dict[str, str]:
    pairs = [each.partition("=") for each in given]
    if wrong := [name for name, equals, _ in pairs if not (name and equals)]:
        raise TrialError(f"--parameter {wrong[0]}: write it as NAME=VALUE")
    return {name: value for name, _, value in pairs}


def verdict_text(found: Found) -> RenderableType:
    """How each message ended, and the overall result."""
    rows = [
        (
            (each.name, each.sent, each.deliveries, each.runs, each.record or "none", each.tables or "-", each.verdict),
            (each.why, *each.differs),
        )
        for each in found.messages
    ]
    counts = Counter(each.verdict for each in found.messages)
    summary = ", ".join(f"{counts[each]} {each}" for each in EffectVerdict if counts[each])
    return Group(
        listing(("message", "sent", "delivered", "runs", "record", "effects", "took effect"), rows),
        Text(),
        Text(f"{counted(len(found.killed), 'worker')} killed: {'; '.join(found.killed) or 'no handler finished'}"),
        *map(Text, remarks(found, unseen=EffectVerdict.UNSEEN in counts)),
        Text(f"{counted(len(found.messages), 'message')}: {summary}", style="bold green" if found.fine else "bold red"),
        *([Text(NOTHING)] if {*counts} == {EffectVerdict.DEAD_LETTER} else []),
    )


def remarks(found: Found, *, unseen: bool) -> list[str]:
    """Remarks that the verdicts do not cover."""
    compared = ", ".join(map(str, found.incomparable))
    return [
        *([UNSEEN] if unseen else []),
        *([] if found.inside else [IN_ITS_MODULE.format(names=", ".join(found.named)) if found.named else PLAIN]),
        *([] if found.claims else [CLAIMLESS]),
        *([f"{NOT_COMPARED} {compared}"] if compared else []),
        *(f"No message writes here in fault-free runs: {each}" for each in found.unexplained),
        *found.missing,
    ]
