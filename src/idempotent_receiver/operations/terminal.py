"""What all commands share: the options that say which consumer is meant, output, questions, signals, exit codes."""

import inspect
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import wraps
from types import FrameType
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from idempotent_receiver.clock import Clock, SystemClock
from idempotent_receiver.operations.deployment import STRATEGIES, Account, Deployment, Flags, Refused
from idempotent_receiver.operations.layout import clean

WIDTH_OF_A_PIPE = 160
MOST_QUESTIONS = 3

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Confirm beforehand.")]


class Exit(IntEnum):
    """What a command's exit code means."""

    OK = 0
    LEFT = 1
    USAGE = 2
    AWS = 3
    STOPPED = 130


EXIT_CODES = """Exit codes: 0 all is as asked; 1 something was left, not found, or not confirmed;
2 the command line has to say something else; 3 trouble with AWS; 130 stopped."""


def examples(*lines: str) -> str:
    """What stands below a command's help, and is run by the tests."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])


def _console(stream: Any) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else WIDTH_OF_A_PIPE
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


@dataclass
class Terminal:
    """Where a command speaks: its answer on standard output, all else on standard error."""

    as_json: bool = False
    clock: Clock = field(default_factory=SystemClock)
    out: Console = field(default_factory=lambda: _console(sys.stdout))
    err: Console = field(default_factory=lambda: _console(sys.stderr))

    def answer(self, values: dict[str, Any], shown: RenderableType) -> None:
        """The command's answer: one JSON document, or what people read."""
        if self.as_json:
            sys.stdout.write(json.dumps(values, ensure_ascii=False, indent=2) + "\n")
        else:
            self.out.print(shown)

    def show(self, shown: RenderableType) -> None:
        """Something for people before the answer."""
        (self.err if self.as_json else self.out).print(shown)

    def note(self, text: str) -> None:
        """A warning or a remark."""
        self.err.print(clean(text))

    def agreed(self, question: str, *, yes: bool) -> bool:
        """Whether the operator agrees; nobody there to ask means no."""
        if yes:
            return True
        # A question is left by Ctrl-C at once, whatever is noted elsewhere.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            agreed = self._asked(question)
        except KeyboardInterrupt:
            self.err.print()
            agreed = False
        finally:
            signal.signal(signal.SIGINT, before)
        if not agreed:
            self.note("Not confirmed: nothing was done. --yes confirms beforehand.")
        return agreed

    def _asked(self, question: str) -> bool:
        for _ in range(MOST_QUESTIONS):
            self.err.print(f"{question} [y/N] ", end="")
            self.err.file.flush()
            answer = sys.stdin.readline()
            if not answer:
                # It has ended, by Ctrl-D or as a file does: what is said next must not stand behind the question.
                self.err.print()
            if answer.strip().casefold() in ("y", "yes"):
                return True
            if answer.strip().casefold() in ("", "n", "no"):
                return False
        return False

    @contextmanager
    def stoppable(self) -> Iterator[Callable[[], bool]]:
        """In the block, a first Ctrl-C or SIGTERM is only noted, for the work to stop between two requests."""
        noted: list[int] = []

        def note(number: int, frame: FrameType | None) -> None:
            if noted:
                raise KeyboardInterrupt
            noted.append(number)
            # Not by sys.stderr: a signal may come while that is being written to, and it refuses to be entered twice.
            with suppress(OSError, ValueError):
                os.write(sys.stderr.fileno(), b"\nstopping after this request; once more to stop at once\n")

        before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield lambda: bool(noted)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Callable[[int, int | None], None]]:
        """A progress bar, where there is somebody to see it; to be told what is done, and of how much."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        hidden = self.as_json or not self.err.is_terminal
        with Progress(*columns, console=self.err, disable=hidden, transient=True) as bar:
            # Nothing to do is not drawn as an empty bar.
            task = bar.add_task(what, total=total, visible=total != 0)

            def tell(done: int, of: int | None) -> None:
                bar.update(task, completed=done, total=of, visible=of != 0)

            yield tell


@dataclass(frozen=True)
class _Option:
    """An option of every command."""

    name: str
    help: str
    type: Any = str
    default: Any = None
    group: str = "Which consumer"

    @property
    def flag(self) -> str:
        """As it is typed."""
        return f"--{self.name.replace('_', '-')}"

    def parameter(self) -> inspect.Parameter:
        option = typer.Option(self.flag, help=self.help, show_default=False)
        kind = self.type if self.default is not None else self.type | None
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=self.default, annotation=Annotated[kind, option]
        )


_OPTIONS = (
    _Option("stack", "The CloudFormation stack that has all of this in its outputs."),
    _Option("queue", "Its queue: URL, ARN or name."),
    _Option(
        "dlq", "Its dead-letter queue: URL, ARN or name; else the stack's, or what the queue's redrive policy names."
    ),
    _Option("table", "The table of its records."),
    _Option("namespace", "Its store's namespace."),
    _Option("key_strategy", f"Where its keys come from: {STRATEGIES}."),
    _Option("envelope", "Its envelope: a JMESPath expression."),
    _Option("retention_days", "How long its records last; 30 unless told otherwise.", float),
    _Option("region", "The AWS region."),
    _Option("profile", "The AWS profile."),
    _Option("endpoint_url", "Another endpoint for all of AWS."),
    _Option("json", "Answer with one JSON document.", bool, False),
)


def of_a_deployment(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, which takes a `deployment` and a `terminal`, the options that say which consumer is meant."""
    own = [
        each for each in inspect.signature(command).parameters.values() if each.name not in ("deployment", "terminal")
    ]
    shared = [each.parameter() for each in _OPTIONS]

    @wraps(command)
    def called(**given: Any) -> None:
        for each in _OPTIONS:
            # What a script leaves empty was meant to name something: to look elsewhere instead would be a guess.
            if given[each.name] == "":
                raise Refused(f"{each.flag} is empty: give it a value, or leave it out")
        terminal = Terminal(as_json=given.pop("json"))
        account = Account(**{name: given.pop(name) for name in ("region", "profile", "endpoint_url")})
        flags = Flags(**{each.name: given.pop(each.name) for each in fields(Flags)})
        command(deployment=Deployment(account, flags), terminal=terminal, **given)

    keyword_only = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
    called.__signature__ = inspect.Signature([*keyword_only, *shared])  # type: ignore[attr-defined]  # typer reads it
    called.__annotations__ = {each.name: each.annotation for each in (*own, *shared)}
    return called
