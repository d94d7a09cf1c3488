"""What one run writes to the history: each of its acts, before it is done and after."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from idempotent_receiver.dynamodb.errors import code_of
from idempotent_receiver.operations.dead_letters.dead_letter import DeadLetter
from idempotent_receiver.operations.dead_letters.history import Act, History, Outcome, Verb
from idempotent_receiver.operations.dead_letters.triage import Decision
from idempotent_receiver.operations.dead_letters.workers import Failed

Detail = Callable[[Decision], str]
"""What an act says besides its reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The history, as one run writes it: by this operator, carrying out this plan. The queues are ARNs.

    `why` is the operator's reason; without one, an act has its decision's. The methods raise NotKept.
    """

    history: History
    queue: str
    dead_letter_queue: str
    operator: str
    plan: str
    why: str | None = None

    def begin(self, verb: Verb, decisions: Sequence[Decision], detail: Detail | None = None) -> list[Act]:
        """Note what is about to be done, and its detail. If this raises, nothing of it may be done."""
        return self.history.begin([self._act(verb, each, detail) for each in decisions])

    def confirm(self, begun: Sequence[Act], undone: Mapping[str, str | Failed]) -> None:
        """Note what became of it. `undone` has by messageId the code of each refusal, or what left it unknown."""
        self.history.confirm([_ended(act, undone.get(act.message_id)) for act in begun])

    def _act(self, verb: Verb, decision: Decision, detail: Detail | None) -> Act:
        of = decision.dead_letter
        why = decision.why if self.why is None else self.why
        return Act(
            verb=verb,
            key=key_of(of),
            message_id=of.id,
            queue=self.queue,
            dead_letter_queue=self.dead_letter_queue,
            operator=self.operator,
            why=why if detail is None else f"{detail(decision)}; {why}",  # the history cuts off a long reason
            plan=self.plan,
        )


def key_of(dead_letter: DeadLetter) -> str:
    """Under which key the history keeps the acts on a dead letter."""
    return dead_letter.record_id if dead_letter.unkeyed is None else dead_letter.id


def _ended(act: Act, trouble: str | Failed | None) -> Act:
    if trouble is None:
        return act.ended(Outcome.DONE)
    if isinstance(trouble, str):
        return act.ended(Outcome.REFUSED, trouble)
    return act.ended(Outcome.UNCONFIRMED, code_of(trouble))
