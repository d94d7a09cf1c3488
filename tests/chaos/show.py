"""What `make chaos` says to the person who started it. The last line, for programs, is not from here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from rich.table import Table

from local.console import Terminal, table
from tests.chaos.faults import names

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from tests.chaos.books import Books

WIDTH = 30


class Show(Terminal):
    """The console of one run."""

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
        with self.counted("out of queue", number) as count:

            def said(out: int, counts: Counter[str]) -> None:
                state = (
                    f"{counts['Invocation']:,} invocations · {counts['Kill']} killed · "
                    f"{counts['Freeze']} frozen · {counts['Thaw']} back"
                )
                count(out, state)

            yield said

    def note(self, text: str) -> None:
        """Say something that a reader must know."""
        self._console.print(f"  [dim]{text}[/]")

    def books(self, books: Books) -> None:
        """Show everything that was counted, and what each number means."""
        for shown in (_messages(books), _workers(books), _requests(books), _money(books)):
            self._console.print()
            self._console.print(shown)
        self._console.print()
        self.verdict(books.complaints, "nothing lost, nothing doubled, no two at once, balanced")


def _messages(books: Books) -> Table:
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
    return table("Messages", rows, width=WIDTH)


def _workers(books: Books) -> Table:
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
    return table("Workers", rows, width=WIDTH)


def _requests(books: Books) -> Table:
    return table("Requests that met with", [(books.injected[name], name, "") for name in names()], width=WIDTH)


def _money(books: Books) -> Table:
    rows = [
        (sum(books.tale.closing.values()), "cents by the tale", "the sum of all balances"),
        (sum(books.balances.values()), "cents by the accounts", "the same"),
        (len(books.entries), "entries", f"two for each of {len(books.tale.posted):,} transfers"),
        ("yes" if books.balanced else "NO", "balanced", "every account, by its entries and by the tale"),
    ]
    return table("Books", rows, width=WIDTH)
