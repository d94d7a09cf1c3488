"""What programs of the local cloud say to the person who started them. A last line for programs is not from here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

WIDTH_OFF_SCREEN = 120


class Terminal:
    """The console of one run."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=WIDTH_OFF_SCREEN)

    @contextlib.contextmanager
    def counted(self, what: str, number: int) -> Iterator[Callable[[int, str], None]]:
        """Show how many of a number are done, and how things stand; to be told both."""
        columns = (
            TextColumn("  [cyan]{task.description:<12}[/]"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task(what, total=number, state="")
            yield lambda done, state: bar.update(task, completed=max(0, done), state=state)

    def failed(self, why: str) -> None:
        """Say why there are no books."""
        self._console.print(Text(why, style="bold red"))

    def verdict(self, complaints: Iterable[str], fine: str) -> None:
        """Say what is wrong, or that all is well."""
        found = list(complaints)
        for complaint in found:
            self.failed(f"  ✗ {complaint}")
        if not found:
            self._console.print(Text(f"  ✓ {fine}", style="bold green"))
        self._console.print()


def table(title: str, rows: Iterable[tuple[int | str, str, str]], *, width: int) -> Table:
    """A table of numbers, what each is, and what it means."""
    made = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 1))
    made.add_column(justify="right", style="bold", min_width=9)
    made.add_column(min_width=width, no_wrap=True)
    made.add_column(style="dim")
    for number, what, meaning in rows:
        made.add_row(number if isinstance(number, str) else f"{number:,}", what, meaning)
    return made
