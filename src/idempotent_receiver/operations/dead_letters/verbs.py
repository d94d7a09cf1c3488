"""What each command does with a dead letter: the verdicts it acts on, what it sends, what it writes to the record, and
whether it deletes the dead letter. A run carries this out.

=================== ============================================ ========== ============================ ========
command             acts on                                      sends      writes to the record         deletes
=================== ============================================ ========== ============================ ========
redrive             MOVE                                         a copy     nothing                      yes
redrive             DONE, RESENT                                 nothing    nothing                      yes
redrive --to-dlq    all that fit, FOREIGN if named               a copy     nothing                      yes
resend              all that may still run, RESENDING            a new body claims it, then completes it yes
resend --take-back  RESENDING                                    nothing    releases the claim           no
archive             all, NAMED if named                          nothing    nothing                      yes
delete              all but RESENDING, NAMED if named            nothing    nothing                      yes
=================== ============================================ ========== ============================ ========

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


class RecordSide(Protocol):
    """What a `Disposition` writes to the record of a dead letter's key. Its methods raise NotResent on failure."""

    def other_id(self, decision: Decision) -> str:
        """The id of the other record involved."""

    def before(self, decision: Decision) -> None:
        """Write before the send."""

    def after(self, decision: Decision) -> None:
        """Write after the send."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disposition:
    """What is done with a dead letter, in this order: claim its record, send its copy to the queue `to` or archive it,
    complete its record, delete it.

    Any step may be left out. Every step is safe to repeat, because dead letters left unfinished by a killed process
    reappear. `verb` is the name in the summary and the history; `becomes` describes the result in a plan. `undeleted`
    says what it means if only the deletion fails, after a send or an archive. If `returns`, the message is sent back:
    the run then observes its rate and the order of FIFO groups, and does not send back messages that fail again.
    """

    verb: Verb
    becomes: str
    copy: Copy | None = None
    to: str = ""
    keep: Callable[[Decision], None] | None = None
    record: RecordSide | None = None
    deletes: bool = True
    undeleted: str = ""
    returns: bool = False


Dispositions = Mapping[Verdict, Disposition]
"""What is done with a dead letter, by verdict. Dead letters with any other verdict stay."""

NAMED = frozenset({Verdict.FOREIGN, Verdict.OTHER_QUEUE})
"""Verdicts acted on only if the message or its group is named, because it may be another consumer's."""

NOT_BEGUN = frozenset({Verdict.MOVE, Verdict.PERMANENT, Verdict.TOO_OLD})
"""Verdicts on dead letters whose resend has not begun, so that there is nothing to take back."""

_OURS = frozenset(Verdict) - {Verdict.OTHER_QUEUE}


def redrive_dispositions(queue_url: str) -> Dispositions:
    """What a redrive does: it drops completed messages, and sends back to the queue those that may run."""
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
    return {Verdict.DONE: done, Verdict.RESENT: resent, Verdict.MOVE: moved}


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
    return dict.fromkeys(frozenset(Verdict) - {Verdict.RESENDING}, deleted)


def resend_dispositions(
    queue_url: str, new_body: RecordSide, edited: Callable[[DeadLetter], DeadLetter]
) -> Dispositions:
    """What a resend with another body does."""
    resent = Disposition(
        verb=Verb.RESENT,
        becomes="to the queue with another body, under a key of its own",
        copy=lambda letter: edited(letter).resent(),
        to=queue_url,
        record=new_body,
        undeleted="its new body was sent: resend it with that body, or redrive to drop this dead letter",
        returns=True,
    )
    none = {Verdict.DONE, Verdict.RESENT, Verdict.UNREADABLE, Verdict.TOO_OLD, Verdict.MALFORMED, Verdict.FOREIGN}
    return dict.fromkeys(_OURS - none, resent)


def take_back_dispositions(taking_back: RecordSide) -> Dispositions:
    """What taking back a resend does."""
    back = Disposition(
        verb=Verb.TAKEN_BACK,
        becomes="as before its resend: if the new body was sent, it counts as done",
        record=taking_back,
        deletes=False,
    )
    return {Verdict.RESENDING: back}
