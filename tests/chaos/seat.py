"""A seat: one worker after the other, what is done to it in the middle of a batch, and what follows from its answer.

It does what Lambda does for one sandbox: invokes, waits, and kills what has not answered by the time-out. Beside that,
some workers are killed at random, and some are frozen until long after their leases have ended, and then go on as if
nothing had been.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from tests.chaos.deck import Deck
from tests.chaos.log import Broken, Freeze, Invocation, Kill, now_ms
from tests.chaos.settings import TIMEOUT_SECONDS, VISIBILITY_SECONDS

if TYPE_CHECKING:
    from tests.chaos.mapping import Mapping
    from tests.chaos.process import Worker

PAUSE_SECONDS = 0.05
LOOK_SECONDS = 0.005
KILLED_SECONDS = (0.0, 0.4)
"""When in an invocation a worker is killed: at any point, from its first request to its answer."""
FROZEN_SECONDS = (0.0, 0.1)
"""How long after its first handler has started a worker is frozen."""
FROZEN_LONGER_SECONDS = (0.8, 2.4)
"""How long it stays frozen after its messages are visible again, so that others have taken its claims over."""
MEET_SECONDS = 1.0
LATER_SECONDS = (1.0, 8.0)
AGAIN_IN = 12
"""Of so many batches one is given out twice at once, and one again later."""
FORGOTTEN_IN = 100
"""Of so many acknowledgements one is not told to SQS."""


class Blow(Enum):
    """What is done to a worker in the middle of an invocation."""

    KILL = auto()
    FREEZE = auto()


class Repetition(Enum):
    """How a batch is given out a second time."""

    AT_ONCE = auto()
    LATER = auto()


@dataclass(frozen=True)
class Batch:
    """An event, and whether it was given out before."""

    event: dict[str, Any]
    again: bool = False
    due_seconds: float = 0.0
    taken: threading.Event = field(default_factory=threading.Event)

    @property
    def keys(self) -> list[str]:
        """The messages' ids."""
        return [record["messageId"] for record in self.event["Records"]]


class Seat:
    """One worker after the other."""

    def __init__(self, mapping: Mapping, number: int, seed: int, blow_in: int) -> None:
        self._mapping = mapping
        self._chance = chance = random.Random(f"{seed} seat {number}")
        self._blows = Deck(chance, (Blow.KILL, Blow.FREEZE), blow_in)
        self._repetitions = Deck(chance, tuple(Repetition), AGAIN_IN)
        self._worker: Worker | None = None

    def work(self) -> None:
        """Until the mapping is over."""
        while not self._mapping.over:
            worker = self._worker = self._worker or self._mapping.start_worker()
            batch = self._mapping.next_batch()
            if batch is None:
                time.sleep(PAUSE_SECONDS)
                continue
            try:
                self._invoke(worker, batch)
            finally:
                self._mapping.idle()

    def _invoke(self, worker: Worker, batch: Batch) -> None:
        calm = self._mapping.calm.is_set()
        if not batch.again and not calm:
            self._repeat(batch)
        begun = time.monotonic()
        self._mapping.note(Invocation(at_ms=now_ms(), worker=worker.name, keys=batch.keys, again=batch.again))
        worker.send(batch.event)
        blow = None if calm else self._blows.draw()
        answer = self._answer(worker, blow, begun)
        if self._mapping.over:
            return
        if answer is not None:
            if blow is not None:
                self._blows.put_back(blow)  # it came too late
            self._acknowledge(worker, batch, answer)
        elif worker.gone:
            self._mapping.note(Broken(at_ms=now_ms(), worker=worker.name, why="the worker died by itself"))
            self._kill(worker, overdue=False)
        elif blow is Blow.FREEZE:
            self._freeze(worker, begun)
        else:
            self._kill(worker, overdue=blow is None)

    def _answer(self, worker: Worker, blow: Blow | None, begun: float) -> Any:
        """The worker's answer; None once it is time for the blow, or for the time-out."""
        ends = begun + TIMEOUT_SECONDS
        if blow is None:
            return worker.answer(ends)
        if blow is Blow.KILL:
            return worker.answer(begun + self._chance.uniform(*KILLED_SECONDS))
        # Frozen before it holds a claim, it would wake up as nobody's zombie.
        while not worker.handling and not worker.gone and time.monotonic() < ends:
            if (answer := worker.answer(time.monotonic() + LOOK_SECONDS)) is not None:
                return answer
        return worker.answer(time.monotonic() + self._chance.uniform(*FROZEN_SECONDS))

    def _repeat(self, batch: Batch) -> None:
        match self._repetitions.draw():
            case Repetition.AT_ONCE:
                twin = Batch(batch.event, again=True)
                self._mapping.give_out_again(twin)
                twin.taken.wait(MEET_SECONDS)
            case Repetition.LATER:
                due = time.monotonic() + self._chance.uniform(*LATER_SECONDS)
                self._mapping.give_out_again(Batch(batch.event, again=True, due_seconds=due))

    def _kill(self, worker: Worker, *, overdue: bool) -> None:
        worker.signal(signal.SIGKILL)
        self._mapping.note(Kill(at_ms=now_ms(), worker=worker.name, overdue=overdue))
        self._mapping.end(worker)
        self._worker = None

    def _freeze(self, worker: Worker, begun: float) -> None:
        self._mapping.note(Freeze(at_ms=now_ms(), worker=worker.name))
        worker.signal(signal.SIGSTOP)
        self._mapping.haunt(worker, begun + VISIBILITY_SECONDS + self._chance.uniform(*FROZEN_LONGER_SECONDS))
        self._worker = None

    def _acknowledge(self, worker: Worker, batch: Batch, answer: Any) -> None:
        failed = _failures(answer)
        if failed is None or not failed <= set(batch.keys):
            self._mapping.note(Broken(at_ms=now_ms(), worker=worker.name, why=json.dumps(answer)[:500]))
            return
        done = [record for record in batch.event["Records"] if record["messageId"] not in failed]
        self._mapping.delete(worker, done, lambda: self._chance.randrange(FORGOTTEN_IN) == 0)


def _failures(answer: Any) -> set[str] | None:
    """The ids that an answer lists; None for what Lambda would not take for an answer."""
    try:
        return {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    except (KeyError, TypeError):
        return None
