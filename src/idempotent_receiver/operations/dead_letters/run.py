"""A run over dead letters: it takes them, decides on each, and carries out the resulting plan in waves. It can be
stopped between waves.

A wave writes its acts to the history, carries them out (`verbs.py`), and confirms them. A crash at any point loses
nothing: unfinished dead letters reappear, and every step is safe to repeat. SQS delivers at most ten messages of a FIFO
group at a time, so a run works through a group in rounds.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from idempotent_receiver.operations.dead_letters.following import ReturnedMessage
from idempotent_receiver.operations.dead_letters.history import ActOutcome
from idempotent_receiver.operations.dead_letters.journal import Journal
from idempotent_receiver.operations.dead_letters.queue import A_CALL, DEFAULT_RATE
from idempotent_receiver.operations.dead_letters.selection import Plan, Selection
from idempotent_receiver.operations.dead_letters.session import Session
from idempotent_receiver.operations.dead_letters.steps import ActFailure, Steps
from idempotent_receiver.operations.dead_letters.triage import Decision
from idempotent_receiver.operations.dead_letters.verbs import Disposition, Dispositions

MAX_ROUNDS = 10_000
MAX_A_WAVE = 100
WAVE_SECONDS = 0.25
"""A wave has about as many messages as the rate allows in this time, in whole batches, to avoid bursts."""

BEYOND_LIMIT = "over --limit: run again"
DECLINED = "the operator did not confirm it"
UNFINISHED = "the run ended first"
STAYS_BEHIND = "an earlier dead letter in its group stays"


class DeadLetterResult(NamedTuple):
    """A run's result for one dead letter, without the body. `outcome` is None if nothing was done and the dead letter
    stays.
    """

    message_id: str
    key: str
    verdict: str
    reason: str
    why: str
    outcome: ActOutcome | None = None
    verb: str | None = None
    deleted: bool = False

    @classmethod
    def of(cls, decision: Decision, why: str | None = None, **of: object) -> "DeadLetterResult":
        """The result for a decision; `why` defaults to the verdict's reason."""
        letter = decision.dead_letter
        why = decision.why if why is None else why
        return cls(letter.id, letter.key, decision.verdict.value, decision.reason, why, **of)  # type: ignore[arg-type]


@dataclass(slots=True)
class Summary:
    """A run's results so far: `done` counts acts by verb, and `letters` has one entry per dead letter.

    `unseen` is the approximate number of dead letters not read.
    """

    done: Counter[str] = field(default_factory=Counter)
    letters: list[DeadLetterResult] = field(default_factory=list)
    beyond_limit: bool = False
    unseen: int = 0

    @property
    def acted(self) -> int:
        """The number of dead letters acted on."""
        return self.done.total()

    @property
    def left(self) -> list[DeadLetterResult]:
        """The dead letters that stay: nothing was done, or the act is unconfirmed."""
        return [each for each in self.letters if each.outcome is not ActOutcome.DONE]

    @property
    def undeleted(self) -> list[DeadLetterResult]:
        """The dead letters that were acted on but not deleted: they will reappear."""
        return [each for each in self.letters if each.outcome is ActOutcome.DONE and not each.deleted]

    def skip(self, decision: Decision, why: str | None = None) -> None:
        """Record that a dead letter stays."""
        self.letters.append(DeadLetterResult.of(decision, why))


OnProgress = Callable[[Summary], None]
"""Called after every wave and at the end of a run."""


@dataclass
class Run:
    """One run in a session: `plan`, then `carry_out` or `decline` the plan. `stopped` is checked between waves.

    `dispositions` maps a verdict to what is done; dead letters with any other verdict stay. The consumer gets at most
    `rate` messages per second. `summary` holds the result for each dead letter; `journal` records each act.
    """

    session: Session
    dispositions: Dispositions
    steps: Steps
    selection: Selection = field(default_factory=Selection)
    rate: float = DEFAULT_RATE
    journal: Journal | None = None
    stopped: Callable[[], bool] = lambda: False
    summary: Summary = field(default_factory=Summary)

    def __post_init__(self) -> None:
        self._source = self.session.source
        self.summary.done.update({each.verb: 0 for each in self.dispositions.values()})
        self.returned: dict[str, ReturnedMessage] = {}
        """All messages sent back to the consumer, by record id."""
        self._pending: dict[str, Decision] = {}
        self._stopped_lines: set[str] = set()
        """The lines in which a redrive failed: later messages, which SQS delivers in the next round, must stay."""
        self._due_seconds = 0.0

    def plan(self) -> Plan:
        """A plan for the selected dead letters that can be taken now. Carries out nothing."""
        return self._planned(self.session.take(stopped=self.stopped))

    def carry_out(self, plan: Plan, on_progress: OnProgress = lambda summary: None) -> None:
        """Carry out the plan, then plan and process any dead letters that appear after it.

        The plan is emptied along the way, so that no large body is kept after its dead letter is processed.
        """
        following: Plan | None = plan
        for _ in range(MAX_ROUNDS):
            if following is None:
                break
            self._round(following, on_progress)
            if self.stopped() or self.summary.acted == self.selection.limit or not self._source.more:
                break
            following = self._following()
        # Dead letters that SQS did not deliver: beyond what a run may hold, or blocked in their group.
        if self._source.more and self.selection.planned is None:
            self.summary.unseen = self._source.unseen()
        on_progress(self.summary)

    def _following(self) -> Plan | None:
        """The plan for dead letters that have appeared since; None if nothing has appeared."""
        taken = self.session.take(stopped=self.stopped)
        return self._planned(taken) if taken else None

    def decline(self, plan: Plan) -> None:
        """Record that everything in the plan stays, because the operator did not confirm it."""
        for each in (*plan.acting, *plan.beyond):
            self.summary.skip(each, DECLINED)
        for each in (*plan.changed, *plan.staying):
            self.summary.skip(each)

    def _planned(self, taken: Sequence[Decision]) -> Plan:
        """A plan for the selected dead letters. Leaves out those that this run already sent back, to avoid an endless
        loop, and those behind a failed redrive.
        """
        fresh = []
        for each in filter(self.selection.includes, taken):
            if self._source.refills and each.dead_letter.record_id in self.returned:
                self.summary.skip(each, "this run already sent back a message with its key")
            elif each.dead_letter.line in self._stopped_lines:
                self.summary.skip(each, STAYS_BEHIND)
            else:
                fresh.append(each)
        return self.selection.plan(fresh, self.summary.acted, self.dispositions)

    def _round(self, plan: Plan, on_progress: OnProgress) -> None:
        for each in (*plan.changed, *plan.staying):
            self.summary.skip(each)
        for each in plan.beyond:
            self.summary.skip(each, BEYOND_LIMIT)
        self.summary.beyond_limit |= bool(plan.beyond)
        self._pending = {each.dead_letter.id: each for each in plan.acting}
        plan.clear()
        try:
            for disposition in dict.fromkeys(self.dispositions.values()):
                self._all(disposition, on_progress)
        finally:
            for each in list(self._pending.values()):
                self._skip(each, UNFINISHED)

    def _all(self, disposition: Disposition, on_progress: OnProgress) -> None:
        """Process the decisions in waves. A wave sends back one message per FIFO group, so that nothing overtakes a
        refused message.
        """
        lines: dict[str, deque[Decision]] = {}
        for each in (each for each in self._pending.values() if self.dispositions[each.verdict] == disposition):
            name = each.dead_letter.line if disposition.returns else each.dead_letter.id
            lines.setdefault(name, deque()).append(each)
        size = _wave_size(self.rate) if disposition.returns else MAX_A_WAVE
        while lines and not self.stopped():
            wave = {name: line.popleft() for name, line in islice(lines.items(), size)}
            acted_on = self._wave(disposition, list(wave.values()))
            for name, each in wave.items():
                if each.dead_letter.id not in acted_on:
                    if disposition.returns:
                        self._stopped_lines.add(name)
                    for behind in lines[name]:
                        self._skip(behind, STAYS_BEHIND)
                    lines[name].clear()
                if not lines[name]:
                    del lines[name]
            on_progress(self.summary)

    def _wave(self, disposition: Disposition, wave: Sequence[Decision]) -> set[str]:
        """Begin, carry out and confirm the acts. Returns the ids acted on, deleted or not."""
        held = self._held(wave)
        if not held:
            return set()
        if disposition.returns:
            self._pace(len(held))
        begun = [] if self.journal is None else self.journal.begin(disposition, held)
        failed, undeleted = self.steps.carry_out(disposition, held)
        self._note(disposition, held, failed, undeleted)
        if self.journal is not None:
            self.journal.confirm(begun, {id: (each.outcome, each.code) for id, each in failed.items()})
        for failure in (*failed.values(), *undeleted.values()):
            if failure.error is not None:
                raise failure.error
        return {each.dead_letter.id for each in held} - set(failed)

    def _note(
        self,
        disposition: Disposition,
        held: Sequence[Decision],
        failed: Mapping[str, ActFailure],
        undeleted: Mapping[str, ActFailure],
    ) -> None:
        """Record the result for each dead letter."""
        for each in held:
            id = each.dead_letter.id
            del self._pending[id]
            failure, kept = failed.get(id), undeleted.get(id)
            why = None if failure is None else failure.why
            if failure is None and kept is not None:
                why = f"it could not be deleted: {kept.why}; {disposition.undeleted}"
            outcome = ActOutcome.DONE if failure is None else failure.outcome
            deleted = failure is None and kept is None
            self.summary.letters.append(
                DeadLetterResult.of(each, why, outcome=outcome, verb=disposition.verb.value, deleted=deleted)
            )
        done = [each for each in held if each.dead_letter.id not in failed]
        self.summary.done[disposition.verb] += len(done)
        if disposition.returns:
            self.returned |= _returned(done, disposition)

    def _held(self, wave: Sequence[Decision]) -> list[Decision]:
        ids = self._source.still_held([each.dead_letter.id for each in wave])
        for each in wave:
            if each.dead_letter.id not in ids:
                self._skip(each, "it is no longer held: someone else may be handling it")
        return [each for each in wave if each.dead_letter.id in ids]

    def _skip(self, decision: Decision, why: str) -> None:
        del self._pending[decision.dead_letter.id]
        self.summary.skip(decision, why)

    def _pace(self, messages: int) -> None:
        now = self._source.clock.monotonic_seconds()
        if self._due_seconds > now:
            self._source.clock.sleep(self._due_seconds - now)
        self._due_seconds = max(now, self._due_seconds) + messages / self.rate


def _returned(decisions: Iterable[Decision], disposition: Disposition) -> dict[str, ReturnedMessage]:
    returned = {}
    for each in decisions:
        letter, version = each.dead_letter, None if each.record is None else each.record.version
        id, key = letter.record_id, letter.key
        if disposition.resend is not None:
            id, version = disposition.resend.other_id(each), None
            key = letter.key_of(id)
        returned[id] = ReturnedMessage(id, key, version)
    return returned


def _wave_size(rate: float) -> int:
    size = max(1, min(A_CALL, int(rate)), int(rate * WAVE_SECONDS))
    return min(MAX_A_WAVE, size if size < A_CALL else size // A_CALL * A_CALL)
