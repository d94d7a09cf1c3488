"""A look at dead letters: taken, decided about, and released."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.cli.dlq_act import note_held, queue_session
from idempotent_receiver.operations.cli.dlq_options import HOLD_HELP
from idempotent_receiver.operations.cli.terminal import Exit, Terminal
from idempotent_receiver.operations.dead_letters.queue import DeadLetterQueue
from idempotent_receiver.operations.dead_letters.selection import Selection
from idempotent_receiver.operations.dead_letters.triage import Decision

Hold = Annotated[int, typer.Option(min=1, max=43_200, help=HOLD_HELP)]


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at dead letters found: all that was `taken`, and those that are `meant`; `about` how many there are,
    and how many of those others hold.
    """

    taken: Sequence[Decision]
    meant: Sequence[Decision]
    about: int
    held: int
    stopped: bool

    @property
    def values(self) -> dict[str, Any]:
        """How much of the queue was seen, as a script reads it."""
        return {
            "letters": len(self.meant),
            "about": self.about,
            "sample": self.about > len(self.taken),
            "held_elsewhere": self.held,
        }

    def end(self, selection: Selection) -> None:
        """End the command if it was stopped, or found nothing of what was asked for."""
        if self.stopped:
            raise typer.Exit(Exit.STOPPED)
        if not self.meant and self.held:
            raise typer.Exit(Exit.HELD)
        if not self.meant and not selection.all:
            raise typer.Exit(Exit.LEFT)


def look(deployment: Deployment, terminal: Terminal, selection: Selection, limit: int, hold: int) -> Look:
    """Take up to `limit` dead letters, and release them. It says so if there are more. Ctrl-C ends it earlier."""
    session = queue_session(deployment, terminal, hold)
    queue = session.source
    assert isinstance(queue, DeadLetterQueue)
    with terminal.stoppable() as stopped, session:
        held = note_held(queue, terminal, stopped=stopped)
        taken = session.take(limit, stopped)[:limit]
        about = max(len(taken), queue.count())
    if about - held > len(taken):
        why = "of a FIFO group SQS gives out ten at most" if queue.fifo else "see --limit"
        terminal.note(f"This is a sample: {len(taken)} of about {about} ({why}).")
    return Look(taken, [each for each in taken if selection.includes(each)], about, held, stopped())
