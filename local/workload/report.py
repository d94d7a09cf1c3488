"""What a run says to the person who started it, and its last line, which is for programs."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Column, Table
from rich.text import Text

from local.workload.harm import Harm
from local.workload.timeline import page_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from local.workload.driver import Progress
    from local.workload.reconciliation import Reconciliation
    from local.workload.transfers import Workload

UNHARMED = 2
"""The status of a control that came to no harm."""
CONTROL = """\
  This was the control: a handler without protection. The harm is expected.
  Its checks must fail, so its status is 1.
  Leave out PROTECTION=off to see the same messages protected."""
Row = tuple[int | str, str, str]
"""A number, what it counts, and what that means."""


class Report:
    """The console of one run."""

    def __init__(self) -> None:
        self._console = Console(highlight=False)
        self._title = ""

    def begin(self, what: str, how: str) -> None:
        """Say what is about to be run, and by what."""
        self._title = f"{what}: {how}"
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
        """Show how many messages are out of the queue; what is yielded says how far it is."""
        with self.bar("out of queue", number) as show:

            def say(seen: Progress) -> None:
                counts = {"waiting": seen.queue.waiting, "in flight": seen.queue.in_flight}
                show(seen.sent - seen.queue.total, counts | {"dead letters": seen.dead_letters.total, **seen.extra})

            yield say

    @contextlib.contextmanager
    def bar(self, what: str, number: int) -> Iterator[Callable[[int, Mapping[str, int]], None]]:
        """Show a bar; what is yielded moves it, and puts these counts beside it."""
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

    def conclude(
        self,
        found: Reconciliation,
        tables: Mapping[str, Iterable[Row]],
        fine: str,
        *,
        timeline: Path | None = None,
        **more: int,
    ) -> int:
        """Say what was counted, what is wrong with it, and the line for programs; return the exit status.

        `timeline` is where the page with the run's timeline is to be written.
        """
        for title, rows in tables.items():
            self._console.print()
            self._console.print(_table(title, list(rows)))
        self._console.print()
        for complaint in found.complaints:
            self.failed(f"  ✗ {complaint}")
        if not found.protected:
            status = self._conclude_control(found)
        elif found.complaints:
            status = 1
        else:
            status = 0
            self._console.print(Text(f"  ✓ {fine}", style="bold green"))
        self._console.print()
        if timeline is not None:
            self._keep_timeline(found, timeline)
            self._console.print()
        sys.stdout.write(json.dumps(found.line() | more) + "\n")
        sys.stdout.flush()
        return status

    def _keep_timeline(self, found: Reconciliation, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page_of(found, self._title), encoding="utf-8")
        here = Path.cwd()
        self._line("timeline", str(path.relative_to(here) if path.is_relative_to(here) else path))

    def _conclude_control(self, found: Reconciliation) -> int:
        """Say what a control is for; its checks must fail, or it shows nothing."""
        self._console.print()
        if Harm(found).seen or any(found.must_be_zero.values()):
            self._console.print(Text(CONTROL, style="bold yellow"))
            return 1
        self.failed("  ✗ this was the control, and it came to no harm: it shows nothing; raise N")
        return UNHARMED

    def _line(self, what: str, text: str) -> None:
        line = Table.grid(padding=(0, 1))
        line.add_column(style="cyan", width=15)
        line.add_column()
        line.add_row(f"  {what}", text)
        self._console.print(line)


def _table(title: str, rows: Sequence[Row]) -> Table:
    made = Table(title=title, title_justify="left", title_style="bold", show_header=False, box=None, padding=(0, 1))
    made.add_column(justify="right", style="bold", min_width=9)
    made.add_column(max_width=24)
    made.add_column(style="dim")
    for number, what, meaning in rows:
        made.add_row(number if isinstance(number, str) else f"{number:,}", what, meaning)
    return made


def messages(found: Reconciliation) -> list[Row]:
    """What happened to the messages, whatever else a run counts."""
    expected = found.workload
    evidence = "records and ledger" if found.protected else "the ledger alone"
    surplus = found.surplus_dead_letters
    again = f" (and {surplus} once more, their worker having died before it could record that)" if surplus else ""
    return [
        (len(found.sent), "sent", "to the queue, or asked for over HTTP"),
        (len(found.completed), "completed", f"by {evidence}; {len(expected.completed):,} expected"),
        (len(found.dead_lettered), "dead-lettered", f"{len(expected.dead_lettered):,} expected{again}"),
        *((count, f"  {kind}", reason) for count, kind, reason in found.reasons),
        (found.runs.duplicates, "duplicates recognised", "deliveries of what was done already"),
        (found.runs.taken_over, "taken over", "runs of what a dead worker had begun"),
        (found.overlaps, "overlaps", "handlers started during another's lease"),
        (found.doubled, "doubled", "posted, run or called for once too often"),
        (found.lost, "lost", "gone, with nothing done and no dead letter"),
        (found.unaccounted, "unaccounted", "still queued, half done, or in two places"),
    ]


def money(found: Reconciliation) -> list[Row]:
    """Whether the books balance."""
    verdict = "every account is where its entries say" if found.balanced else "accounts and entries disagree"
    harm = Harm(found)
    more = harm.after - harm.before
    again = harm.posted_again
    harms = [
        (harm.created, "cents created", "debits overwritten, or credits without a debit"),
        (harm.destroyed, "cents destroyed", "credits overwritten, or debits without a credit"),
        (sum(again.values()), "cents paid again", f"by {len(again):,} transfers that were posted again"),
        (len(harm.half_posted), "half-posted", "transfers whose debit and credit differ"),
    ]
    return [
        (harm.before, "cents before", "the sum of all balances"),
        (harm.after, "cents after", f"{abs(more):,} {'more' if more > 0 else 'fewer'}" if more else "the same"),
        *(harms if harm.seen or not found.protected else ()),
        (len(found.entries), "entries", f"of {len(found.posted):,} transfers posted"),
        ("yes" if found.balanced else "NO", "balanced", verdict),
    ]
