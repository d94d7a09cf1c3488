"""A model of Step Functions: executions by name, and what each may do next.

An execution writes its outcome to its record, as the definition's last states do, and then ends. Or it ends without
writing anything, because somebody stops it or it times out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.execution import Conclusion
from idempotent_receiver.protocol.record import Change, Status, from_attributes
from tests.simulation.adapters import EXECUTION_SECONDS, arn_of
from tests.simulation.explored_clients import EXISTS, STARTED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MACHINE = "machine"
"""The writer of an outcome, on behalf of the claim's owner."""
RUNNING, SUCCEEDED, FAILED = "RUNNING", "SUCCEEDED", "FAILED"
OUTPUT = '"done"'


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution. `outcome` is what it has written, if anything."""

    input: str
    began: float
    status: str = RUNNING
    outcome: str | None = None

    @property
    def done(self) -> bool:
        """Whether it has recorded that its work is done."""
        return self.outcome == Status.COMPLETED

    @property
    def dead(self) -> bool:
        """Whether it has ended without its work done, or has recorded a failure."""
        return self.outcome == Status.FAILED or (self.status != RUNNING and not self.done)


Executions = dict[str, Execution]


def start(executions: Executions, name: str, input: str, now: float) -> tuple[Executions, str]:
    """StartExecution: the executions after it, and its answer. Idempotent while an execution with that input runs."""
    known = executions.get(name)
    if known is None:
        return {**executions, name: Execution(input, now)}, STARTED
    return executions, STARTED if (known.status, known.input) == (RUNNING, input) else EXISTS


def describe(executions: Executions, name: str) -> tuple[str, str, str | None] | None:
    """DescribeExecution: status, input and output; None if there is no such execution."""
    known = executions.get(name)
    return known and (known.status, known.input, OUTPUT if known.status == SUCCEEDED else None)


def moves_of(executions: Executions) -> Iterator[tuple[str, ...]]:
    for name, execution in executions.items():
        if execution.status == RUNNING and execution.outcome is None:
            yield from (("outcome", name, status.value) for status in (Status.COMPLETED, Status.FAILED))
        elif execution.status == RUNNING:
            yield ("finish", name)


def running(executions: Executions) -> list[str]:
    return [name for name, execution in executions.items() if execution.status == RUNNING]


def ended(executions: Executions, name: str, status: str | None = None) -> Executions:
    """The executions once this one has ended: with its own outcome, or with another status."""
    execution = executions[name]
    return {**executions, name: replace(execution, status=status or (SUCCEEDED if execution.done else FAILED))}


def timed_out(executions: Executions, now: float) -> Executions:
    """The executions once the overdue ones have timed out."""
    late = [name for name in running(executions) if now >= executions[name].began + EXECUTION_SECONDS]
    for name in late:
        executions = ended(executions, name, "TIMED_OUT")
    return executions


def outcome_of(name: str, id: str, item: Mapping[str, Any] | None, status: str, now_ms: float) -> Change | None:
    """The write of an execution's outcome; None where its condition does not hold."""
    outcome = transitions.completed(OUTPUT) if status == Status.COMPLETED else transitions.failed('{"type": "Refused"}')
    conclusion = Conclusion(id=id, execution=arn_of(name), outcome=outcome)
    seen = None if item is None else from_attributes(item)
    change = conclusion.step(seen, (), int(now_ms), f"{MACHINE}-1")
    return change if isinstance(change, Change) else None
