"""The command `receiver dlq list`: dead letters by group on a terminal, on an HTML page, or as JSON lines in a file.

With --out, it keeps at most one batch of bodies in memory.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from idempotent_receiver.operations.account import UsageError
from idempotent_receiver.operations.cli import dlq_report as report
from idempotent_receiver.operations.cli.command import of_a_deployment
from idempotent_receiver.operations.cli.common_options import NO_ARCHIVE
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_act import note_held, queue_session
from idempotent_receiver.operations.cli.dlq_options import Filters, Hold, none_of
from idempotent_receiver.operations.cli.dlq_page import Page, acts_of
from idempotent_receiver.operations.cli.new_file import new_file
from idempotent_receiver.operations.cli.terminal import Exit, Terminal, clean, counted
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.dead_letters.selection import Selection
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.triage import Decision

A_BATCH = 100
MOST = 120_000
"""SQS's limit on in-flight messages."""
LIMITS = {"": 1000, ".html": 5000, ".jsonl": MOST}
"""The default --limit by output file suffix; an empty suffix means the terminal."""


@dataclass
class Look:
    """A look at up to `limit` of the approximately `about` dead letters, of which others hold `held`.

    `seen` maps record ids to messageIds for all dead letters `taken`; `meant` counts the selected ones.
    """

    selection: Selection
    limit: int
    taken: int = 0
    meant: int = 0
    about: int = 0
    held: int = 0
    stopped: bool = False
    seen: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def at(self, deployment: Deployment, terminal: Terminal, hold: int) -> Iterator[Iterator[Decision]]:
        """Yield the selected dead letters, and release all when the block ends. Ctrl-C ends the iteration early."""
        session = queue_session(deployment, terminal, hold)
        queue = session.source
        assert isinstance(queue, DeadLetterQueue)
        with terminal.stoppable() as stopped, session:
            self.held = note_held(queue, terminal, stopped=stopped)
            yield self._decisions(session, stopped)
            self.about, self.stopped = max(self.taken, queue.count()), stopped()
        if self.about - self.held > self.taken:
            ten = "SQS delivers at most ten messages of a FIFO group"
            why = ten if queue.fifo else queue.cut_short or "see --limit"
            terminal.note(f"This is a sample: {self.taken} of about {self.about} ({why}).")

    def _decisions(self, session: Session, stopped: Callable[[], bool]) -> Iterator[Decision]:
        more = True
        while more and not stopped() and (room := self.limit - self.taken):
            batch = session.take(min(A_BATCH, room), stopped)[:room]
            more = bool(batch) and session.source.more
            self.taken += len(batch)
            batch.reverse()
            while batch:
                one = batch.pop()  # lets the garbage collector free it once it is written
                self.seen[one.dead_letter.record_id] = one.dead_letter.id
                if self.selection.includes(one):
                    self.meant += 1
                    yield one

    @property
    def values(self) -> dict[str, Any]:
        """How much of the queue was read, for the JSON output."""
        sample = self.about > self.taken
        return {"count": self.meant, "about": self.about, "sample": sample, "held_elsewhere": self.held}

    def end(self, *, whole: bool) -> None:
        """Exit with a code if the command was stopped, found no match, or had to read the `whole` queue and did not."""
        if self.stopped:
            raise typer.Exit(Exit.STOPPED)
        if not self.meant and self.held:
            raise typer.Exit(Exit.HELD)
        if (not self.meant and not self.selection.all) or (whole and self.about > self.taken):
            raise typer.Exit(Exit.LEFT)


@of_a_deployment
def list_dead_letters(
    *,
    deployment: Deployment,
    terminal: Terminal,
    filters: Filters,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1, max=MOST, help="Read at most this many. Default: 1000; for a page, 5000; for a .jsonl file, all."
        ),
    ] = None,
    bodies: Annotated[bool, typer.Option("--bodies", help="Include bodies, attributes and results.")] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write to a new file: a page (.html) or JSON lines (.jsonl).")
    ] = None,
    hold: Hold = 60,
) -> None:
    """List dead letters, grouped by cause.

    A group is an error type and the function that raised it; --group lists its dead letters. The command holds dead
    letters while it runs, then releases them.

    --out FILE.html writes a page for a browser: each dead letter with its record and history, and the fate of messages
    moved in the last 14 days. --out FILE.jsonl writes one JSON document per line; with --bodies, you can pass a
    document's message to `sam local invoke`.
    """
    ending = "" if out is None else out.suffix
    if ending not in LIMITS or (out is not None and not ending):
        raise UsageError(f"--out {out}: the name must end in .html for a page, or .jsonl for JSON lines")
    deployment.options.refuse("dlq list", archive=NO_ARCHIVE)
    if ending != ".html":
        deployment.options.refuse("dlq list", history="only a page has the history: give --out FILE.html")
    look = Look(filters.selection(terminal.clock.epoch_ms()), limit or LIMITS[ending])
    if out is not None:
        _write(out, look, deployment, terminal, hold, bodies=bodies)
        look.end(whole=ending == ".jsonl" and limit is None)
        return
    with look.at(deployment, terminal, hold) as decisions:
        most = deployment.description.max_attempts
        rows = [report.letter_values(each, bodies=bodies, max_attempts=most) for each in decisions]
    groups = report.grouped(rows)
    tables = report.letter_tables if filters.group or filters.key or filters.message_id else report.group_tables
    values = {"queue": deployment.dead_letter_queue.url, **look.values, "groups": groups}
    terminal.answer(values, tables(groups) if groups else none_of(look.selection))
    look.end(whole=False)


def _write(out: Path, look: Look, deployment: Deployment, terminal: Terminal, hold: int, *, bodies: bool) -> None:
    """Write the dead letters to the file and print the answer. A stopped command leaves no file."""
    # Read the history first: it may take a while, and no dead letter should be held meanwhile.
    acts = acts_of(deployment, terminal) if out.suffix == ".html" else None
    with new_file("--out", out) as file:
        page = None if acts is None else Page(file, deployment, bodies)
        with look.at(deployment, terminal, hold) as decisions:
            for each in decisions:
                if page is None:
                    most = deployment.description.max_attempts
                    file.write(json.dumps(report.whole_letter(each, bodies=bodies, max_attempts=most)) + "\n")
                else:
                    page.add(each)
        if look.stopped:
            terminal.note(f"Stopped: {out} was not written.")
            raise typer.Exit(Exit.STOPPED)
        if page is not None:
            page.finish(acts or [], look.values, look.seen, terminal.clock.epoch_ms())
    told = {"file": str(out), **look.values, "bodies": bodies, "acts": None if acts is None else len(acts)}
    what = f"{counted(look.meant, 'dead letter')} in {out}, {'bodies included' if bodies else 'without bodies'}."
    terminal.answer(told, clean(what if look.meant or acts is not None else none_of(look.selection)))
