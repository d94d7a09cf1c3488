"""Reconciliation: compares what a run left behind with what its workload requires. Pure.

The evidence comes from the ledger, the records table, the queues and the observers' log; never from the consumer's own
answers or log lines.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from harness.checker import check
from harness.workload.found import Found
from harness.workload.history import history_of
from harness.workload.runs import grouped
from harness.workload.transfers import DEATHS, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from harness.checker import Finding
    from harness.history import Event
    from harness.workload.evidence import DeadLetter

MOST_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Reconciliation(Found):
    """What follows from all evidence of one run."""

    @property
    def exclusive(self) -> bool:
        """Whether no two workers may run one message at once, nor any after it was done. Without claims,
        commits count.
        """
        return not self.without_claims

    @cached_property
    def done(self) -> frozenset[str]:
        """What counts as done: by its record; in the control, which has none, because it is posted."""
        if not self.protected:
            return frozenset(self.posted) & frozenset(self.sent)
        completed = {key for key, record in self.records.items() if record.get("status") == "COMPLETED"}
        return frozenset(name for name, key in self.sent.items() if key in completed)

    @cached_property
    def completed(self) -> frozenset[str]:
        """Done messages for which the ledger has the required entries."""
        return frozenset(name for name in self.done if name in self.posted or not self.posts(name))

    @cached_property
    def _died(self) -> dict[str, list[DeadLetter]]:
        known = [each for each in self.dead_letters if each.message_id in self.names]
        return grouped((self.names[each.message_id], each) for each in known)

    @cached_property
    def dead_lettered(self) -> frozenset[str]:
        return frozenset(self._died)

    @property
    def ends(self) -> Mapping[str, frozenset[str]]:
        """The messages by how they ended."""
        return {"dead-lettered": self.dead_lettered, "completed": self.completed}

    @cached_property
    def surplus_dead_letters(self) -> int:
        """Second dead letters of one message: its worker died after sending the first and before recording that."""
        return sum(len(each) - 1 for each in self._died.values())

    @cached_property
    def _missing(self) -> frozenset[str]:
        return frozenset(self.sent) - self.completed - self.dead_lettered

    def history(self, *, claims: bool) -> list[Event]:
        """What clients saw; `claims`: of handlers that hold their keys."""
        return history_of(self, claims=claims)

    @cached_property
    def findings(self) -> list[Finding]:
        """The checker's findings."""
        return check(self.history(claims=self.exclusive))

    @cached_property
    def _as_claimed(self) -> list[Finding]:
        """The findings if claims were promised."""
        return self.findings if self.exclusive else check(self.history(claims=True))

    def _found(self, *rules: str) -> int:
        return sum(finding.rule in rules for finding in self.findings)

    @cached_property
    def lost(self) -> int:
        """Messages missing from the queue without being done or a dead letter."""
        return self._found("LOST")

    @cached_property
    def unaccounted(self) -> int:
        """Messages in no place or in two: still queued, half done, completed and dead, or never sent."""
        letters = {each.message_id for each in self.dead_letters} - frozenset(self.names) if self.witnessed else ()
        return len(self._missing) - self.lost + self._found("BOTH", "STRANGER") + len(letters)

    @cached_property
    def reasons(self) -> list[tuple[int, str, str]]:
        """The number of messages by kind and reason of death, without names and amounts; the most frequent first."""
        counts = Counter(
            (str(self.workload.by_name[name].kind), _in_general(each.reason or self._recorded(each.message_id)))
            for name, (*_, each) in sorted(self._died.items())
        )
        return [(count, kind, reason) for (kind, reason), count in counts.most_common()]

    def _recorded(self, key: str) -> str:
        """Why a message that SQS itself moved has died, as far as its record says."""
        error = json.loads(self.records.get(key, {}).get("error", "{}"))
        return str(error.get("text", "exceeded maxReceiveCount"))

    @cached_property
    def overlaps(self) -> int:
        """Runs that began during another's live claim; if runs were not observed, second attempts according to
        the records.
        """
        seen = sum(finding.rule in ("OVERLAP", "LATE") for finding in self._as_claimed)
        return seen if self.witnessed else self._attempted_again(at_once=True)

    @cached_property
    def repeated(self) -> int:
        """Runs of messages already done."""
        return sum(finding.rule == "AGAIN" for finding in self._as_claimed)

    @cached_property
    def doubled(self) -> int:
        """Transfers posted more than once; with claims, also runs of messages already done."""
        attempts = 0 if self.witnessed else self._attempted_again(at_once=False)
        return self._found("DOUBLED") + (self.repeated + attempts if self.exclusive else 0)

    def _attempted_again(self, *, at_once: bool) -> int:
        """By the records of completed messages: attempts beyond the first, in a workload whose first attempts
        succeed.
        """
        if self.disturbed:
            return 0
        names = [n for n in self.completed if (self.workload.by_name[n].kind is Kind.AT_ONCE) == at_once]
        return sum(int(self.records[self.sent[name]].get("attempts", 1)) - 1 for name in names)

    @cached_property
    def balanced(self) -> bool:
        """Whether no money appeared or disappeared, and every transfer is in the ledger once, as sent."""
        return self.agreed and not self._found("MONEY", "WRONG", "DOUBLED")

    @cached_property
    def agreed(self) -> bool:
        """Whether every account matches its entries, and no money appeared or disappeared."""
        moved: Counter[str] = Counter()
        for entry in self.entries:
            moved[entry.account] += entry.amount
        agree = all(self.closing.get(account) == was + moved[account] for account, was in self.workload.opening.items())
        return agree and sum(self.closing.values()) == sum(self.workload.opening.values())

    @cached_property
    def receipts_of(self) -> dict[str, int]:
        """How often each message's receipt was counted."""
        return {self.runs.name_of(transfer): times for transfer, times in (self.receipt_counts or {}).items()}

    @property
    def of_receipts(self) -> dict[str, int]:
        """What is told of receipts: one for each completed transfer, and for no other."""
        if self.receipt_counts is None:
            return {}
        due = {name for name in self.completed if self.posts(name)}
        lost = due - self.receipts_of.keys()
        surplus = sum(times - (name in due) for name, times in self.receipts_of.items())
        return {"receipts_lost": len(lost), "receipts_doubled": surplus}

    @property
    def must_be_zero(self) -> dict[str, int]:
        overlaps = {"overlaps": self.overlaps} if self.exclusive else {}
        zero = {"unaccounted": self.unaccounted, **overlaps, "lost": self.lost, "doubled": self.doubled}
        return zero | self.of_receipts

    @property
    def must_happen(self) -> dict[str, int]:
        """What must have happened in a run for it to prove anything. For a disturbed run, other checks tell."""
        if self.disturbed:
            return {}
        dying = any(message.kind in DEATHS for message in self.workload.messages)
        return {"duplicates": self.runs.duplicates} | ({"taken_over": self.runs.taken_over} if dying else {})

    @cached_property
    def complaints(self) -> list[str]:
        """What is not as promised, or did not happen; empty if all is well."""
        found = [f"{name} is {count}, not 0" for name, count in self.must_be_zero.items() if count]
        found += [f"{name} is 0: it did not happen" for name, count in self.must_happen.items() if not count]
        found += _difference("completed", self.completed, self.workload.completed)
        found += _difference("dead-lettered", self.dead_lettered, self.workload.dead_lettered)
        found += [] if self.balanced else ["the books do not balance"]
        found += [f"{finding.rule}: {finding.told}" for finding in self.findings[:MOST_SHOWN]]
        return found if self.gave_up is None else [*found, f"gave up waiting: {self.gave_up}"]

    def line(self) -> dict[str, Any]:
        return {
            "sent": len(self.sent),
            "completed": len(self.completed),
            "dead_lettered": len(self.dead_lettered),
            "duplicates": self.runs.duplicates,
            "taken_over": self.runs.taken_over,
            "expected_completed": len(self.workload.completed),
            "expected_dead_lettered": len(self.workload.dead_lettered),
            "unaccounted": self.unaccounted,
            "overlaps": self.overlaps,
            "lost": self.lost,
            "doubled": self.doubled,
            **self.of_receipts,
            "balanced": self.balanced,
        }


def _in_general(reason: str) -> str:
    """A reason without its message-specific parts."""
    return re.sub(r"\S*\d\S*", "…", reason)


def _difference(what: str, found: frozenset[str], expected: frozenset[str]) -> list[str]:
    """A complaint for each side of a difference."""
    sides = {f"not {what}, but should be": expected - found, f"{what}, but should not be": found - expected}
    return [f"{which}: {_some(sorted(names))}" for which, names in sides.items() if names]


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
