"""Bringing dead letters back: a plan of what would be done, and then the moving, which may be stopped at any point.

A letter is sent before it is deleted, and deleted only once SQS has confirmed the copy. So a crash at any point loses
nothing, and a letter that was moved twice is recognised by the key that it carries. Records are read consistently, a
hundred at a time; messages go by tens, no faster than the rate; what was taken and not moved is given back.

On a FIFO queue the letters of a group go in their order, one after another, and where SQS refuses one the rest of its
group stays for this time. SQS gives out no more than ten of a group, so such a queue is worked through in rounds.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from idempotent_receiver.clock import Clock
from idempotent_receiver.operations.letters import A_CALL, MOST_A_ROUND, DeadLetterQueue, Letter, Reader, chunks
from idempotent_receiver.operations.verdict import ACTS, Judgement, Rules, Verdict, judge
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import READS_A_CALL, RecordStore, Unknown
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, copy_of, size_of

MOST_ROUNDS = 10_000
BEYOND_LIMIT = "more than --limit allows: run again for it"
UNCONFIRMED = "it was not confirmed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """What letters are taken, read and judged with."""

    queue: DeadLetterQueue
    reader: Reader
    store: RecordStore
    rules: Rules
    clock: Clock

    def take(self, most: int = MOST_A_ROUND, stopped: Callable[[], bool] = lambda: False) -> list[Judgement]:
        """Up to about `most` letters that were not taken before, judged."""
        raws = self.queue.take(most, stopped)
        now_ms = self.clock.epoch_ms()
        letters = [self.reader.letter(raw, now_ms) for raw in raws]
        found = self._records({letter.message.record_id: None for letter in letters if letter.unkeyed is None})
        return [judge(letter, found.get(letter.message.record_id), now_ms, self.rules) for letter in letters]

    def _records(self, ids: Iterable[str]) -> dict[str, Record | Unknown | None]:
        found: dict[str, Record | Unknown | None] = {}
        for chunk in chunks(list(ids), READS_A_CALL):
            found.update(zip(chunk, self.store.read(chunk), strict=True))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which letters the operator means: `reason` is a part of the reason or of the error's type, in any case.

    `limit` bounds how many are moved or dropped.
    """

    reason: str | None = None
    keys: frozenset[str] = frozenset()
    limit: int | None = None

    @property
    def all(self) -> bool:
        """Whether every letter is meant."""
        return self.reason is None and not self.keys

    def wants(self, judgement: Judgement) -> bool:
        """Whether this letter is meant."""
        if self.keys and judgement.letter.message.key not in self.keys:
            return False
        died_of = f"{judgement.reason} {judgement.error_type or ''}".casefold()
        return self.reason is None or self.reason.casefold() in died_of

    def within(self, plan: Sequence[Judgement], acted: int = 0) -> tuple[list[Judgement], list[Judgement]]:
        """What of a plan is moved or dropped once `acted` letters were, and what only the limit keeps from it."""
        acts = [each for each in plan if _acts(each)]
        room = len(acts) if self.limit is None else max(0, self.limit - acted)
        return acts[:room], acts[room:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A letter that was meant, and stays."""

    id: str
    key: str
    verdict: Verdict
    why: str
    reason: str


@dataclass(slots=True)
class Tally:
    """What has come of a redrive so far. `undeleted` were sent, or are done, and SQS did not delete them: they come up
    again.
    """

    moved: int = 0
    dropped: int = 0
    left: list[Left] = field(default_factory=list)
    undeleted: list[Left] = field(default_factory=list)
    beyond_limit: bool = False
    unseen: int = 0
    """About how many letters were never looked at."""

    def leave(self, judgement: Judgement, why: str | None = None) -> None:
        """Note that a letter stays."""
        self.left.append(_left(judgement, judgement.why if why is None else why))


def _left(judgement: Judgement, why: str) -> Left:
    letter = judgement.letter
    return Left(id=letter.id, key=letter.message.key, verdict=judgement.verdict, why=why, reason=judgement.reason)


class Redrive:
    """One run. `plan` it, `run` the plan, and `close` it whatever happens: that gives back what is held.

    `stopped` is asked between requests.
    """

    def __init__(
        self,
        desk: Desk,
        queue_url: str,
        *,
        wanted: Wanted | None = None,
        rate: float = 100.0,
        stopped: Callable[[], bool] = lambda: False,
    ) -> None:
        self.stopped = stopped
        self.tally = Tally()
        self._desk, self._queue, self._clock = desk, desk.queue, desk.clock
        self._queue_url = queue_url
        self._wanted = Wanted() if wanted is None else wanted
        self._rate = rate
        self._tell: Callable[[Tally], None] = lambda tally: None
        self._due_seconds = 0.0
        self._moved: set[str] = set()

    def plan(self) -> list[Judgement]:
        """The letters that are meant, judged, as far as they can be seen now. Nothing is done yet."""
        return [each for each in self._desk.take(stopped=self.stopped) if self._wanted.wants(each)]

    def run(self, plan: Sequence[Judgement], tell: Callable[[Tally], None] = lambda tally: None) -> None:
        """Do what the plan says, and then the same with what comes up behind it; `tell` is told of each step."""
        self._tell = tell
        for _ in range(MOST_ROUNDS):
            self._do(plan)
            if self.stopped() or self._acted >= self._limit or (self._queue.exhausted and not self._queue.fifo):
                break
            if self._queue.fifo:
                # While the first of a group are held, nothing behind them can be had.
                self._queue.give_back()
            taken = self._desk.take(stopped=self.stopped)
            if not taken:
                break
            plan = self._not_again(each for each in taken if self._wanted.wants(each))
        # What was not given, though it is there: more than a run may hold, or behind what stays in its group.
        if self._queue.fifo or not self._queue.exhausted:
            self.tally.unseen = self._queue.unseen()
        self._tell(self.tally)

    def leave(self, plan: Sequence[Judgement]) -> None:
        """Note that all of the plan stays, since nobody agreed to it."""
        for each in plan:
            self.tally.leave(each, UNCONFIRMED if _acts(each) else None)

    def close(self) -> None:
        """Give back what is held."""
        self._queue.give_back()

    @property
    def _acted(self) -> int:
        return self.tally.moved + self.tally.dropped

    @property
    def _limit(self) -> float:
        return float("inf") if self._wanted.limit is None else self._wanted.limit

    def _not_again(self, judgements: Iterable[Judgement]) -> list[Judgement]:
        """Without what this very run has moved, and what has died again since: else that would go round and round."""
        fresh = []
        for each in judgements:
            if each.letter.message.record_id in self._moved:
                self.tally.leave(each, "it was moved by this run already, and has died again")
            else:
                fresh.append(each)
        return fresh

    def _do(self, plan: Sequence[Judgement]) -> None:
        acts, beyond = self._wanted.within(plan, self._acted)
        for each in plan:
            if each.verdict not in ACTS:
                self.tally.leave(each)
        for each in beyond:
            self.tally.leave(each, BEYOND_LIMIT)
        self.tally.beyond_limit |= bool(beyond)
        self._drop([each for each in acts if each.verdict is Verdict.DONE])
        self._move([each for each in acts if each.verdict is Verdict.MOVE])

    def _drop(self, done: Sequence[Judgement]) -> None:
        for chunk in chunks(done):
            if self.stopped():
                return
            held = self._held(chunk)
            if held:
                self.tally.dropped += len(self._delete(held))
            self._tell(self.tally)

    def _move(self, moves: Sequence[Judgement]) -> None:
        """Send and delete by tens; of a FIFO group one at a time, so that a refused one is not overtaken."""
        lines: dict[str, deque[Judgement]] = {}
        for each in moves:
            lines.setdefault(_line_of(each.letter), deque()).append(each)
        while lines and not self.stopped():
            batch = _fitting(islice((line[0] for line in lines.values()), max(1, min(A_CALL, int(self._rate)))))
            gone = self._send(batch)
            for each in batch:
                name = _line_of(each.letter)
                lines[name].popleft()
                if each.letter.id not in gone:
                    for behind in lines[name]:
                        self.tally.leave(behind, "an earlier letter of its group stays")
                    lines[name].clear()
                if not lines[name]:
                    del lines[name]
            self._tell(self.tally)

    def _send(self, batch: Sequence[Judgement]) -> set[str]:
        """Send copies and delete what SQS has confirmed; the ids of the letters that were sent."""
        held = self._held(batch)
        if not held:
            return set()
        self._pace(len(held))
        entries: Any = [{"Id": str(place), **_copy(each.letter)} for place, each in enumerate(held)]
        answer = self._queue.sqs.send_message_batch(QueueUrl=self._queue_url, Entries=entries)
        sent = [held[int(each["Id"])] for each in answer.get("Successful", [])]
        for refused in answer.get("Failed", []):
            self.tally.leave(held[int(refused["Id"])], f"SQS refused its copy: {refused['Code']}")
        self.tally.moved += len(sent)
        self._moved.update(each.letter.message.record_id for each in sent)
        if sent:
            self._delete(sent)
        return {each.letter.id for each in sent}

    def _held(self, batch: Sequence[Judgement]) -> list[Judgement]:
        ids = self._queue.still_held([each.letter.id for each in batch])
        for each in batch:
            if each.letter.id not in ids:
                self.tally.leave(each, "it is held no longer: somebody else may be at it")
        return [each for each in batch if each.letter.id in ids]

    def _delete(self, batch: Sequence[Judgement]) -> list[Judgement]:
        failed = self._queue.delete([each.letter.id for each in batch])
        for each in batch:
            if each.letter.id in failed:
                self.tally.undeleted.append(_left(each, _undeleted(each, failed[each.letter.id])))
        return [each for each in batch if each.letter.id not in failed]

    def _pace(self, messages: int) -> None:
        now = self._clock.monotonic_seconds()
        if self._due_seconds > now:
            self._clock.sleep(self._due_seconds - now)
        self._due_seconds = max(now, self._due_seconds) + messages / self._rate


def _undeleted(judged: Judgement, code: str) -> str:
    """What it means that a letter is still there."""
    if judged.verdict is Verdict.DONE:
        return f"SQS did not delete it: {code}; it is done, and the next redrive drops it"
    return f"its copy was sent, but SQS did not delete it: {code}; it is there twice, and its record lets it run once"


def _line_of(letter: Letter) -> str:
    """What must keep its order: a FIFO group; on a standard queue each letter is by itself."""
    return letter.message.group_id or letter.id if letter.message.fifo else letter.id


def _copy(letter: Letter) -> dict[str, Any]:
    return copy_of(letter.message, letter.returning, letter.deduplication_id)


def _fitting(judgements: Iterable[Judgement]) -> list[Judgement]:
    """As many of them, in order, as one call may carry: SQS counts its 1 MiB over the whole batch."""
    batch: list[Judgement] = []
    size = 0
    for each in judgements:
        copy = _copy(each.letter)
        size += size_of(copy["MessageBody"], copy["MessageAttributes"])
        if batch and size > MOST_BYTES:
            break
        batch.append(each)
    return batch


def _acts(judged: Judgement) -> bool:
    """Whether a letter is moved or dropped, once that is agreed to."""
    return judged.verdict in ACTS
