"""What must be true after `make run WORKFLOW=1`, in addition to what must be true after every run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness.history import Effect, Left, Sent
from harness.workload.history import balances_of
from harness.workload.reconciliation import MOST_SHOWN, Reconciliation
from harness.workload.transfers import DEATHS, FAILING, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.history import Event
    from harness.workload.transfers import TransferMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution: its transfer, how it ended, and what its key's record says now (None if there is none)."""

    transfer: str
    status: str
    record: str | None
    arn: str = ""


@dataclass(frozen=True, kw_only=True)
class WorkflowReconciliation(Reconciliation):
    """Transfers by the workflow end COMPLETED or FAILED; a failure leaves no dead letter."""

    executions: Sequence[Execution]
    repeats: int
    swept: int
    killed: int = 0

    @cached_property
    def done(self) -> frozenset[str]:
        """Transfers whose record says so; in the control, those whose money arrived."""
        if not self.protected:
            return frozenset(message.name for message in self.workload.messages if self._arrived(message))
        return frozenset(each.transfer for each in self.executions if each.record == "COMPLETED")

    @cached_property
    def completed(self) -> frozenset[str]:
        """Likewise: whether the money arrived is checked elsewhere."""
        return self.done

    @cached_property
    def failed(self) -> frozenset[str]:
        """Transfers whose record says so; in the control, all others that have an execution."""
        if not self.protected:
            return frozenset(each.transfer for each in self.executions) - self.done
        return frozenset(each.transfer for each in self.executions if each.record == "FAILED")

    @property
    def ends(self) -> Mapping[str, frozenset[str]]:
        return {"completed": self.done, "failed": self.failed}

    @cached_property
    def as_expected(self) -> frozenset[str]:
        """Transfers that ended as their kind requires; a credit whose execution was stopped may or may not arrive."""
        aborted = frozenset(self.workload.of_kind(Kind.ABORTED))
        failing = frozenset(name for name, message in self.workload.by_name.items() if message.kind in FAILING)
        return (self.done - failing) | (self.failed & (failing | aborted))

    def history(self, *, claims: bool) -> list[Event]:
        """A request's effect is its execution, and everything this has moved. A request without one counts as
        unfinished.
        """
        end = max((line.at_ms for line in self.log), default=0)
        moved = {name: tuple((each.account, each.amount) for each in entries) for name, entries in self.posted.items()}
        started = {each.transfer for each in self.executions}
        return [
            *(Sent(at=0, message=name, key=name) for name in self.sent),
            *(Left(at=end, message=name) for name in self.sent if name not in started),
            *(
                Effect(at=end, since=0, key=each.transfer, moves=moved.pop(each.transfer, ()))
                for each in self.executions
            ),
            *balances_of(self, end),
        ]

    @cached_property
    def receipts(self) -> int:
        """Transfers whose receipt the consumer has entered, which moves nothing."""
        payees = {name: message.payee for name, message in self.workload.by_name.items()}
        return sum(entry.amount == 0 and entry.account == payees[entry.transfer] for entry in self.entries)

    def _arrived(self, message: TransferMessage) -> bool:
        return any(e.account == message.payee and e.amount > 0 for e in self.posted.get(message.name, []))

    @cached_property
    def half_way(self) -> list[str]:
        """Transfers whose debit neither arrived nor came back, or whose record disagrees."""
        return [
            message.name
            for message in self.workload.messages
            if (message.name in self.done) != self._arrived(message)
            or sum(entry.amount for entry in self.posted.get(message.name, [])) != 0
        ]

    @cached_property
    def balanced(self) -> bool:
        """Whether no money was created, lost or in transit, and every account matches its entries."""
        return not (self._found("MONEY") or self.half_way) and set(self.closing) == set(self.workload.opening)

    @property
    def must_be_zero(self) -> dict[str, int]:
        dying = sum(message.kind in DEATHS for message in self.workload.messages)
        aborted = bool(self.workload.of_kind(Kind.ABORTED))
        return {
            "not as expected": len(self.sent) - len(self.as_expected),
            "unfinished": self.unfinished,
            "doubled": self.doubled,
            "receipts missing": len(self.done) - self.receipts,
            "dead letters": len(self.dead_letters),
            "kills that did not happen": dying - self.killed,
            "aborts that did not happen": int(aborted and self.aborted == 0),
        }

    @cached_property
    def complaints(self) -> list[str]:
        wrong = sorted(frozenset(self.sent) - self.as_expected)
        found = [f"{name} is {count}, not 0" for name, count in self.must_be_zero.items() if count]
        found += [f"not as expected: {', '.join(wrong[:5])}"] if wrong else []
        found += [f"{each.rule}: {each.told}" for each in self.findings[:MOST_SHOWN]]
        found += [] if self.balanced else [f"the books do not balance {self.half_way[:5]}"]
        return found if self.gave_up is None else [*found, f"gave up waiting:  {self.gave_up}"]

    @cached_property
    def unfinished(self) -> int:
        """Transfers in progress, or with unknown state."""
        return len(frozenset(self.sent) - self.done - self.failed)

    @cached_property
    def aborted(self) -> int:
        """Executions stopped from outside."""
        return sum(each.status == "ABORTED" for each in self.executions)

    def line(self) -> dict[str, Any]:
        return {
            "asked": len(self.sent),
            "completed": len(self.done),
            "failed": len(self.failed),
            "as_expected": len(self.as_expected),
            "executions": len(self.executions),
            "repeats": self.repeats,
            "killed": self.killed,
            "aborted": self.aborted,
            "swept": self.swept,
            "receipts": self.receipts,
            "unfinished": self.unfinished,
            "doubled": self.doubled,
            "balanced": self.balanced,
        }
