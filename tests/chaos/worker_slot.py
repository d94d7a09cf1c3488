"""A worker slot: one worker after the other, what is done to it during a batch, and what follows from its answer.

It does what Lambda does for one sandbox: it invokes, waits, and kills what has not answered by the time-out. Besides,
some workers are killed at random, and some are frozen until long after their leases have ended, and then continue as if
nothing had happened.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from dataclasses import replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

from harness.workload.evidence import Broken, Freeze, Kill, now_ms
from tests.chaos.network_faults import ShuffleBag
from tests.chaos.settings import TIMEOUT_SECONDS, VISIBILITY_SECONDS, Cast

if TYPE_CHECKING:
    from tests.chaos.event_source_mapping import Batch, Batches, EventSourceMapping
    from tests.chaos.worker_process import WorkerProcess

PAUSE_SECONDS = 0.05
LOOK_SECONDS = 0.005
KILLED_SECONDS = (0.0, 0.4)
"""When in an invocation a worker is killed: at any point, from its first request to its answer."""
FROZEN_SECONDS = (0.0, 0.1)
"""How long after its first handler has started a worker is frozen."""
FROZEN_LONGER_SECONDS = (0.8, 2.4)
"""How long it stays frozen after its messages are visible again, so that others have taken its claims over."""
MEET_SECONDS = 1.0
SWEEP_SECONDS = 60.0
"""An operator who redrives has no time-out; this one ends what hangs."""
SWEEP_IN = 6
"""One of this many sweeps is killed, and one frozen."""
TWICE_IN = 12
"""One of this many batches is delivered twice at once."""


class WorkerFault(Enum):
    KILL = auto()
    FREEZE = auto()


class WorkerSlot:
    def __init__(self, mapping: EventSourceMapping, source: Batches, number: int, seed: int, fault_in: int) -> None:
        self._mapping = mapping
        self._source = source
        self._chance = chance = random.Random(f"{seed} slot {number}")
        self._faults, self._sweeps_faults = (ShuffleBag(chance, [*WorkerFault], size) for size in (fault_in, SWEEP_IN))
        self._twice = ShuffleBag(chance, (True,), TWICE_IN)
        self._worker: WorkerProcess | None = None
        self.busy = False

    def work(self) -> None:
        while not self._mapping.over.is_set():
            worker = self._worker = self._worker or self._mapping.start_worker(self._source.settings)
            batch = self._source.next()
            if batch is None:
                time.sleep(PAUSE_SECONDS)
                continue
            self.busy = True
            self._invoke(worker, batch)
            self.busy = False

    def _invoke(self, worker: WorkerProcess, batch: Batch) -> None:
        calm = self._mapping.calm.is_set()
        once = batch.again or self._source.settings.cast is Cast.FIFO
        if not once and not calm and self._twice.draw():
            twin = replace(batch, again=True, taken=threading.Event())
            self._source.twins.put(twin)
            twin.taken.wait(MEET_SECONDS)
        begun = time.monotonic()
        self._mapping.invoked(worker, batch)
        worker.send(batch.event)
        faults = self._faults if batch.keys else self._sweeps_faults
        fault = None if calm else faults.draw()
        redrives = not batch.keys and self._source.settings.cast is not Cast.WORKFLOW
        answer = self._answer(worker, fault, begun, SWEEP_SECONDS if redrives else TIMEOUT_SECONDS)
        if self._mapping.over.is_set():
            return
        if answer is not None or not batch.keys:
            self._mapping.answered(worker, batch, answer, self._chance)
        if answer is not None:
            if fault is not None:
                faults.put_back(fault)  # it came too late
        elif worker.gone:
            self._mapping.note(Broken(at_ms=now_ms(), worker=worker.name, why="the worker died by itself"))
            self._kill(worker, overdue=False)
        elif fault is WorkerFault.FREEZE:
            self._freeze(worker, begun)
        else:
            self._kill(worker, overdue=fault is None)

    def _answer(self, worker: WorkerProcess, fault: WorkerFault | None, begun: float, timeout_seconds: float) -> Any:
        """The worker's answer; None once it is time for the fault, or for the time-out."""
        ends = begun + timeout_seconds
        if fault is None:
            return worker.answer(ends)
        if fault is WorkerFault.KILL:
            return worker.answer(begun + self._chance.uniform(*KILLED_SECONDS))
        # Frozen before it holds a claim, it would wake up as nobody's zombie.
        while not worker.handling and not worker.gone and time.monotonic() < ends:
            if (answer := worker.answer(time.monotonic() + LOOK_SECONDS)) is not None:
                return answer
        return worker.answer(time.monotonic() + self._chance.uniform(*FROZEN_SECONDS))

    def _kill(self, worker: WorkerProcess, *, overdue: bool) -> None:
        worker.signal(signal.SIGKILL)
        self._mapping.note(Kill(at_ms=now_ms(), worker=worker.name, overdue=overdue))
        self._mapping.end(worker)
        self._worker = None

    def _freeze(self, worker: WorkerProcess, begun: float) -> None:
        self._mapping.note(Freeze(at_ms=now_ms(), worker=worker.name))
        worker.signal(signal.SIGSTOP)
        self._mapping.thaw_later(worker, begun + VISIBILITY_SECONDS + self._chance.uniform(*FROZEN_LONGER_SECONDS))
        self._worker = None
