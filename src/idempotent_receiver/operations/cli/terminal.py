"""A command's input and output: answer, notes, questions, progress, signals and exit codes.

Also lays out rows and texts: control characters are escaped, and text that people may copy breaks only if it is
longer than a line.
"""

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import IntEnum
from types import FrameType
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table
from rich.text import Text

from idempotent_receiver.clock import Clock, SystemClock
from idempotent_receiver.operations.text import escaped

COLUMNS = 80
INDENT = "    "
CONTINUED = " \\"
PIPE_WIDTH = 160
MAX_QUESTIONS = 3
BETWEEN_COLUMNS = (0, 2, 0, 0)


class Exit(IntEnum):
    """The exit codes of a command."""

    OK = 0
    LEFT = 1
    USAGE = 2
    AWS = 3
    HELD = 4
    UNKNOWN = 5
    CRASHED = 70
    STOPPED = 130


EXIT_CODES = """Exit codes: 0 success; 1 something was left, not found or not confirmed; 2 usage
error; 3 AWS refused or failed; 4 another session holds dead letters: run the
command again later; 5 what a promise needs could not be checked; 70 internal
error; 130 stopped."""

SCHEMA = 1
"""The version of the JSON output. It increases when a change would break existing scripts."""


def _console(stream: Any) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


@contextmanager
def interruptible() -> Iterator[None]:
    """Within the block, SIGTERM and a closed terminal act like Ctrl-C, so that cleanup runs. `nohup` still works."""
    told = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, signal.default_int_handler) for each in told}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@dataclass
class Terminal:
    """The answer goes to standard output, everything else to standard error."""

    as_json: bool = False
    answered: bool = False
    clock: Clock = field(default_factory=SystemClock)
    out: Console = field(default_factory=lambda: _console(sys.stdout))
    err: Console = field(default_factory=lambda: _console(sys.stderr))

    def answer(self, values: dict[str, Any], shown: RenderableType) -> None:
        """Print the command's result: one JSON document, or text for people."""
        self.answered = True
        if self.as_json:
            text = json.dumps({"schema": SCHEMA, **values}, ensure_ascii=False, indent=2)
            sys.stdout.write("".join(map(_in_json, text)) + "\n")
        else:
            self.out.print(shown)

    def show(self, shown: RenderableType) -> None:
        """Show something to people before the answer."""
        (self.err if self.as_json else self.out).print(shown)

    def note(self, text: str) -> None:
        """Print a warning or a remark."""
        self.err.print(clean(text))

    def confirm(self, question: str, *, yes: bool) -> bool:
        """Ask for confirmation. Without a terminal, the answer is no."""
        confirmed = yes or self._asked(question)
        if not confirmed:
            self.note("Not confirmed: nothing was done. --yes confirms in advance.")
        return confirmed

    def offer(self, question: str) -> bool:
        """Ask about something optional. Without a terminal, the answer is no."""
        return sys.stdin.isatty() and self._asked(question)

    def _asked(self, question: str) -> bool:
        # Ctrl-C ends a question at once, even within `stoppable`, which otherwise only notes it.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            for _ in range(MAX_QUESTIONS):
                answer = self.err.input(f"{question} [y/N] ", markup=False, emoji=False, stream=sys.stdin)
                if not answer:
                    # After end of input (Ctrl-D, or the end of a file), the next output needs its own line.
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
        """Within the block, the first Ctrl-C or SIGTERM only makes the yielded function return True, so that work can
        stop between two requests.
        """
        noted: list[int] = []

        def note(number: int, frame: FrameType | None) -> None:
            if noted:
                raise KeyboardInterrupt
            noted.append(number)
            # Not sys.stderr: a signal may arrive during a write to it, and it is not reentrant.
            with suppress(OSError, ValueError):
                os.write(sys.stderr.fileno(), b"\nstopping after this request; press Ctrl-C again to stop at once\n")

        before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield lambda: bool(noted)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Callable[[int, int | None], None]]:
        """A progress bar, if there is a terminal. Yields a function that takes the amount done and the total."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        hidden = self.as_json or not self.err.is_terminal
        with Progress(*columns, console=self.err, disable=hidden, transient=True) as bar:
            # Avoids an empty bar when there is nothing to do.
            task = bar.add_task(what, total=total, visible=total != 0)
            yield lambda done, of: bar.update(task, completed=done, total=of, visible=of != 0)


def _in_json(sign: str) -> str:
    return sign if sign.isprintable() or sign == "\n" else json.dumps(sign)[1:-1]


def clean(text: object) -> str:
    """Untrusted text with its control characters escaped; empty for None."""
    return escaped(text)


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where needed."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def moment(epoch_ms: int) -> str:
    """A time in ISO 8601, UTC."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def command(*parts: str) -> str:
    """A command to type, on as many lines as needed. No argument is split, and a shell joins the lines."""
    lines = [INDENT + parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + len(CONTINUED) < COLUMNS:
            lines[-1] += f" {part}"
        else:
            lines[-1] += CONTINUED
            lines.append(f"{INDENT}  {part}")
    return clean("\n".join(lines))


def table_of(*columns: str) -> Table:
    """A table of counts and their labels."""
    table = Table.grid(Column(justify="right"), *(Column(overflow="fold") for _ in columns), padding=BETWEEN_COLUMNS)
    table.add_row(*map(Text, ("count", *columns)), style="bold")
    return table


def listing(columns: Sequence[str], rows: Sequence[tuple[Sequence[object], Sequence[str | None]]]) -> RenderableType:
    """Rows of cells to copy, with each row's texts below it.

    If one row is too long, all rows, including the header, wrap between cells. A key breaks only if it is longer than a
    line.
    """
    cleaned = [[clean(cell) for cell in cells] for cells, _ in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cleaned, strict=True)]
    shown: list[RenderableType] = [line(columns, widths, style="bold")]
    for cells, (_, texts) in zip(cleaned, rows, strict=True):
        shown.append(line(cells, widths))
        shown += [Padding.indent(Text(clean(text), overflow="fold"), 2) for text in texts if text]
    return Group(*shown)


def line(cells: Sequence[str], widths: Sequence[int], style: str = "") -> Text:
    """A line of cells that wraps between them."""
    padded = (set_cell_size(cell, max(width, cell_len(cell))) for cell, width in zip(cells, widths, strict=True))
    return Text("  ".join(padded).rstrip(), style=style, overflow="fold")


def flag(name: str) -> str:
    """The command-line option for a parameter."""
    return f"--{name.replace('_', '-')}"


def typed(**given: object) -> list[str]:
    """Options with their values, quoted for a shell; unset ones are left out."""
    return [f"{flag(name)} {shlex.quote(str(value))}" for name, value in given.items() if value is not None]


def examples(*lines: str) -> str:
    """The examples below a command's help; the tests run them."""
    return "\n".join(["\b", "Example:" if len(lines) == 1 else "Examples:", *(f"  {line}" for line in lines)])
