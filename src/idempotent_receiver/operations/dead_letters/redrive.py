"""A redrive in a session with a dead-letter queue: dead letters are taken and decided about, which makes a plan; then
they are moved, round by round, and that may be stopped at any point.

A FIFO queue gives out no more than ten messages of a group, so it is worked through in rounds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Self

from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.mover import Mover, Summary
from idempotent_receiver.operations.dead_letters.queue import MAX_A_ROUND, DeadLetterQueue
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, Verdict, triage
from idempotent_receiver.operations.records import read_all
from idempotent_receiver.protocol.store import RecordStore

MAX_ROUNDS = 10_000
BEYOND_LIMIT = "more than --limit allows: run again for it"
UNCONFIRMED = "it was not confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What dead letters are taken, read and decided with. Leaving it releases all that it holds."""

    queue: DeadLetterQueue
    reader: Reader
    store: RecordStore
    rules: Rules

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.release()

    def take(self, most: int = MAX_A_ROUND, stopped: Callable[[], bool] = lambda: False) -> list[Decision]:
        """Decisions about up to about `most` dead letters that were not taken before."""
        received = self.queue.take(most, stopped)
        now_ms = self.queue.clock.epoch_ms()
        taken = [self.reader.read(raw, now_ms) for raw in received]
        found = read_all(self.store, list(dict.fromkeys(each.record_id for each in taken if each.unkeyed is None)))
        return [triage(each, found.get(each.record_id), now_ms, self.rules) for each in taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Decisions about selected dead letters: which to carry out, which only the limit prevents, and which stay."""

    decisions: Sequence[Decision]
    acting: Sequence[Decision]
    beyond: Sequence[Decision]
    staying: Sequence[Decision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which dead letters the operator means. `limit` bounds how many are moved or dropped.

    `reason` is a part of the reason or of the error's type, in upper or lower case.
    """

    reason: str | None = None
    keys: frozenset[str] = frozenset()
    limit: int | None = None

    @property
    def all(self) -> bool:
        """Whether every dead letter is meant."""
        return self.reason is None and not self.keys

    def includes(self, decision: Decision) -> bool:
        """Whether this dead letter is meant."""
        if self.keys and decision.dead_letter.key not in self.keys:
            return False
        cause = f"{decision.reason} {decision.error_type or ''}".casefold()
        return self.reason is None or self.reason.casefold() in cause

    def plan(self, decisions: Sequence[Decision], acted: int) -> Plan:
        """What to do with included dead letters once `acted` were moved or dropped."""
        acts = [each for each in decisions if each.acts]
        staying = [each for each in decisions if not each.acts]
        room = len(acts) if self.limit is None else max(0, self.limit - acted)
        return Plan(decisions=decisions, acting=acts[:room], beyond=acts[room:], staying=staying)


@dataclass
class Redrive:
    """One redrive in a session: `plan` it, then `run` or `decline` the plan. `stopped` is asked between requests."""

    session: Session
    queue_url: str
    selection: Selection = Selection()
    rate: float = 100.0
    stopped: Callable[[], bool] = lambda: False
    summary: Summary = field(default_factory=Summary)

    def __post_init__(self) -> None:
        self._queue = self.session.queue
        self._mover = Mover(self._queue, self.queue_url, self.rate, self.summary, self.stopped)

    def plan(self) -> Plan:
        """What would be done with the selected dead letters that SQS gives out now. Nothing is done yet."""
        return self._planned(self.session.take(stopped=self.stopped))

    def run(self, plan: Plan, on_progress: Callable[[Summary], None] = lambda summary: None) -> None:
        """Carry the plan out, and then do the same with what comes up behind it."""
        self._mover.on_progress = on_progress
        for _ in range(MAX_ROUNDS):
            self._carry_out(plan)
            if self.stopped() or self.summary.acted == self.selection.limit or not self._queue.more:
                break
            if self._queue.fifo:
                # While the first of a group are held, SQS gives out nothing behind them.
                self._queue.release()
            taken = self.session.take(stopped=self.stopped)
            if not taken:
                break
            plan = self._planned(taken)
        # There, but not given out: more than a run may hold, or behind what stays in its group.
        if self._queue.more:
            self.summary.unseen = self._queue.unseen()
        on_progress(self.summary)

    def decline(self, plan: Plan) -> None:
        """Note that all of the plan stays, because it was not confirmed."""
        for each in plan.decisions:
            self.summary.skip(each, UNCONFIRMED if each.acts else None)

    def _planned(self, taken: Sequence[Decision]) -> Plan:
        """A plan for the selected ones that this run has not moved already: they would go round and round."""
        fresh = []
        for each in filter(self.selection.includes, taken):
            if each.dead_letter.record_id in self._mover.moved_ids:
                self.summary.skip(each, "this run has moved it already, and it failed again")
            else:
                fresh.append(each)
        return self.selection.plan(fresh, self.summary.acted)

    def _carry_out(self, plan: Plan) -> None:
        for each in plan.staying:
            self.summary.skip(each)
        for each in plan.beyond:
            self.summary.skip(each, BEYOND_LIMIT)
        self.summary.beyond_limit |= bool(plan.beyond)
        self._mover.drop([each for each in plan.acting if each.verdict is Verdict.DONE])
        self._mover.move([each for each in plan.acting if each.verdict is Verdict.MOVE])
