"""A run's output for the person who started it, and its last line, which is for programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table
from rich.text import Text

from harness.workload.harm import harm_of
from harness.workload.timeline import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from harness.workload.driver import Progress
    from harness.workload.reconciliation import Reconciliation
    from harness.workload.transfers import Workload

UNHARMED = 2
"""The status of a control that did no harm."""
CONTROL = """\
  This was the control: a handler without protection. The harm is expected.
  Its checks must fail, so its status is 1.
  Omit PROTECTION=off to see the same messages protected."""
Row = tuple[int | str, str, str]
"""A number, what it counts, and its meaning."""


class Report:
    """The console of one run."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._title = ""
        self._timeline: Path | None = None

    def begin(self, what: str, how: str, timeline: Path | None = None) -> None:
        """Announce what runs, and on what. `timeline` is the file for the drawing at the end."""
        self._title, self._timeline = f"{what}: {how}", timeline
        self._console.print(f"[bold]{what}[/]: {how}\n")

    def step(self, what: str) -> Callable[[str], None]:
        """Begin a step; returns a function to report its result, along with its duration."""
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
        """Show how many messages are out of the queue; yields a function to report progress."""
        with self.bar("out of queue", number) as show:

            def say(seen: Progress) -> None:
                counts = {"waiting": seen.queue.waiting, "in flight": seen.queue.in_flight}
                show(seen.sent - seen.queue.total, counts | {"dead letters": seen.dead_letters.total, **seen.extra})

            yield say

    @contextlib.contextmanager
    def bar(self, what: str, number: int) -> Iterator[Callable[[int, Mapping[str, int]], None]]:
        """Show a bar; yields a function that moves it and shows these counts next to it."""
        columns = (
            TextColumn("  [cyan]{task.description:<12}[/]"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[state]}", table_column=Column(no_wrap=False)),
            TimeElapsedColumn(),
        )
        with Bar(*columns, console=self._console) as bar:
            task = bar.add_task(what, total=number, state="")

            def show(done: int, counts: Mapping[str, int]) -> None:
                state = " · ".join(f"{count:,} {name}" for name, count in counts.items())
                bar.update(task, completed=max(0, done), state=state)

            yield show

    def failed(self, why: str) -> None:
        """Say why there is nothing to reconcile."""
        self._console.print(Text(why, style="bold red"))

    def conclude(self, found: Reconciliation, tables: Mapping[str, Iterable[Row]], fine: str, **more: int) -> int:
        """Print the counts, what is wrong with them, and the line for programs; returns the exit status."""
        for title, rows in tables.items():
            self._console.print()
            self._console.print(_table(title, list(rows)))
        self._console.print()
        for complaint in found.complaints:
            self.failed(f"  ✗ {complaint}")
        status, verdict = _verdict(found, fine)
        self._console.print(verdict, end="\n\n")
        if self._timeline is not None:
            self._timeline.parent.mkdir(parents=True, exist_ok=True)
            self._timeline.write_text(page_of(found, self._title), encoding="utf-8")
            self._line("timeline", os.path.relpath(self._timeline))
            self._console.print()
        sys.stdout.write(json.dumps(found.line() | more) + "\n")
        sys.stdout.flush()
        return status

    def _line(self, what: str, text: str) -> None:
        line = Table.grid(padding=(0, 1))
        line.add_column(style="cyan", width=15)
        line.add_column()
        line.add_row(f"  {what}", text)
        self._console.print(line)


def _verdict(found: Reconciliation, fine: str) -> tuple[int, Text]:
    """The exit status and its meaning. A control's checks must fail, or it shows nothing."""
    if found.protected:
        return (1, Text()) if found.complaints else (0, Text(f"  ✓ {fine}", style="bold green"))
    if harm_of(found).seen or any(found.must_be_zero.values()):
        return 1, Text("\n" + CONTROL, style="bold yellow")
    return UNHARMED, Text("  ✗ this was the control, and it shows nothing: no harm was done", style="bold red")


def _table(title: str, rows: Sequence[Row]) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 1))
    made.add_column(justify="right", style="bold", min_width=9)
    made.add_column(max_width=24)
    made.add_column(style="dim")
    for number, what, meaning in rows:
        made.add_row(number if isinstance(number, str) else f"{number:,}", what, meaning)
    return made


def messages(found: Reconciliation) -> list[Row]:
    """What happened to the messages, in every kind of run."""
    expected = found.workload
    evidence = "records and ledger" if found.protected else "the ledger alone"
    surplus = found.surplus_dead_letters
    again = f" (and {surplus} twice, because their worker died before it could record that)" if surplus else ""
    return [
        (len(found.sent), "sent", "to the queue, or asked for over HTTP"),
        (len(found.completed), "completed", f"by {evidence}; {len(expected.completed):,} expected"),
        (len(found.dead_lettered), "dead-lettered", f"{len(expected.dead_lettered):,} expected{again}"),
        *((count, f"  {kind}", reason) for count, kind, reason in found.reasons),
        (found.runs.duplicates, "duplicates recognised", "deliveries of messages already done"),
        (found.runs.taken_over, "taken over", "runs of messages that a dead worker had begun"),
        *_again(found),
        (found.lost, "lost", "gone without effect or dead letter"),
        (found.unaccounted, "unaccounted", "still queued, half done, or in two places"),
    ]


def _again(found: Reconciliation) -> list[Row]:
    if not found.exclusive:
        return [
            (found.overlaps, "overlaps", "allowed without claims: one of them commits"),
            (found.repeated, "run again", "allowed too: called or run for messages already done"),
            (found.doubled, "doubled", "posted once too often"),
        ]
    return [
        (found.overlaps, "overlaps", "handlers started during another's lease"),
        (found.doubled, "doubled", "posted, run or called for too often"),
    ]


def money(found: Reconciliation) -> list[Row]:
    """Whether the books balance."""
    verdict = "every account matches its entries" if found.balanced else "accounts and entries disagree"
    harm = harm_of(found)
    more = harm.after - harm.before
    harms = [
        (harm.created, "cents created", "debits overwritten, or credits without a debit"),
        (harm.destroyed, "cents destroyed", "credits overwritten, or debits without a credit"),
        (sum(harm.paid_again.values()), "cents paid again", f"to {len(harm.paid_again):,} payees, by a second posting"),
        (len(harm.half_posted), "half-posted", "transfers whose debit and credit differ"),
    ]
    return [
        (harm.before, "cents before", "the sum of all balances"),
        (harm.after, "cents after", f"{abs(more):,} {'more' if more > 0 else 'fewer'}" if more else "the same"),
        *(harms if harm.seen or not found.protected else ()),
        (len(found.entries), "entries", f"of {len(found.posted):,} transfers posted"),
        ("yes" if found.balanced else "NO", "balanced", verdict),
    ]
