"""Carries out decisions about dead letters, in this order: claim, send or archive, complete, delete."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.operations.dead_letters.history import ActOutcome
from idempotent_receiver.operations.dead_letters.queue import A_CALL
from idempotent_receiver.operations.dead_letters.resend import NotResent
from idempotent_receiver.operations.dead_letters.session import Source
from idempotent_receiver.operations.dead_letters.triage import Decision
from idempotent_receiver.operations.dead_letters.verbs import End
from idempotent_receiver.operations.dead_letters.workers import RequestFailed, refused
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, size_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class Trouble(NamedTuple):
    """Why something failed or is uncertain: a reason, AWS's code, and the error if it must end the run."""

    outcome: ActOutcome
    code: str
    why: str
    error: RequestFailed | None = None

    @classmethod
    def of(cls, error: RequestFailed, what: str = "AWS") -> "Trouble":
        """What a failed request means."""
        code = code_of(error)
        if refused(error):
            return cls(ActOutcome.REFUSED, code, f"{what} refused it: {code}", error)
        return cls(ActOutcome.UNCONFIRMED, code, f"{what} did not confirm it: {code}", error)


Troubles = dict[str, Trouble]
"""By the dead letter's id."""


@dataclass(frozen=True, slots=True)
class Performance:
    """Carries out each `End` with an SQS client and the source of the dead letters."""

    sqs: "SQSClient"
    source: Source

    def perform(self, end: End, held: Sequence[Decision]) -> tuple[Troubles, Troubles]:
        """Carry out `end`. Returns two kinds of failure: dead letters not known to be processed, and those processed
        but not deleted.
        """
        undone: Troubles = {}
        if end.record is not None:
            undone |= _written(end.record.before, held, ActOutcome.REFUSED)
        self._send(end, _without(held, undone), undone)
        self._keep(end, _without(held, undone), undone)
        if end.record is not None:
            undone |= _written(end.record.after, _without(held, undone), ActOutcome.UNCONFIRMED)
        if not end.deletes:
            return undone, {}
        ended = [each.dead_letter.id for each in _without(held, undone)]
        undeleted = {id: _trouble(each, "SQS") for id, each in self.source.delete(ended).items()}
        deletion_is_all = end.copy is None and end.keep is None
        return ({**undone, **undeleted}, undeleted) if deletion_is_all else (undone, undeleted)

    def _send(self, end: End, held: Sequence[Decision], undone: Troubles) -> None:
        if end.copy is None:
            return
        entries = [(each, end.copy(each.dead_letter)) for each in held]
        for batch, outcome in self.source.workers.outcomes(lambda batch: self._sent(end.to, batch), _fitting(entries)):
            if isinstance(outcome, Mapping):
                undone.update(outcome)
            else:
                undone.update({each.dead_letter.id: Trouble.of(outcome, "SQS") for each, _ in batch})

    def _sent(self, queue_url: str, batch: Sequence["Entry"]) -> Troubles:
        """Send up to ten messages; returns those that SQS refused or did not confirm."""
        entries: Any = [{"Id": str(place), **copy} for place, (_, copy) in enumerate(batch)]
        answer = self.sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
        sent = {int(each["Id"]) for each in answer.get("Successful", [])}
        codes = {int(each["Id"]): each["Code"] for each in answer.get("Failed", [])}
        return {
            each.dead_letter.id: _unsent(codes.get(place)) for place, (each, _) in enumerate(batch) if place not in sent
        }

    def _keep(self, end: End, held: Sequence[Decision], undone: Troubles) -> None:
        if end.keep is None:
            return
        for each, outcome in self.source.workers.outcomes(end.keep, held):
            if outcome is not None:
                undone[each.dead_letter.id] = Trouble.of(outcome, "S3")


Entry = tuple[Decision, dict[str, Any]]
"""A dead letter and the message to send."""


def _written(write: Callable[[Decision], None], held: Sequence[Decision], otherwise: ActOutcome) -> Troubles:
    """Update each record; returns the failures."""
    undone: Troubles = {}
    for each in held:
        try:
            write(each)
        except NotResent as error:
            undone[each.dead_letter.id] = Trouble(otherwise, "NotWritten", str(error))
    return undone


def _without(held: Sequence[Decision], undone: Mapping[str, Trouble]) -> list[Decision]:
    return [each for each in held if each.dead_letter.id not in undone]


def _unsent(code: str | None) -> Trouble:
    if code is None:
        return Trouble(ActOutcome.UNCONFIRMED, "Unconfirmed", "SQS did not confirm its copy")
    return Trouble(ActOutcome.REFUSED, code, f"SQS refused its copy: {code}")


def _trouble(failed: str | RequestFailed, what: str) -> Trouble:
    if isinstance(failed, str):
        return Trouble(ActOutcome.REFUSED, failed, failed)
    return Trouble.of(failed, what)


def _fitting(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Split entries, in order, into SQS batches of at most ten messages and 1 MiB in total."""
    batch: list[Entry] = []
    room = MOST_BYTES
    for each, copy in entries:
        size = size_of(copy["MessageBody"], copy["MessageAttributes"])
        if batch and (len(batch) == A_CALL or size > room):
            yield batch
            batch, room = [], MOST_BYTES
        batch.append((each, copy))
        room -= size
    if batch:
        yield batch
