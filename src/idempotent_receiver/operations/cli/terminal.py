"""Where a command speaks and listens: its answer, remarks, questions, progress, signals and exit codes."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from types import FrameType
from typing import Any

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from idempotent_receiver.clock import Clock, SystemClock
from idempotent_receiver.operations.cli.layout import clean

PIPE_WIDTH = 160
MAX_QUESTIONS = 3


class Exit(IntEnum):
    """What a command's exit code means."""

    OK = 0
    LEFT = 1
    USAGE = 2
    AWS = 3
    STOPPED = 130


EXIT_CODES = """Exit codes: 0 all is as asked; 1 something was left, not found, or not confirmed;
2 the command line is wrong; 3 AWS refused or failed; 130 stopped."""


def _console(stream: Any) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


@dataclass
class Terminal:
    """The answer goes to standard output, all else to standard error."""

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

    def confirm(self, question: str, *, yes: bool) -> bool:
        """Whether the operator agrees. Nobody there to ask means no."""
        confirmed = yes or self._asked(question)
        if not confirmed:
            self.note("Not confirmed: nothing was done. --yes confirms in advance.")
        return confirmed

    def _asked(self, question: str) -> bool:
        # Ctrl-C leaves a question at once, even where it is otherwise only noted.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for _ in range(MAX_QUESTIONS):
                answer = self.err.input(f"{question} [y/N] ", markup=False, emoji=False, stream=sys.stdin)
                if not answer:
                    # The end of input, by Ctrl-D or of a file: the next output needs a line of its own.
                    self.err.print()
                if (said := answer.strip().casefold()) in ("y", "yes", "", "n", "no"):
                    return said in ("y", "yes")
        except KeyboardInterrupt:
            self.err.print()
        finally:
            signal.signal(signal.SIGINT, before)
        return False

    @contextmanager
    def stoppable(self) -> Iterator[Callable[[], bool]]:
        """In the block, a first Ctrl-C or SIGTERM is only noted, so that the work can stop between two requests."""
        noted: list[int] = []

        def note(number: int, frame: FrameType | None) -> None:
            if noted:
                raise KeyboardInterrupt
            noted.append(number)
            # Not by sys.stderr: a signal may come during a write to it, and it refuses to be entered twice.
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
        """A progress bar, if there is somebody to see it. It yields what to call with how much is done, of how much."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        hidden = self.as_json or not self.err.is_terminal
        with Progress(*columns, console=self.err, disable=hidden, transient=True) as bar:
            # Nothing to do is not drawn as an empty bar.
            task = bar.add_task(what, total=total, visible=total != 0)
            yield lambda done, of: bar.update(task, completed=done, total=of, visible=of != 0)
