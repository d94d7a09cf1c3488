"""How a dead letter may end. A run brings the ends about; what stands here is only what each of them does."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idempotent_receiver.operations.dead_letters.archive import Archive
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.history import Verb
from idempotent_receiver.operations.dead_letters.queue import A_CALL, chunks
from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, NoRoom, size_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

REFUSED_COPY = "SQS refused its copy"

Refused = Mapping[str, str]
"""The code with which each of some dead letters was refused, by its id: nothing was done, and it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An end of a dead letter: what is done before it is deleted, which it is once `perform` has not refused it.

    `verb` names it in the summary and in the history, `becomes` says it in a plan. `perform` takes what `split` yields,
    in any thread, and raises what the client raises; without one, the deletion itself is the end. It must bear being
    done twice: what a killed process has performed and not deleted comes up again. `refused` and `undeleted` say what a
    refusal, or a failed deletion afterwards, means. `detail` is what the history says besides why it was done.

    `returns` tells that the consumer gets the message again. Then the run keeps to its rate and to the order of FIFO
    groups, and does not touch what fails again meanwhile.
    """

    verb: Verb
    becomes: str
    perform: Callable[[Sequence[Decision]], Refused] | None = None
    split: Callable[[Sequence[Decision]], Iterable[Sequence[Decision]]] = chunks
    refused: str = "it was refused"
    undeleted: str
    detail: Callable[[Decision], str] | None = None
    returns: bool = False


ENDABLE = frozenset(Verdict) - {Verdict.FOREIGN}
"""What is known to be a dead letter of this queue."""


def redrive_ends(sqs: "SQSClient", queue_url: str) -> Mapping[Verdict, End]:
    """What a redrive does: it drops what is done, and moves what may run to the queue."""
    dropped = End(
        verb=Verb.DROPPED, becomes="dropped: done already", undeleted="it is done, and the next redrive drops it"
    )
    moved = End(
        verb=Verb.MOVED,
        becomes="back to the queue",
        perform=lambda decisions: _send(sqs, queue_url, decisions, DeadLetter.copy),
        split=lambda decisions: _fitting(decisions, DeadLetter.copy),
        refused=REFUSED_COPY,
        undeleted="its copy was sent, so it is there twice, and its record lets it run once",
        returns=True,
    )
    return {Verdict.DONE: dropped, Verdict.MOVE: moved}


def archive_ends(archive: Archive, *, operator: str, reason: str | None, at: str) -> Mapping[Verdict, End]:
    """What an archiving does: it keeps each dead letter in the archive, with who did so, when and why."""
    told = {"operator": operator, "archived_at": at, **({} if reason is None else {"archived_for": reason})}
    archived = End(
        verb=Verb.ARCHIVED,
        becomes="to the archive",
        perform=lambda decisions: archive.put(decisions, **told),
        split=lambda decisions: chunks(decisions, 1),
        undeleted="it is in the archive as well, where archiving it again replaces it",
    )
    return dict.fromkeys(ENDABLE, archived)


def delete_ends() -> Mapping[Verdict, End]:
    """What a deletion does."""
    return dict.fromkeys(ENDABLE, End(verb=Verb.DELETED, becomes="deleted for good", undeleted="delete it again"))


def restore_ends(sqs: "SQSClient", dead_letter_queue_url: str) -> Mapping[Verdict, End]:
    """What a restoration does: it sends what is in the archive to the dead-letter queue."""
    restored = End(
        verb=Verb.RESTORED,
        becomes="back to the dead-letter queue",
        perform=lambda decisions: _send(sqs, dead_letter_queue_url, decisions, DeadLetter.restored),
        split=lambda decisions: _fitting(decisions, DeadLetter.restored),
        refused=REFUSED_COPY,
        undeleted="it is in the dead-letter queue as well, under the same key",
        returns=True,
    )
    return dict.fromkeys(Verdict, restored)


def resend_ends(sqs: "SQSClient", queue_url: str, edited: Callable[[DeadLetter], DeadLetter]) -> Mapping[Verdict, End]:
    """What sending a dead letter edited does; `edited` is pure."""
    resent = End(
        verb=Verb.RESENT,
        becomes="to the queue, edited, under a key of its own",
        perform=lambda decisions: _send(sqs, queue_url, decisions, lambda letter: edited(letter).resent()),
        refused=REFUSED_COPY,
        undeleted="its edited copy was sent; resend it with the same body, or delete it",
        detail=lambda decision: f"its new key is {edited(decision.dead_letter).key}",
        returns=True,
    )
    return dict.fromkeys(ENDABLE - {Verdict.DONE, Verdict.UNREADABLE, Verdict.TOO_OLD}, resent)


Copy = Callable[[DeadLetter], dict[str, Any]]
"""Makes the message to send for a dead letter. Raises NoRoom where its stamp does not fit."""

NO_ROOM = "NoRoom"


def _send(sqs: "SQSClient", queue_url: str, decisions: Sequence[Decision], copy: Copy) -> Refused:
    entries: Any = []
    refused = {}
    for place, each in enumerate(decisions):
        try:
            entries.append({"Id": str(place), **copy(each.dead_letter)})
        except NoRoom:
            refused[each.dead_letter.id] = NO_ROOM
    if not entries:
        return refused
    answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
    sent = {int(each["Id"]) for each in answer.get("Successful", [])}
    codes = {int(each["Id"]): each["Code"] for each in answer.get("Failed", [])}
    unsent = {
        each.dead_letter.id: codes.get(place, "Unconfirmed")
        for place, each in enumerate(decisions)
        if place not in sent
    }
    return {**unsent, **refused}


def _fitting(decisions: Sequence[Decision], copy: Copy) -> Iterator[Sequence[Decision]]:
    """As many at a time, in order, as one call may carry: ten, and SQS counts its 1 MiB over the whole batch."""
    batch: list[Decision] = []
    room = MOST_BYTES
    for each in decisions:
        try:
            sent = copy(each.dead_letter)
            size = size_of(sent["MessageBody"], sent["MessageAttributes"])
        except NoRoom:
            size = 0  # it is not sent
        if batch and (len(batch) == A_CALL or size > room):
            yield batch
            batch, room = [], MOST_BYTES
        batch.append(each)
        room -= size
    if batch:
        yield batch
