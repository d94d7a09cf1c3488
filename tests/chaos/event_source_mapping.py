"""The event source mapping: receives batches, invokes a worker with each, and deletes what it may.

Like SQS, it delivers some batches twice, to two workers at the same moment, and forgets some deletions, so that their
messages are redelivered later.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import signal
import threading
import time
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Self

from harness.workload.evidence import Acknowledged, Broken, Delivery, Log, Thaw, now_ms
from idempotent_receiver.sqs.received import lambda_record
from tests.chaos.network_faults import LONGEST_DELAY_SECONDS
from tests.chaos.settings import Settings
from tests.chaos.worker_process import Nursery, WorkerProcess
from tests.chaos.worker_slot import WorkerSlot

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from harness.workload.evidence import Line
    from harness.workload.stack_client import StackClient
    from harness.workload.transfers import TransferMessage

MOST_FROZEN = 6
AWAKE_SECONDS = 3.0
"""How long a worker that was frozen may go on: far longer than it needs to find out that it has lost its claims."""
FORGOTTEN_IN = 20
"""One of this many acknowledgements does not reach SQS."""
SHOWN = {"Invocation": "invocations", "Kill": "killed", "Freeze": "frozen", "Thaw": "back"}


@dataclass(frozen=True)
class Batch:
    """An event, where it comes from, and whether it was delivered before. One without records asks for a sweep."""

    event: dict[str, Any]
    source: Batches
    again: bool = False
    at: float = field(default_factory=time.monotonic)
    taken: threading.Event = field(default_factory=threading.Event)

    @property
    def keys(self) -> list[str]:
        return [record["messageId"] for record in self.event["Records"]]


class Batches:
    """One consumer's batches, those that are delivered twice, and its sweeps, which redrive; threads may share them."""

    sweep_seconds = 3.0

    def __init__(self, client: StackClient, settings: Settings) -> None:
        self.client = client
        self.settings = settings
        self.twins: SimpleQueue[Batch] = SimpleQueue()
        self.sweeping = settings.protected
        self.clean_at = 0.0
        """When the last sweep began that found nothing to do."""
        self.sweep_at = 0.0
        """Two sweeps at once would each find what the other holds, and never nothing."""

    def next(self) -> Batch | None:
        """A batch that is to be delivered again, or a sweep that is due, or else what the queue has."""
        with contextlib.suppress(Empty):
            twin = self.twins.get_nowait()
            twin.taken.set()
            return twin
        if self.sweeping and time.monotonic() >= self.sweep_at:
            self.sweep_at = math.inf
            return Batch({"Records": []}, self, again=True)
        return self._received()

    def _received(self) -> Batch | None:
        answer = self.client.sqs.receive_message(
            QueueUrl=self.client.queue, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
        )
        records = [lambda_record(each, self.settings.outputs["QueueArn"]) for each in answer.get("Messages", [])]
        return Batch({"Records": records}, self) if records else None

    def rests(self, since: float) -> bool:
        """Whether no dead letter remains to be redriven or can arrive late, if nothing has happened since then."""
        self.sweeping = self.settings.protected and self.clean_at < since + LONGEST_DELAY_SECONDS
        return not self.sweeping

    def delete(self, records: Sequence[dict[str, Any]]) -> None:
        entries: Any = [{"Id": str(n), "ReceiptHandle": record["receiptHandle"]} for n, record in enumerate(records)]
        if entries:
            self.client.sqs.delete_message_batch(QueueUrl=self.client.queue, Entries=entries)


class EventSourceMapping:
    """The mapping with all its worker slots, and the cast of chaos: `with` starts it, and ends all that it started."""

    def __init__(self, sources: Sequence[Batches], log: Log, *, slots: int, seed: int, fault_in: int) -> None:
        self._sources = sources
        self._log = log
        self._lock = threading.Lock()
        self._active_at = 0.0
        self.swept: Counter[str] = Counter()
        """What sweeps have done, or found."""
        self._nursery: Nursery
        self._workers: set[WorkerProcess] = set()
        self._numbers = itertools.count(1)
        self._counts: Counter[str] = Counter()
        self.over = threading.Event()
        self.calm = threading.Event()
        """Once it is set, no worker is killed or frozen any more, and nothing is delivered twice: the rest must end."""
        self._frozen = ThreadPoolExecutor(MOST_FROZEN)
        self._zombies: list[Future[None]] = []
        self._slots = ThreadPoolExecutor(slots)
        self._made = [
            WorkerSlot(self, sources[number % len(sources)], number, seed, fault_in) for number in range(slots)
        ]
        self._at_work: list[Future[None]] = []

    def __enter__(self) -> Self:
        self._nursery = Nursery()
        self._at_work = [self._slots.submit(slot.work) for slot in self._made]
        return self

    def __exit__(self, *exc: object) -> None:
        self.over.set()
        # A slot only ever waits for its worker: once that is gone, it looks up.
        for worker in self._living():
            worker.signal(signal.SIGKILL)
        self._slots.shutdown()
        self._frozen.shutdown(cancel_futures=True)
        for worker in self._living():
            worker.close()
        self._nursery.close()

    def send(self, messages: Sequence[TransferMessage]) -> dict[str, str]:
        return self._sources[0].client.send(messages)

    def act(self, sent: Mapping[str, str], *, all_sent: bool) -> None:
        """Raise the error that stopped a slot; once everything is sent, leave the workers alone."""
        for slot in self._at_work:
            if slot.done():
                slot.result()
        if all_sent:
            self.calm.set()

    @property
    def at_rest(self) -> bool:
        resting = [each.rests(self._active_at) and each.twins.empty() for each in self._sources]
        with self._lock:
            busy = any(slot.busy for slot in self._made) or not all(resting)
            return not busy and all(zombie.done() for zombie in self._zombies)

    @property
    def counts(self) -> Mapping[str, int]:
        with self._lock:
            return {shown: self._counts[name] for name, shown in SHOWN.items()}

    def start_worker(self, settings: Settings) -> WorkerProcess:
        number = next(self._numbers)
        name, effects = f"w{number:04}", settings.effects.of_worker(number)
        log = f"{settings.log}/worker-{name}.jsonl"
        own = replace(settings, worker=name, log=log, effects=effects, coroutine=number % 3 == 0)
        worker = WorkerProcess(self._nursery, own)
        with self._lock:
            self._workers.add(worker)
        return worker

    def end(self, worker: WorkerProcess) -> None:
        worker.close()
        with self._lock:
            self._active_at = time.monotonic()
            self._workers.discard(worker)

    def _living(self) -> Sequence[WorkerProcess]:
        with self._lock:
            return list(self._workers)

    def invoked(self, worker: WorkerProcess, batch: Batch) -> None:
        for key in batch.keys:
            self.note(Delivery(at_ms=now_ms(), worker=worker.name, name=key, again=batch.again))
        with self._lock:
            self._counts["Invocation"] += 1

    def answered(self, worker: WorkerProcess, batch: Batch, answer: Any, chance: random.Random) -> None:
        """Act on an answer; None: it was interrupted."""
        if batch.keys:
            self.act_on(worker, batch, answer, chance)
            return
        batch.source.sweep_at = time.monotonic() + batch.source.sweep_seconds
        found = answer.get("swept", ["failed"]) if answer else ["interrupted"]
        with self._lock:
            self.swept.update(found)
        if not found:
            batch.source.clean_at = batch.at

    def act_on(self, worker: WorkerProcess, batch: Batch, answer: Any, chance: random.Random) -> None:
        """Delete what an answer leaves out of its failures, and sometimes forget to."""
        failed = _failures(answer)
        if failed is None or not failed <= set(batch.keys):
            self.note(Broken(at_ms=now_ms(), worker=worker.name, why=json.dumps(answer)[:500]))
            return
        kept = []
        for record in batch.event["Records"]:
            if (key := record["messageId"]) not in failed:
                deleted = chance.randrange(FORGOTTEN_IN) != 0
                # From here on the worker's answer has had its consequence.
                self.note(Acknowledged(at_ms=now_ms(), worker=worker.name, name=key, deleted=deleted))
                kept += [record] if deleted else []
        batch.source.delete(kept)

    def note(self, line: Line) -> None:
        self._log.write(line)
        with self._lock:
            self._active_at = time.monotonic()
            self._counts[type(line).__name__] += 1

    def thaw_later(self, worker: WorkerProcess, thaw_seconds: float) -> None:
        """Leave a frozen worker alone until then, let it continue for a while, and end it."""
        with self._lock:
            self._zombies = [zombie for zombie in self._zombies if not zombie.done()]
            self._zombies.append(self._frozen.submit(self._thaw, worker, thaw_seconds))

    def _thaw(self, worker: WorkerProcess, thaw_seconds: float) -> None:
        self.over.wait(thaw_seconds - time.monotonic())
        self.note(Thaw(at_ms=now_ms(), worker=worker.name))
        worker.signal(signal.SIGCONT)
        worker.answer(time.monotonic() + AWAKE_SECONDS)  # nobody acts on it: to Lambda it timed out long ago
        self.end(worker)


def _failures(answer: Any) -> set[str] | None:
    """The ids that an answer lists; None for what Lambda would not take for an answer."""
    try:
        return {failure["itemIdentifier"] for failure in answer["batchItemFailures"]}
    except (KeyError, TypeError):
        return None
