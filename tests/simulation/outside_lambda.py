"""A controlled worker as outside Lambda: under leases that are shorter than its time limit, and renewed."""

from __future__ import annotations

from functools import partial
from threading import Semaphore
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from idempotent_receiver.sqs.visibility import Backoff
from idempotent_receiver.worker.host import QueueAnswers, WorkerHost
from idempotent_receiver.worker.in_flight import InFlight
from idempotent_receiver.worker.leases import Leases
from idempotent_receiver.worker.reports import Reports
from tests.simulation.invariants import LEASE_MARGIN_SECONDS

if TYPE_CHECKING:
    from idempotent_receiver.protocol.store import RecordStore
    from idempotent_receiver.sqs.consumer import NewHost
    from tests.simulation.controlled_worker import ControlledWorker

LEASE_SECONDS = 6.0
"""Shorter than the time limit, and twice the margin."""
LEASE_MS = int(LEASE_SECONDS * 1000)


def new_host(worker: ControlledWorker, store: RecordStore) -> NewHost:
    """Makes the host of its batch. What that tells SQS and its supervisor affects no invariant."""
    worker.leases = Leases(
        store, worker, worker, worker.lose, lease_seconds=LEASE_SECONDS, margin_seconds=LEASE_MARGIN_SECONDS
    )
    acknowledgements: Any = SimpleNamespace(delete=lambda handle: None, change=lambda handle, seconds: None)
    return partial(
        WorkerHost,
        leases=worker.leases,
        batch=None,
        in_flight=InFlight(worker),
        answers=QueueAnswers(acknowledgements, Backoff(), worker, left_to_sqs=True),
        reports=Reports(None, "me"),
        draining=lambda: False,
        suspects=(),
        slots=Semaphore(1_000),
    )
