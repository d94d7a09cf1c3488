"""What `make run` says to the person who started it. The last line, for programs, is not from here."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.books import Books
    from local.play import Progress
    from local.story import Story

WIDTH_OFF_SCREEN = 120


class Show:
    """The console of one run."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=WIDTH_OFF_SCREEN)

    def title(self, number: int, seed: int, *, protected: bool) -> None:
        """Say what is about to be played."""
        handler = "the shipped consumer" if protected else "a plain partial-batch handler, the control"
        self._console.print(f"[bold]{number} transfers, seed {seed}[/]: from the queue to the ledger by {handler}\n")

    def step(self, what: str) -> Callable[[str], None]:
        """Begin a step; return how to say what came of it, along with the time that it took."""
        begun = time.monotonic()

        def said(result: str) -> None:
            self._line(what, f"{result} [dim]({time.monotonic() - begun:.1f} s)[/]")

        return said

    def opened(self, story: Story) -> None:
        """Say what is expected, before anything is sent."""
        self._line(
            "expected",
            f"{len(story.completed)} completed, {len(story.dead_lettered)} dead-lettered, by the seed alone; "
            f"{len(story.opening)} accounts opened with {sum(story.opening.values()):,} cents",
        )

    def note(self, text: str) -> None:
        """Say something that a reader must know."""
        self._line("note", text)

    @contextlib.contextmanager
    def progress(self, number: int) -> Iterator[Callable[[Progress], None]]:
        """Show how far the queue is."""
        columns = (
            TextColumn("  [cyan]{task.description:<12}[/]"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
        )
        with Bar(*columns, console=self._console) as bar:
            task = bar.add_task("out of queue", total=number, state="")

            def said(seen: Progress) -> None:
                state = (
                    f"{seen.queue.waiting} waiting · {seen.queue.in_flight} in flight · "
                    f"{seen.dead_letters.total} dead letters · {seen.delivered_again} redelivered"
                )
                bar.update(task, completed=max(0, seen.sent - seen.queue.total), state=state)

            yield said

    def gave_up(self, why: str | None) -> None:
        """Say what was waited for in vain, if anything was."""
        if why is not None:
            self._console.print(Text(f"  gave up waiting: {why}", style="bold red"))

    def failed(self, why: str) -> None:
        """Say why there are no books."""
        self._console.print(Text(why, style="bold red"))

    def books(self, books: Books) -> None:
        """Show everything that was counted, and what each number means."""
        self._console.print()
        self._console.print(_messages(books))
        self._console.print(_money(books))
        for complaint in books.complaints:
            self._console.print(Text(f"  ✗ {complaint}", style="bold red"))
        if not books.complaints:
            self._console.print(Text("  ✓ every message took effect once, or says why it did not", style="bold green"))
        self._console.print()

    def _line(self, what: str, text: str) -> None:
        line = Table.grid(padding=(0, 1))
        line.add_column(style="cyan", width=15)
        line.add_column()
        line.add_row(f"  {what}", text)
        self._console.print(line)


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 1))
    table.add_column(justify="right", style="bold", min_width=9)
    table.add_column(min_width=36, no_wrap=True)
    table.add_column(style="dim")
    return table


def _messages(books: Books) -> Table:
    table = _table("Messages")
    rows = [
        (len(books.sent), "sent", "to the queue, or asked for over HTTP, each to be posted once"),
        (
            len(books.completed),
            "completed",
            f"posted in the ledger, and known as done; {len(books.story.completed)} expected",
        ),
        (books.duplicates, "duplicates recognised", "deliveries of what was done already, that ran nothing"),
        (
            books.found_in_progress,
            "found in progress",
            "deliveries of what another worker was busy with, that ran nothing",
        ),
        (books.replayed, "requests replayed", "asked for again over HTTP, and answered as before"),
        (books.taken_over, "taken over", "from a worker that died, once its lease had ended"),
        (books.retried, "retried", "after the handler had failed"),
        (len(books.dead_lettered), "dead-lettered", _letters(books)),
        *((count, f"  {kind}", reason) for count, kind, reason in books.reasons),
        (books.overlaps, "overlaps", "handlers started while another's lease was live"),
        (books.doubled, "doubled", f"outside calls for what was done already, of {books.calls} calls"),
        (books.lost, "lost", "out of the queue, with nothing done and no dead letter"),
        (books.unaccounted, "unaccounted", "still queued, half done, or in two places"),
    ]
    for number, what, meaning in rows:
        table.add_row(f"{number:,}", what, meaning)
    return table


def _letters(books: Books) -> str:
    text = f"with a reason; {len(books.story.dead_lettered)} expected"
    if books.surplus_letters:
        text += f" (and {books.surplus_letters} once more, their worker having died before it could say so)"
    return text


def _money(books: Books) -> Table:
    table = _table("\nBooks")
    table.add_row(f"{sum(books.story.opening.values()):,}", "cents before", "the sum of all balances")
    table.add_row(f"{sum(books.closing.values()):,}", "cents after", "the same")
    table.add_row(f"{len(books.entries):,}", "entries", f"two for each of {len(books.posted):,} transfers posted")
    verdict = "every account is where its entries say" if books.balanced else "accounts and entries disagree"
    table.add_row("yes" if books.balanced else "NO", "balanced", verdict)
    return table
