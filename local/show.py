"""What `make run` says to the person who started it. The last line, for programs, is not from here."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from rich.table import Table

from local.console import Terminal, table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from local.books import Books
    from local.play import Progress
    from local.story import Story

WIDTH = 36


class Show(Terminal):
    """The console of one run."""

    def title(self, number: int, seed: int, *, protected: bool) -> None:
        """Say what is about to be played."""
        handler = "the shipped consumer" if protected else "a plain partial-batch handler, the control"
        self.begin(f"{number} transfers, seed {seed}", f"from the queue to the ledger by {handler}")

    def begin(self, what: str, how: str) -> None:
        """Say what is about to be played, and by what."""
        self._console.print(f"[bold]{what}[/]: {how}\n")

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
        with self.counted("out of queue", number) as count:

            def said(seen: Progress) -> None:
                state = (
                    f"{seen.queue.waiting} waiting · {seen.queue.in_flight} in flight · "
                    f"{seen.dead_letters.total} dead letters · {seen.delivered_again} redelivered"
                )
                count(seen.sent - seen.queue.total, state)

            yield said

    def gave_up(self, why: str | None) -> None:
        """Say what was waited for in vain, if anything was."""
        if why is not None:
            self.failed(f"  gave up waiting: {why}")

    def books(self, books: Books) -> None:
        """Show everything that was counted, and what each number means."""
        self._console.print()
        self._console.print(_messages(books))
        self._console.print(_money(books))
        self.verdict(books.complaints, "every message took effect once, or says why it did not")

    def _line(self, what: str, text: str) -> None:
        line = Table.grid(padding=(0, 1))
        line.add_column(style="cyan", width=15)
        line.add_column()
        line.add_row(f"  {what}", text)
        self._console.print(line)


def _messages(books: Books) -> Table:
    rows: list[tuple[int, str, str]] = [
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
    return table("Messages", rows, width=WIDTH)


def _letters(books: Books) -> str:
    text = f"with a reason; {len(books.story.dead_lettered)} expected"
    if books.surplus_letters:
        text += f" (and {books.surplus_letters} once more, their worker having died before it could say so)"
    return text


def _money(books: Books) -> Table:
    verdict = "every account is where its entries say" if books.balanced else "accounts and entries disagree"
    rows = [
        (sum(books.story.opening.values()), "cents before", "the sum of all balances"),
        (sum(books.closing.values()), "cents after", "the same"),
        (len(books.entries), "entries", f"two for each of {len(books.posted):,} transfers posted"),
        ("yes" if books.balanced else "NO", "balanced", verdict),
    ]
    return table("\nBooks", rows, width=WIDTH)
