"""The event source mapping: receives batches, has a worker invoked with each, and deletes what it may.

As SQS may, it gives some batches out twice, to two workers at the same moment or again some time later, and some of its
deletions are forgotten.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

from local.server import ServerError
from tests.chaos.log import Acknowledged, Log, Thaw, now_ms
from tests.chaos.process import Worker
from tests.chaos.seat import Batch, Seat
from tests.chaos.settings import MESSAGES_A_BATCH, Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mypy_boto3_sqs import SQSClient

    from tests.chaos.log import Line

MOST_FROZEN = 6
AWAKE_SECONDS = 3.0
"""How long a worker that was frozen may go on: far longer than it needs to find out that it has lost its claims."""


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
            # A worker that is ended while it starts is no trouble.
            if not (self._over.is_set() and isinstance(error, ServerError)):
                self.trouble = error

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
