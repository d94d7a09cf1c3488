"""Moves dead letters back to their queue and drops those that are done, by tens, no faster than the rate.

A copy is sent first, and the dead letter is deleted only once SQS has confirmed the copy. So a crash at any point loses
nothing, and a message that was moved twice is recognised by the key that it carries. On a FIFO queue, the dead letters
of a group go one after another in their order; where SQS refuses one, the rest of its group stays.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from idempotent_receiver.operations.dead_letters.queue import A_CALL, DeadLetterQueue, chunks
from idempotent_receiver.operations.dead_letters.triage import Decision, Verdict
from idempotent_receiver.sqs.dead_letter import MOST_BYTES, size_of


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


@dataclass(slots=True)
class Mover:
    """Carries decisions out and notes in `summary` what became of each; `stopped` is asked between requests."""

    source: DeadLetterQueue
    queue_url: str
    rate: float
    summary: Summary
    stopped: Callable[[], bool]
    on_progress: Callable[[Summary], None] = lambda summary: None
    moved_ids: set[str] = field(default_factory=set)
    """The records' ids of all that was moved."""
    _due_seconds: float = 0.0

    def drop(self, done: Sequence[Decision]) -> None:
        """Delete what is done."""
        for chunk in chunks(done):
            if self.stopped():
                return
            if held := self._held(chunk):
                self.summary.dropped += self._delete(held)
            self.on_progress(self.summary)

    def move(self, moves: Sequence[Decision]) -> None:
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
            self.on_progress(self.summary)

    def _send(self, batch: Sequence[Decision]) -> set[str]:
        """Send copies and delete what SQS has confirmed; returns the ids of the dead letters that were sent."""
        held = self._held(batch)
        if not held:
            return set()
        self._pace(len(held))
        entries: Any = [{"Id": str(place), **each.dead_letter.copy()} for place, each in enumerate(held)]
        answer = self.source.sqs.send_message_batch(QueueUrl=self.queue_url, Entries=entries)
        sent = [held[int(each["Id"])] for each in answer.get("Successful", [])]
        for refused in answer.get("Failed", []):
            self.summary.skip(held[int(refused["Id"])], f"SQS refused its copy: {refused['Code']}")
        self.summary.moved += len(sent)
        self.moved_ids.update(each.dead_letter.record_id for each in sent)
        if sent:
            self._delete(sent)
        return {each.dead_letter.id for each in sent}

    def _held(self, batch: Sequence[Decision]) -> list[Decision]:
        ids = self.source.still_held([each.dead_letter.id for each in batch])
        for each in batch:
            if each.dead_letter.id not in ids:
                self.summary.skip(each, "it is no longer held: somebody else may be handling it")
        return [each for each in batch if each.dead_letter.id in ids]

    def _delete(self, batch: Sequence[Decision]) -> int:
        """Delete dead letters; returns how many SQS deleted."""
        failed = self.source.delete([each.dead_letter.id for each in batch])
        for each in batch:
            if each.dead_letter.id in failed:
                self.summary.undeleted.append(replace(each, why=_undeleted(each, failed[each.dead_letter.id])))
        return len(batch) - len(failed)

    def _pace(self, messages: int) -> None:
        now = self.source.clock.monotonic_seconds()
        if self._due_seconds > now:
            self.source.clock.sleep(self._due_seconds - now)
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
