"""The steps of an act on dead letters, in this order: send, resend or archive, delete."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from idempotent_receiver.dynamodb.codes import code_of
from idempotent_receiver.operations.dead_letters.history import ActOutcome
from idempotent_receiver.operations.dead_letters.queue import A_CALL
from idempotent_receiver.operations.dead_letters.resend import NotResent
from idempotent_receiver.operations.dead_letters.session import Source
from idempotent_receiver.operations.dead_letters.triage import Decision
from idempotent_receiver.operations.dead_letters.verbs import Disposition
from idempotent_receiver.operations.dead_letters.workers import RequestFailed, refused
from idempotent_receiver.sqs.batch_answers import UNCONFIRMED, failed_entries
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, size_of

if TYPE_CHECKING:
    from mypy_boto3_sqs import SQSClient


class ActFailure(NamedTuple):
    """Why an act failed or is uncertain: a reason, AWS's code, and the error if it must end the run."""

    outcome: ActOutcome
    code: str
    why: str
    error: RequestFailed | None = None

    @classmethod
    def of(cls, error: RequestFailed, what: str = "AWS") -> "ActFailure":
        """The failure of an act, given a failed request to `what`."""
        code = code_of(error)
        if refused(error):
            return cls(ActOutcome.REFUSED, code, f"{what} refused it: {code}", error)
        return cls(ActOutcome.UNCONFIRMED, code, f"{what} did not confirm it: {code}", error)

    @classmethod
    def of_entry(cls, code: str, what: str) -> "ActFailure":
        """The failure of an act, given the `code` of its entry in SQS's answer to a batch request for `what`."""
        if code == UNCONFIRMED:
            return cls(ActOutcome.UNCONFIRMED, code, f"SQS did not confirm {what}")
        return cls(ActOutcome.REFUSED, code, f"SQS refused {what}: {code}")


ActFailures = dict[str, ActFailure]
"""By the dead letter's id."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Takes the steps of each `Disposition` with an SQS client and the source of the dead letters."""

    sqs: "SQSClient"
    source: Source

    def carry_out(self, disposition: Disposition, held: Sequence[Decision]) -> tuple[ActFailures, ActFailures]:
        """Take the steps. Returns two kinds of failure: dead letters not confirmed as processed, and those processed
        but not deleted.
        """
        failed: ActFailures = {}
        self._send_copies(disposition, held, failed)
        _resend(disposition, held, failed)
        self._archive(disposition, held, failed)
        done = [each.dead_letter.id for each in _without(held, failed)]
        undeleted = {id: _deletion_failure(each) for id, each in self.source.delete(done).items()}
        deletion_is_all = not disposition.undeleted
        return ({**failed, **undeleted}, undeleted) if deletion_is_all else (failed, undeleted)

    def _send_copies(self, disposition: Disposition, held: Sequence[Decision], failed: ActFailures) -> None:
        if disposition.copy is None:
            return
        entries = [(each, disposition.copy(each.dead_letter)) for each in held]
        send = partial(self._send_batch, disposition.to)
        for batch, outcome in self.source.workers.outcomes(send, _fitting(entries)):
            if isinstance(outcome, Mapping):
                failed.update(outcome)
            else:
                failed.update({each.dead_letter.id: ActFailure.of(outcome, "SQS") for each, _ in batch})

    def _send_batch(self, queue_url: str, batch: Sequence["Entry"]) -> ActFailures:
        """Send up to ten messages; returns those that SQS refused or did not confirm."""
        entries: Any = [{"Id": str(place), **copy} for place, (_, copy) in enumerate(batch)]
        answer = self.sqs.send_message_batch(QueueUrl=queue_url, Entries=entries)
        failed = failed_entries(answer, len(batch))
        return {
            batch[place][0].dead_letter.id: ActFailure.of_entry(entry["Code"], "its copy")
            for place, entry in failed.items()
        }

    def _archive(self, disposition: Disposition, held: Sequence[Decision], failed: ActFailures) -> None:
        if disposition.keep is None:
            return
        for each, outcome in self.source.workers.outcomes(disposition.keep, held):
            if outcome is not None:
                failed[each.dead_letter.id] = ActFailure.of(outcome, "S3")


Entry = tuple[Decision, dict[str, Any]]
"""A dead letter and the message to send."""


def _resend(disposition: Disposition, held: Sequence[Decision], failed: ActFailures) -> None:
    for each in held if disposition.resend is not None else ():
        try:
            disposition.resend.carry_out(each)  # type: ignore[union-attr]  # it is not None
        except NotResent as error:
            failed[each.dead_letter.id] = ActFailure(error.outcome, "NotResent", str(error))


def _without(held: Sequence[Decision], failed: Mapping[str, ActFailure]) -> list[Decision]:
    return [each for each in held if each.dead_letter.id not in failed]


def _deletion_failure(failed: str | RequestFailed) -> ActFailure:
    return ActFailure.of_entry(failed, "it") if isinstance(failed, str) else ActFailure.of(failed, "SQS")


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
