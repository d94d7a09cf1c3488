"""Step Functions in the explored world: executions by their names, and what each does of itself.

An execution writes its outcome into its record, as the definition's last states do, and then ends; or it ends without a
word, because somebody stops it or its time is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.record import Change, Status, from_attributes
from idempotent_receiver.protocol.transitions import Conclusion
from tests.simulation.ways import EXECUTION_SECONDS, EXISTS, STARTED, arn_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

MACHINE = "machine"
"""Who writes an outcome; it acts for whoever has the claim."""
RUNNING, SUCCEEDED, FAILED = "RUNNING", "SUCCEEDED", "FAILED"
OUTPUT = '"done"'


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution. `word` is the outcome that it has written."""

    input: str
    began: float
    status: str = RUNNING
    word: str | None = None

    @property
    def done(self) -> bool:
        """Whether its work is done, and it has said so."""
        return self.word == Status.COMPLETED

    @property
    def dead(self) -> bool:
        """Whether it is over without its work being done, or says that it will be."""
        return self.word == Status.FAILED or (self.status != RUNNING and not self.done)


Executions = dict[str, Execution]


def asked_to_start(executions: Executions, name: str, input: str, now: float) -> tuple[Executions, str]:
    """The executions after a StartExecution, and its answer: idempotent for the same input while it runs."""
    known = executions.get(name)
    if known is None:
        return {**executions, name: Execution(input, now)}, STARTED
    return executions, STARTED if (known.status, known.input) == (RUNNING, input) else EXISTS


def described(executions: Executions, name: str) -> tuple[str, str, str | None] | None:
    """What DescribeExecution tells: status, input and output; None where there is none."""
    known = executions.get(name)
    return known and (known.status, known.input, OUTPUT if known.status == SUCCEEDED else None)


def moves_of(executions: Executions) -> Iterator[tuple[str, ...]]:
    """What executions may do next."""
    for name, execution in executions.items():
        if execution.status == RUNNING and execution.word is None:
            yield from (("outcome", name, status.value) for status in (Status.COMPLETED, Status.FAILED))
        elif execution.status == RUNNING:
            yield ("finish", name)


def running(executions: Executions) -> list[str]:
    """The executions that may be stopped."""
    return [name for name, execution in executions.items() if execution.status == RUNNING]


def ended(executions: Executions, name: str, status: str | None = None) -> Executions:
    """The executions once this one has ended: as it said, or with another status."""
    execution = executions[name]
    return {**executions, name: replace(execution, status=status or (SUCCEEDED if execution.done else FAILED))}


def timed_out(executions: Executions, now: float) -> Executions:
    """The executions once those have ended whose time is over."""
    late = [name for name in running(executions) if now >= executions[name].began + EXECUTION_SECONDS]
    for name in late:
        executions = ended(executions, name, "TIMED_OUT")
    return executions


def outcome_of(name: str, id: str, item: Mapping[str, Any] | None, status: str, now_ms: float) -> Change | None:
    """The write of an execution's outcome, on its condition; None where that does not hold."""
    told = transitions.completed(OUTPUT) if status == Status.COMPLETED else transitions.failed('{"type": "Refused"}')
    conclusion = Conclusion(id=id, execution=arn_of(name), outcome=told)
    seen = None if item is None else from_attributes(item)
    change = conclusion.step(seen, (), int(now_ms), f"{MACHINE}-1")
    return change if isinstance(change, Change) else None
