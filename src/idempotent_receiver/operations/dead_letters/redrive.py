"""A redrive in a session with a dead-letter queue: dead letters are taken and decided about, which makes a plan; then
they are moved, round by round, and that may be stopped at any point.

A copy is sent first, and the dead letter is deleted only once SQS has confirmed the copy. So a crash at any point loses
nothing, and a message that was moved twice is recognised by the key that it carries.
A FIFO queue gives out no more than ten messages of a group, so it is worked through in rounds.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Self

from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.queue import A_CALL, MAX_A_ROUND, DeadLetterQueue, chunks
from idempotent_receiver.operations.dead_letters.selection import Plan, Selection
from idempotent_receiver.operations.dead_letters.triage import Decision, Rules, Verdict, triage
from idempotent_receiver.protocol.store import RecordStore
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, size_of

MAX_ROUNDS = 10_000
BEYOND_LIMIT = "more than --limit allows: run again for it"
UNCONFIRMED = "it was not confirmed"


@dataclass(slots=True)
class Summary:
    """What a redrive has done so far.

    `undeleted` were sent, or are done, but SQS did not delete them: they come up again. `unseen` is about how many dead
    letters were never looked at.
    """

    moved: int = 0
    dropped: int = 0
    left: list[Decision] = field(default_factory=list)
    undeleted: list[Decision] = field(default_factory=list)
    beyond_limit: bool = False
    unseen: int = 0

    @property
    def acted(self) -> int:
        """How many dead letters were moved or dropped."""
        return self.moved + self.dropped

    def skip(self, decision: Decision, why: str | None = None) -> None:
        """Note that a dead letter stays: for its verdict's reason, unless another is given."""
        self.left.append(replace(decision, why=why or decision.why))


Progress = Callable[[Summary], None]
"""Told after each request."""


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
        ids = list(dict.fromkeys(each.record_id for each in taken if each.unkeyed is None))
        found = dict(zip(ids, self.store.read(ids), strict=True))
        return [triage(each, found.get(each.record_id), now_ms, self.rules) for each in taken]


@dataclass
class Redrive:
    """One redrive in a session: `plan` it, then `run` or `decline` the plan. `stopped` is asked between requests.

    It goes by tens, no faster than `rate` messages a second, and notes in `summary` what became of each.
    """

    session: Session
    queue_url: str
    selection: Selection = field(default_factory=Selection)
    rate: float = 100.0
    stopped: Callable[[], bool] = lambda: False
    summary: Summary = field(default_factory=Summary)

    def __post_init__(self) -> None:
        self._queue = self.session.queue
        self._moved_ids: set[str] = set()  # the records' ids of all that was moved
        self._due_seconds = 0.0

    def plan(self) -> Plan:
        """What would be done with the selected dead letters that SQS gives out now. Nothing is done yet."""
        return self._planned(self.session.take(stopped=self.stopped))

    def run(self, plan: Plan, on_progress: Progress = lambda summary: None) -> None:
        """Carry the plan out, and then do the same with what comes up behind it."""
        for _ in range(MAX_ROUNDS):
            self._carry_out(plan, on_progress)
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
            if each.dead_letter.record_id in self._moved_ids:
                self.summary.skip(each, "this run has moved it already, and it failed again")
            else:
                fresh.append(each)
        return self.selection.plan(fresh, self.summary.acted)

    def _carry_out(self, plan: Plan, on_progress: Progress) -> None:
        for each in plan.staying:
            self.summary.skip(each)
        for each in plan.beyond:
            self.summary.skip(each, BEYOND_LIMIT)
        self.summary.beyond_limit |= bool(plan.beyond)
        self._drop([each for each in plan.acting if each.verdict is Verdict.DONE], on_progress)
        self._move([each for each in plan.acting if each.verdict is Verdict.MOVE], on_progress)

    def _drop(self, done: Sequence[Decision], on_progress: Progress) -> None:
        """Delete what is done."""
        for chunk in chunks(done):
            if self.stopped():
                return
            if held := self._held(chunk):
                self.summary.dropped += self._delete(held)
            on_progress(self.summary)

    def _move(self, moves: Sequence[Decision], on_progress: Progress) -> None:
        """Send and delete by tens; of a FIFO group one at a time, so that nothing overtakes a refused one."""
        lines: dict[str, deque[Decision]] = {}
        for each in moves:
            lines.setdefault(each.dead_letter.line, deque()).append(each)
        while lines and not self.stopped():
            batch = _fitting(islice((line[0] for line in lines.values()), max(1, min(A_CALL, int(self.rate)))))
            sent = self._send(batch)
            for each in batch:
                line = lines[each.dead_letter.line]
                line.popleft()
                if each.dead_letter.id not in sent:
                    for behind in line:
                        self.summary.skip(behind, "an earlier dead letter of its group stays")
                    line.clear()
                if not line:
                    del lines[each.dead_letter.line]
            on_progress(self.summary)

    def _send(self, batch: Sequence[Decision]) -> set[str]:
        """Send copies and delete what SQS has confirmed; returns the ids of the dead letters that were sent."""
        held = self._held(batch)
        if not held:
            return set()
        self._pace(len(held))
        entries: Any = [{"Id": str(place), **each.dead_letter.copy()} for place, each in enumerate(held)]
        answer = self._queue.sqs.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
        sent = [held[int(each["Id"])] for each in answer.get("Successful", [])]
        for refused in answer.get("Failed", []):
            self.summary.skip(held[int(refused["Id"])], f"SQS refused its copy: {refused['Code']}")
        self.summary.moved += len(sent)
        self._moved_ids.update(each.dead_letter.record_id for each in sent)
        if sent:
            self._delete(sent)
        return {each.dead_letter.id for each in sent}

    def _held(self, batch: Sequence[Decision]) -> list[Decision]:
        ids = self._queue.still_held([each.dead_letter.id for each in batch])
        for each in batch:
            if each.dead_letter.id not in ids:
                self.summary.skip(each, "it is no longer held: somebody else may be handling it")
        return [each for each in batch if each.dead_letter.id in ids]

    def _delete(self, batch: Sequence[Decision]) -> int:
        """Delete dead letters; returns how many SQS deleted."""
        failed = self._queue.delete([each.dead_letter.id for each in batch])
        for each in batch:
            if each.dead_letter.id in failed:
                self.summary.undeleted.append(replace(each, why=_undeleted(each, failed[each.dead_letter.id])))
        return len(batch) - len(failed)

    def _pace(self, messages: int) -> None:
        now = self._queue.clock.monotonic_seconds()
        if self._due_seconds > now:
            self._queue.clock.sleep(self._due_seconds - now)
        self._due_seconds = max(now, self._due_seconds) + messages / self.rate


def _undeleted(decision: Decision, code: str) -> str:
    """What it means that a dead letter is still there."""
    if decision.verdict is Verdict.DONE:
        return f"SQS did not delete it: {code}; it is done, and the next redrive drops it"
    return f"its copy was sent, but SQS did not delete it: {code}; it is there twice, and its record lets it run once"


def _fitting(decisions: Iterable[Decision]) -> list[Decision]:
    """As many of them, in order, as one call may carry: SQS counts its 1 MiB over the whole batch."""
    batch: list[Decision] = []
    size = 0
    for each in decisions:
        copy = each.dead_letter.copy()
        size += size_of(copy["MessageBody"], copy["MessageAttributes"])
        if batch and size > MOST_BYTES:
            break
        batch.append(each)
    return batch
