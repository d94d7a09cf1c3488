"""A workflow in memory, with requests to it and what becomes of its one execution."""

from __future__ import annotations

from typing import Any

from idempotent_receiver import MemoryStore
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.workflow import Workflow, accept, name_of, recover_orphan
from tests.fake_step_functions import MACHINE, FakeStepFunctions
from tests.manual_clock import ManualClock

TIMEOUT_SECONDS = 7200
NAME = name_of("key")
ARN = f"arn:aws:states:us-east-1:123456789012:execution:transfers:{NAME}"
OVERDRAWN = '{"type": "PermanentError", "text": "overdrawn", "status": 422}'


def workflow_of(store: MemoryStore, machines: FakeStepFunctions, **options: Any) -> Workflow:
    usual = {"client": machines, "state_machine_arn": MACHINE, "timeout_seconds": TIMEOUT_SECONDS}
    return Workflow(store, **usual | options)


class Requests:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(namespace="transfers")
        self.machines = FakeStepFunctions()
        self.workflow = workflow_of(self.store, self.machines, clock=self.clock)

    def ask(self, payload: Any = 1, fingerprint: str | None = None) -> object:
        start = self.workflow.start_of(NAME, fingerprint or f"f{payload}", payload)
        return accept(self.workflow, start, self.workflow.deadline(10_000), "request")

    def sweep(self, milliseconds: int = 10_000) -> object:
        return recover_orphan(self.workflow, NAME, self.workflow.deadline(milliseconds), "sweep")

    def complete(self, data: str | None) -> object:
        return self.workflow.conclude(ARN, transitions.completed(data), self.workflow.deadline(10_000))

    def fail(self, error: str) -> object:
        return self.workflow.conclude(ARN, transitions.failed(error), self.workflow.deadline(10_000))

    def record(self) -> Record:
        (found,) = self.store.read([f"transfers#{NAME}"])
        assert isinstance(found, Record)
        return found

    def lease_seconds(self) -> float:
        until = self.record().in_progress_expiration
        assert until is not None
        return (until - self.clock.epoch_ms()) / 1000

    def let_the_lease_end(self) -> None:
        self.clock.seconds += self.lease_seconds()

    def sweep_then(self, milliseconds: int = 10_000) -> object:
        """Once its lease has ended."""
        self.let_the_lease_end()
        return self.sweep(milliseconds)
