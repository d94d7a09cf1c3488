"""What `make chaos` says to the person who started it. The last line, for programs, is not from here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tests.chaos.faults import names

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from tests.chaos.books import Books

WIDTH_OFF_SCREEN = 120


class Show:
    """The console of one run."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=WIDTH_OFF_SCREEN)

    def title(self, number: int, seed: int, workers: int, *, protected: bool) -> None:
        """Say what is about to happen."""
        handler = "the shipped consumer" if protected else "a plain partial-batch handler, the control"
        self._console.print(f"[bold]{number:,} messages, seed {seed}[/]: {workers} workers run {handler}")
        self._console.print(
            "[dim]They are killed and frozen, their requests and answers delayed, refused, dropped. The seed says which"
            " and how often;\nwhen, is up to this machine.[/]\n"
        )

    @contextlib.contextmanager
    def progress(self, number: int) -> Iterator[Callable[[int, Counter[str]], None]]:
        """Show how far the queue is, and what has been done to the workers."""
        columns = (
            TextColumn("  [cyan]out of queue[/]"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self._console) as bar:
            task = bar.add_task("", total=number, state="")

            def said(out: int, counts: Counter[str]) -> None:
                state = (
                    f"{counts['Invocation']:,} invocations · {counts['Kill']} killed · "
                    f"{counts['Freeze']} frozen · {counts['Thaw']} back"
                )
                bar.update(task, completed=max(0, out), state=state)

            yield said

    def note(self, text: str) -> None:
        """Say something that a reader must know."""
        self._console.print(f"  [dim]{text}[/]")

    def failed(self, why: str) -> None:
        """Say why there are no books."""
        self._console.print(Text(why, style="bold red"))

    def books(self, books: Books) -> None:
        """Show everything that was counted, and what each number means."""
        for table in (_messages(books), _workers(books), _requests(books), _money(books)):
            self._console.print()
            self._console.print(table)
        self._console.print()
        for complaint in books.complaints:
            self._console.print(Text(f"  ✗ {complaint}", style="bold red"))
        if not books.complaints:
            self._console.print(Text("  ✓ nothing lost, nothing doubled, no two at once, balanced", style="bold green"))
        self._console.print()


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 1))
    table.add_column(justify="right", style="bold", min_width=9)
    table.add_column(min_width=30, no_wrap=True)
    table.add_column(style="dim")
    return table


def _messages(books: Books) -> Table:
    table = _table("Messages")
    rows = [
        (len(books.sent), "sent", "to the queue, each once"),
        (len(books.completed), "completed", f"by table, ledger and log; {len(books.tale.completed):,} expected"),
        (len(books.dead_lettered), "dead-lettered", f"{len(books.tale.dead_lettered):,} expected"),
        (books.lost, "lost", "out of the queue, not done, and no dead letter"),
        (books.acknowledged_early, "acknowledged early", "before they were done, or with the dead letters"),
        (books.doubled, "doubled", "posted twice, or run when they were known as done"),
        (books.overlaps, "overlaps", "runs that began inside another's live lease"),
        (books.unaccounted, "unaccounted", "still queued, half done, or in two places"),
    ]
    return _filled(table, rows)


def _workers(books: Books) -> Table:
    table = _table("Workers")
    line = books.line()
    rows = [
        (line["runs"], "runs of the handler", "by its own log"),
        (books.kills[False], "killed at random", "SIGKILL in the middle of a batch"),
        (books.kills[True], "killed at the time-out", "as Lambda does"),
        (len(books.frozen), "frozen past their leases", "SIGSTOP, and SIGCONT when others had their messages"),
        (books.taken_over, "taken over", "runs of what a worker had begun and never settled, after its lease"),
        (books.duplicates, "duplicates", "deliveries of what was completed"),
        (books.fenced["frozen"], "zombies' writes refused", "by those that had been frozen, over another's claim"),
        (books.fenced["other"], "other late writes refused", "for instance a dead worker's that was under way"),
        (len(books.late_starts), "late starts", "by those that had been frozen, after their own lease: fenced only"),
    ]
    return _filled(table, rows)


def _requests(books: Books) -> Table:
    table = _table("Requests that met with")
    return _filled(table, [(books.injected[name], name, "") for name in names()])


def _money(books: Books) -> Table:
    table = _table("Books")
    table.add_row(f"{sum(books.tale.closing.values()):,}", "cents by the tale", "the sum of all balances")
    table.add_row(f"{sum(books.balances.values()):,}", "cents by the accounts", "the same")
    table.add_row(f"{len(books.entries):,}", "entries", f"two for each of {len(books.tale.posted):,} transfers")
    table.add_row("yes" if books.balanced else "NO", "balanced", "every account, by its entries and by the tale")
    return table


def _filled(table: Table, rows: list[tuple[int, str, str]]) -> Table:
    for number, what, meaning in rows:
        table.add_row(f"{number:,}", what, meaning)
    return table
