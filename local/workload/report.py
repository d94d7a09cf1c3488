"""What a run says to the person who started it, and its last line, which is for programs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from local.workload.driver import Progress
    from local.workload.reconciliation import Reconciliation
    from local.workload.transfers import Workload

WIDTH_OFF_SCREEN = 120
Row = tuple[int | str, str, str]
"""A number, what it counts, and what that means."""


class Report:
    """The console of one run."""

    def __init__(self) -> None:
        console = Console(highlight=False)
        self._console = console if console.is_terminal else Console(highlight=False, width=WIDTH_OFF_SCREEN)

    def begin(self, what: str, how: str) -> None:
        """Say what is about to be run, and by what."""
        self._console.print(f"[bold]{what}[/]: {how}\n")

    def step(self, what: str) -> Callable[[str], None]:
        """Begin a step; return how to say what came of it, along with the time that it took."""
        begun = time.monotonic()
        return lambda result: self._line(what, f"{result} [dim]({time.monotonic() - begun:.1f} s)[/]")

    def opened(self, workload: Workload) -> None:
        self._line(
            "expected",
            f"{len(workload.completed)} completed, {len(workload.dead_lettered)} dead-lettered, by the seed alone; "
            f"{len(workload.opening)} accounts opened with {sum(workload.opening.values()):,} cents",
        )

    def note(self, text: str) -> None:
        self._line("note", text)

    @contextlib.contextmanager
    def progress(self, number: int) -> Iterator[Callable[[Progress], None]]:
        columns = (
            TextColumn("  [cyan]{task.description:<12}[/]"),
            BarColumn(bar_width=20),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
        )
        with Bar(*columns, console=self._console) as bar:
            task = bar.add_task("out of queue", total=number, state="")

            def say(seen: Progress) -> None:
                counts = {"waiting": seen.queue.waiting, "in flight": seen.queue.in_flight}
                counts |= {"dead letters": seen.dead_letters.total, **seen.extra}
                state = " · ".join(f"{count:,} {what}" for what, count in counts.items())
                bar.update(task, completed=max(0, seen.sent - seen.queue.total), state=state)

            yield say

    def failed(self, why: str) -> None:
        """Say why there is nothing to reconcile."""
        self._console.print(Text(why, style="bold red"))

    def conclude(self, found: Reconciliation, tables: Mapping[str, Iterable[Row]], fine: str, **more: int) -> int:
        """Say what was counted, what is wrong with it, and the line for programs; return the exit status."""
        for title, rows in tables.items():
            self._console.print()
            self._console.print(_table(title, list(rows)))
        self._console.print()
        for complaint in found.complaints:
            self.failed(f"  ✗ {complaint}")
        if not found.complaints:
            self._console.print(Text(f"  ✓ {fine}", style="bold green"))
        self._console.print()
        sys.stdout.write(json.dumps(found.line() | more) + "\n")
        sys.stdout.flush()
        return 1 if found.complaints else 0

    def _line(self, what: str, text: str) -> None:
        line = Table.grid(padding=(0, 1))
        line.add_column(style="cyan", width=15)
        line.add_column()
        line.add_row(f"  {what}", text)
        self._console.print(line)


def _table(title: str, rows: Sequence[Row]) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 1))
    made.add_column(justify="right", style="bold", min_width=9)
    made.add_column(min_width=36, no_wrap=True)
    made.add_column(style="dim")
    for number, what, meaning in rows:
        made.add_row(number if isinstance(number, str) else f"{number:,}", what, meaning)
    return made


def messages(found: Reconciliation) -> list[Row]:
    """What happened to the messages, whatever else a run counts."""
    expected = found.workload
    surplus = found.surplus_dead_letters
    again = f" (and {surplus} once more, their worker having died before it could record that)" if surplus else ""
    return [
        (len(found.sent), "sent", "to the queue, or asked for over HTTP"),
        (len(found.completed), "completed", f"by records and ledger; {len(expected.completed):,} expected"),
        (len(found.dead_lettered), "dead-lettered", f"{len(expected.dead_lettered):,} expected{again}"),
        *((count, f"  {kind}", reason) for count, kind, reason in found.reasons),
        (found.runs.duplicates, "duplicates recognised", "deliveries of what was done already, that ran nothing"),
        (found.runs.taken_over, "taken over", "runs of what a dead worker had begun, once its lease had ended"),
        (found.overlaps, "overlaps", "handlers started while another's lease was live"),
        (found.doubled, "doubled", "posted twice, or run or called for when it was done"),
        (found.lost, "lost", "out of the queue, with nothing done and no dead letter"),
        (found.unaccounted, "unaccounted", "still queued, half done, or in two places"),
    ]


def money(found: Reconciliation) -> list[Row]:
    """Whether the books balance."""
    verdict = "every account is where its entries say" if found.balanced else "accounts and entries disagree"
    return [
        (sum(found.workload.opening.values()), "cents before", "the sum of all balances"),
        (sum(found.closing.values()), "cents after", "the same"),
        (len(found.entries), "entries", f"two for each of {len(found.posted):,} transfers posted"),
        ("yes" if found.balanced else "NO", "balanced", verdict),
    ]
