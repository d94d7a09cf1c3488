"""The books of `make run WORKFLOW=1`: what was asked for against what records, executions and ledger say in the end."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from local.stage import SECOND_LEG
from local.workflow_story import KILLS, NOBODY, OPENING, Mishap

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from local.workflow_story import Part

RECEIPT = "#receipt"


@dataclass(frozen=True, slots=True)
class Posted:
    """One entry of the ledger."""

    transfer: str
    account: str
    amount: int


@dataclass(frozen=True, slots=True)
class Ended:
    """One execution: of which transfer, how it ended, and what its key's record says now (None: there is none)."""

    transfer: str
    status: str
    record: str | None


@dataclass(frozen=True, kw_only=True)
class WorkflowBooks:
    """What was found when all had come to rest. `entries` are by their ids."""

    parts: Sequence[Part]
    protected: bool
    repeats: int
    executions: Sequence[Ended]
    entries: Mapping[str, Posted]
    closing: Mapping[str, int]
    killed: int
    swept: int
    dead_letters: int

    @cached_property
    def completed(self) -> frozenset[str]:
        """The transfers whose record says so; in the control, whose money arrived."""
        if not self.protected:
            return frozenset(part.name for part in self.parts if self._arrived(part))
        return frozenset(each.transfer for each in self.executions if each.record == "COMPLETED")

    @cached_property
    def failed(self) -> frozenset[str]:
        """The transfers whose record says so; in the control, all others that have an execution."""
        if not self.protected:
            return frozenset(each.transfer for each in self.executions) - self.completed
        return frozenset(each.transfer for each in self.executions if each.record == "FAILED")

    @cached_property
    def as_expected(self) -> frozenset[str]:
        """The transfers that ended as the seed alone says they must."""
        return frozenset(
            part.name
            for part in self.parts
            if ("COMPLETED" in part.expected and part.name in self.completed)
            or ("FAILED" in part.expected and part.name in self.failed)
        )

    @cached_property
    def unfinished(self) -> int:
        """Transfers that are in progress, or of which nothing is known."""
        return len({part.name for part in self.parts} - self.completed - self.failed)

    @cached_property
    def doubled(self) -> int:
        """Executions beyond one for each transfer."""
        return sum(count - 1 for count in Counter(each.transfer for each in self.executions).values())

    @cached_property
    def receipts(self) -> int:
        """Transfers whose receipt the consumer has entered."""
        return sum(1 for id in self.entries if id.endswith(RECEIPT))

    def _arrived(self, part: Part) -> bool:
        second = self.entries.get(f"{part.name}{SECOND_LEG}")
        return second is not None and second.account == part.payee

    @cached_property
    def half_way(self) -> list[str]:
        """Transfers of which something was taken that neither arrived nor came back, or whose record says otherwise."""
        return [part.name for part in self.parts if not self._whole(part)]

    def _whole(self, part: Part) -> bool:
        legs = [entry for id, entry in self.entries.items() if entry.transfer == part.name and RECEIPT not in id]
        arrived = self._arrived(part)
        agrees = (part.name in self.completed) == arrived
        return sum(leg.amount for leg in legs) == 0 and agrees

    @cached_property
    def balanced(self) -> bool:
        """Whether no money came or went or is on its way, and every account is where its entries say."""
        moved: dict[str, int] = defaultdict(int)
        for entry in self.entries.values():
            moved[entry.account] += entry.amount
        agree = all(self.closing.get(account) == was + moved[account] for account, was in OPENING.items())
        conserved = sum(self.closing.values()) == sum(OPENING.values())
        return agree and conserved and not self.half_way and NOBODY not in self.closing

    @cached_property
    def complaints(self) -> list[str]:
        """What is not as promised; nothing, if all is well."""
        mishaps = {part.mishap for part in self.parts}
        must_be_zero = {
            "not as expected": len(self.parts) - len(self.as_expected),
            "unfinished": self.unfinished,
            "doubled": self.doubled,
            "receipts missing": len(self.completed) - self.receipts,
            "dead letters": self.dead_letters,
            "kills that did not happen": len([part for part in self.parts if part.mishap in KILLS]) - self.killed,
            "aborts that did not happen": int(Mishap.ABORTED in mishaps and self.aborted == 0),
        }
        found = [f"{name}: {count}, not 0" for name, count in must_be_zero.items() if count != 0]
        wrong = sorted({part.name for part in self.parts} - self.as_expected)
        found += [f"not as expected: {', '.join(wrong[:5])}"] if wrong else []
        return found if self.balanced else [*found, f"the books do not balance {self.half_way[:5]}"]

    @cached_property
    def aborted(self) -> int:
        """Executions that were stopped from outside."""
        return sum(each.status == "ABORTED" for each in self.executions)

    def line(self) -> dict[str, int | bool]:
        """What the last line of output says."""
        return {
            "asked": len(self.parts),
            "completed": len(self.completed),
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
