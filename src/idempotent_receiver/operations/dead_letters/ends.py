"""How a dead letter may end. A run brings the ends about; what stands here is only what each of them does."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from idempotent_receiver.operations.dead_letters.history import Verb
from idempotent_receiver.operations.dead_letters.queue import A_CALL, chunks
from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, size_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient

Refused = Mapping[str, str]
"""The code with which each of some dead letters was refused, by its id: nothing was done, and it stays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """An end of a dead letter: what is done before it is deleted, which it is once `perform` has not refused it.

    `verb` names it in the summary and in the history. `perform` takes what `split` yields, in any
    thread, and raises what the client raises; without one, the deletion itself is the end. It must bear being done
    twice: what a killed process has performed and not deleted comes up again. `refused` and `undeleted` say what a
    refusal, or a failed deletion afterwards, means.

    `returns` tells that the consumer gets the message again. Then the run keeps to its rate and to the order of FIFO
    groups, and does not touch what fails again meanwhile.
    """

    verb: Verb
    perform: Callable[[Sequence[Decision]], Refused] | None = None
    split: Callable[[Sequence[Decision]], Iterable[Sequence[Decision]]] = chunks
    refused: str = "it was refused"
    undeleted: str
    returns: bool = False


def redrive_ends(sqs: "SQSClient", queue_url: str) -> Mapping[Verdict, End]:
    """What a redrive does: it drops what is done, and moves what may run to the queue."""
    dropped = End(verb=Verb.DROPPED, undeleted="it is done, and the next redrive drops it")
    moved = End(
        verb=Verb.MOVED,
        perform=lambda decisions: _send(sqs, queue_url, decisions),
        split=_fitting,
        refused="SQS refused its copy",
        undeleted="its copy was sent, so it is there twice, and its record lets it run once",
        returns=True,
    )
    return {Verdict.DONE: dropped, Verdict.MOVE: moved}


def _send(sqs: "SQSClient", queue_url: str, decisions: Sequence[Decision]) -> Refused:
    entries: Any = [{"Id": str(place), **each.dead_letter.copy()} for place, each in enumerate(decisions)]
    answer = sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
    sent = {int(each["Id"]) for each in answer.get("Successful", [])}
    codes = {int(each["Id"]): each["Code"] for each in answer.get("Failed", [])}
    return {
        each.dead_letter.id: codes.get(place, "Unconfirmed")
        for place, each in enumerate(decisions)
        if place not in sent
    }


def _fitting(decisions: Sequence[Decision]) -> Iterator[Sequence[Decision]]:
    """As many at a time, in order, as one call may carry: ten, and SQS counts its 1 MiB over the whole batch."""
    batch: list[Decision] = []
    room = MOST_BYTES
    for each in decisions:
        copy = each.dead_letter.copy()
        size = size_of(copy["MessageBody"], copy["MessageAttributes"])
        if batch and (len(batch) == A_CALL or size > room):
            yield batch
            batch, room = [], MOST_BYTES
        batch.append(each)
        room -= size
    if batch:
        yield batch
