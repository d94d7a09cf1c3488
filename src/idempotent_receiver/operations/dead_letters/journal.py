"""One run's entries in the history: each act, before and after it is carried out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.history import Act, ActOutcome, History
from idempotent_receiver.operations.dead_letters.triage import Decision
from idempotent_receiver.operations.dead_letters.verbs import Disposition


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """Writes one run's acts to the history, with its operator and plan. The queues are ARNs.

    `why` is the operator's reason; if it is None, each act gets its decision's `why`. The methods raise NotKept.
    """

    history: History
    queue: str
    dead_letter_queue: str
    operator: str
    plan: str
    why: str | None = None

    def begin(self, disposition: Disposition, decisions: Sequence[Decision]) -> list[Act]:
        """Record the acts about to be carried out. If this raises, carry out none of them."""
        return self.history.begin([self._act(disposition, each) for each in decisions])

    def confirm(self, begun: Sequence[Act], failed: Mapping[str, tuple[ActOutcome, str]]) -> None:
        """Record the results. `failed` maps the messageIds of failed acts to their outcome and AWS's code."""
        self.history.confirm([_ended(act, failed.get(act.message_id)) for act in begun])

    def _act(self, disposition: Disposition, decision: Decision) -> Act:
        of = decision.dead_letter
        return Act(
            verb=disposition.verb,
            key=key_of(of),
            message_id=of.id,
            queue=self.queue,
            dead_letter_queue=self.dead_letter_queue,
            operator=self.operator,
            plan=self.plan,
            why=decision.why if self.why is None else self.why,
            other="" if disposition.resend is None else disposition.resend.other_id(decision),
        )


def key_of(dead_letter: DeadLetter) -> str:
    """The key under which the history stores acts on a dead letter."""
    return dead_letter.record_id if dead_letter.unkeyed is None else dead_letter.id


def _ended(act: Act, failed: tuple[ActOutcome, str] | None) -> Act:
    return act.ended(ActOutcome.DONE) if failed is None else act.ended(*failed)
