"""What each command does with a dead letter before it deletes it: the verdicts it acts on, what it sends, and what it
writes to the record. A run carries this out.

================ ==================================== ============ ===========================
OTHER_QUEUE belongs to another consumer: archive and delete act on it only once its queue is gone. Delete leaves a dead
letter whose messages are not all sent: without it, no delivery would send the rest. UNKEYED and CONFLICT dead letters
have no key of their own, so a resend writes no record.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.history import Verb
from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict

Copy = Callable[[DeadLetter], dict[str, Any]]
"""Makes the message to send for a dead letter. Raises NoRoom if it does not fit."""


class ResendStep(Protocol):
    """Sends a dead letter's new body and completes its record."""

    def other_id(self, decision: Decision) -> str:
        """The id of the new key's record."""

    def carry_out(self, decision: Decision) -> None:
        """Begin the resend unless it has begun, and finish it. Raises NotResent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition:
    """What is done with a dead letter, in this order: send its copy to the queue `to`, resend it or archive it, then
    delete it.

    The first step may be left out. Every step is safe to repeat, because dead letters left unfinished by a killed
    process reappear. `verb` is the name in the summary and the history; `becomes` describes the result in a plan.
    `undeleted` says what it means if only the deletion fails; it is empty if that is the only step. If `returns`, the
    message is sent back:
    the run then observes its rate and the order of FIFO groups, and does not send back messages that fail again.
    """

    verb: Verb
    becomes: str
    copy: Copy | None = None
    to: str = ""
    keep: Callable[[Decision], None] | None = None
    resend: ResendStep | None = None
    undeleted: str = ""
    returns: bool = False


Dispositions = Mapping[Verdict, Disposition]
"""What is done with a dead letter, by verdict. Dead letters with any other verdict stay."""

NAMED = frozenset({Verdict.FOREIGN, Verdict.OTHER_QUEUE})
"""Verdicts acted on only if the message or its group is named, because it may be another consumer's."""

_OURS = frozenset(Verdict) - {Verdict.OTHER_QUEUE}


def redrive_dispositions(queue_url: str, finishing: ResendStep | None = None) -> Dispositions:
    """What a redrive does: it drops completed messages, sends back to the queue those that may run, and finishes
    resends.
    """
    moved = Disposition(
        verb=Verb.MOVED,
        becomes="back to the queue",
        copy=DeadLetter.copy,
        to=queue_url,
        undeleted="its copy was sent, so it exists twice, and its record lets it run once",
        returns=True,
    )
    done = Disposition(verb=Verb.DROPPED, becomes="dropped: already done")
    resent = Disposition(verb=Verb.DROPPED, becomes="dropped: resent under another key")
    finished = (
        {} if finishing is None else {Verdict.UNSENT: _resent("its new body is sent, as its record says", finishing)}
    )
    return {Verdict.DONE: done, Verdict.RESENT: resent, Verdict.MOVE: moved, **finished}


def restore_dispositions(dead_letter_queue_url: str) -> Dispositions:
    """What a redrive from the archive to the dead-letter queue does."""
    restored = Disposition(
        verb=Verb.RESTORED,
        becomes="back to the dead-letter queue",
        copy=DeadLetter.restored,
        to=dead_letter_queue_url,
        undeleted="it is in the dead-letter queue as well, under the same key",
        returns=True,
    )
    return dict.fromkeys(_OURS - {Verdict.MALFORMED}, restored)


def archive_dispositions(keep: Callable[[Decision], None]) -> Dispositions:
    """What an archive command does: it stores each dead letter."""
    archived = Disposition(
        verb=Verb.ARCHIVED,
        becomes="to the archive",
        keep=keep,
        undeleted="it is in the archive as well, where archiving it again replaces it",
    )
    return dict.fromkeys(Verdict, archived)


def delete_dispositions() -> Dispositions:
    """What deleting does."""
    deleted = Disposition(verb=Verb.DELETED, becomes="deleted permanently")
    return dict.fromkeys(frozenset(Verdict) - {Verdict.RESENDING, Verdict.UNSENT}, deleted)


def resend_dispositions(resend: ResendStep) -> Dispositions:
    """What a resend with another body does."""
    none = {Verdict.DONE, Verdict.RESENT, Verdict.RESENDING, Verdict.UNREADABLE, Verdict.TOO_OLD, Verdict.MALFORMED}
    acted = _resent("to the queue with another body, under a key of its own", resend)
    return dict.fromkeys(_OURS - none - NAMED, acted)


def _resent(becomes: str, resend: ResendStep) -> Disposition:
    return Disposition(
        verb=Verb.RESENT,
        becomes=becomes,
        resend=resend,
        undeleted="its new body was sent: redrive to drop this dead letter",
        returns=True,
    )
