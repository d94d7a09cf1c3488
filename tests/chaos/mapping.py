"""The event source mapping, and the end of workers: receives batches, invokes a worker with each, deletes what it may.

A seat is one worker at a time and a thread of ours that keeps it busy, as Lambda keeps a sandbox. A worker that has not
answered by its time-out is killed. Beside that, some are killed at random, and some are frozen in the middle of a batch
until long after their leases have ended, and then go on as if nothing had been. Some batches are given out twice: to
two workers at the same moment, or again some time later. Some deletions are forgotten.
"""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Self

from local.server import ServerError
from tests.chaos.deck import Deck
from tests.chaos.log import Acknowledged, Broken, Freeze, Invocation, Kill, Log, Thaw, now_ms
from tests.chaos.process import Worker
from tests.chaos.settings import MESSAGES_A_BATCH, TIMEOUT_SECONDS, VISIBILITY_SECONDS, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_sqs import SQSClient

    from tests.chaos.log import Line

PAUSE_SECONDS = 0.05
LOOK_SECONDS = 0.005
KILLED_SECONDS = (0.0, 0.4)
"""When in an invocation a worker is killed: at any point, from its first request to its answer."""
FROZEN_SECONDS = (0.0, 0.1)
"""How long after its first handler has started a worker is frozen."""
MOST_FROZEN = 6
AWAKE_SECONDS = 3.0
"""How long a worker that was frozen may go on: far longer than it needs to find out that it has lost its claims."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The queue that is mapped."""

    sqs: SQSClient
    url: str
    arn: str


class Mapping:
    """The mapping with all its seats; `with` starts it, and ends it with everything that it has started."""

    def __init__(self, queue: Queue, settings: Settings, log: Log, *, seats: int, seed: int, blow_in: int) -> None:
        self._queue = queue
        self._settings = settings
        self._log = log
        self._seed = seed
        self._blow_in = blow_in
        self._lock = threading.Lock()
        self._again: list[Batch] = []
        self._workers: set[Worker] = set()
        self._number = 0
        self.counts: Counter[str] = Counter()
        self._busy = 0
        self._over = threading.Event()
        self.calm = threading.Event()
        """Once it is set, nobody is killed or frozen any more, and nothing given out twice: what is left must end."""
        self._frozen = ThreadPoolExecutor(MOST_FROZEN)
        self._ghosts: list[Future[None]] = []
        self._threads = [threading.Thread(target=self._keep, args=(seat,), daemon=True) for seat in range(seats)]
        self.trouble: BaseException | None = None

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        # Whatever a seat waits for, it is a worker: without one it looks up.
        for worker in self._living():
            worker.signal(signal.SIGKILL)
        for thread in self._threads:
            thread.join()
        self._frozen.shutdown(cancel_futures=True)
        for worker in self._living():
            worker.close()

    @property
    def quiet(self) -> bool:
        """Whether nothing is under way, and nothing will be that is not in the queue."""
        with self._lock:
            return not self._busy and not self._again and all(ghost.done() for ghost in self._ghosts)

    # A seat, in a thread of its own.

    def _keep(self, seat: int) -> None:
        try:
            Seat(self, seat, self._seed, self._blow_in).work()
        except Exception as error:  # noqa: BLE001  # for whoever waits for the end to raise
            # A worker that is ended while it starts is none.
            self.trouble = None if self._over.is_set() and isinstance(error, ServerError) else error

    def next_batch(self) -> Batch | None:
        """What to invoke a worker with: a batch that is due again, or else what the queue has."""
        with self._lock:
            due = next((batch for batch in self._again if batch.due_seconds <= time.monotonic()), None)
            if due is not None:
                self._again.remove(due)
                self._busy += 1
                due.taken.set()
                return due
        batch = self._received()  # until its messages are deleted, the queue knows that they are under way
        if batch is not None:
            with self._lock:
                self._busy += 1
        return batch

    def idle(self) -> None:
        """A batch is over."""
        with self._lock:
            self._busy -= 1

    @property
    def over(self) -> bool:
        """Whether everything is to end."""
        return self._over.is_set()

    def _received(self) -> Batch | None:
        answer = self._queue.sqs.receive_message(
            QueueUrl=self._queue.url,
            MaxNumberOfMessages=MESSAGES_A_BATCH,
            WaitTimeSeconds=0,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        messages = answer.get("Messages", [])
        return Batch({"Records": [self._record(message) for message in messages]}) if messages else None

    def _record(self, message: Any) -> dict[str, Any]:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {},
            "eventSource": "aws:sqs",
            "eventSourceARN": self._queue.arn,
        }

    def give_out_again(self, batch: Batch) -> None:
        """Give this batch to the next seat that is free when it is due."""
        with self._lock:
            self._again.append(batch)

    def start_worker(self) -> Worker:
        """A new process."""
        with self._lock:
            self._number += 1
            name = f"w{self._number:04}"
        folder = self._settings.log
        worker = Worker(replace(self._settings, worker=name, log=f"{folder}/worker-{name}.jsonl"))
        with self._lock:
            self._workers.add(worker)
        return worker

    def end(self, worker: Worker) -> None:
        """End a process."""
        worker.close()
        with self._lock:
            self._workers.discard(worker)

    def _living(self) -> Sequence[Worker]:
        with self._lock:
            return list(self._workers)

    def note(self, line: Line) -> None:
        """Log what was done."""
        self._log.write(line)
        with self._lock:
            self.counts[type(line).__name__] += 1

    def delete(self, worker: Worker, records: Sequence[dict[str, Any]], forgotten: Callable[[], bool]) -> None:
        """Acknowledge messages: from here on the worker's answer has had its consequence."""
        kept = []
        for record in records:
            deleted = not forgotten()
            self.note(Acknowledged(at_ms=now_ms(), worker=worker.name, key=record["messageId"], deleted=deleted))
            kept += [record] if deleted else []
        if kept:
            entries: Any = [{"Id": str(n), "ReceiptHandle": record["receiptHandle"]} for n, record in enumerate(kept)]
            self._queue.sqs.delete_message_batch(QueueUrl=self._queue.url, Entries=entries)

    def haunt(self, worker: Worker, thaw_seconds: float) -> None:
        """Leave a frozen worker alone until then, let it go on for a while, and end it."""
        with self._lock:
            self._ghosts = [ghost for ghost in self._ghosts if not ghost.done()]
            self._ghosts.append(self._frozen.submit(self._haunt, worker, thaw_seconds))

    def _haunt(self, worker: Worker, thaw_seconds: float) -> None:
        self._over.wait(thaw_seconds - time.monotonic())
        self.note(Thaw(at_ms=now_ms(), worker=worker.name))
        worker.signal(signal.SIGCONT)
        worker.answer(time.monotonic() + AWAKE_SECONDS)  # nobody acts on it: to Lambda it timed out long ago
        self.end(worker)


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
