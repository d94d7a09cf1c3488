"""What a run did to the money, in cents: what was created and destroyed, and by which of two mistakes. Pure.

Money is created or destroyed where a balance is not what its entries say, because a concurrent write overwrote a debit
or a credit; and where a transfer's entries do not cancel out, because it was posted by halves. Together they are all of
it: `before + created - destroyed` is `after`, always.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from local.workload.reconciliation import Reconciliation


@dataclass(frozen=True)
class Harm:
    """The harm that a run's evidence shows."""

    found: Reconciliation

    @cached_property
    def before(self) -> int:
        return sum(self.found.workload.opening.values())

    @cached_property
    def after(self) -> int:
        return sum(self.found.closing.values())

    @cached_property
    def _overwritten(self) -> Mapping[str, int]:
        """By account, what its balance has more than its entries explain, or less."""
        explained = Counter(self.found.workload.opening)
        for entry in self.found.entries:
            explained[entry.account] += entry.amount
        return {account: self.found.closing.get(account, 0) - cents for account, cents in explained.items()}

    @cached_property
    def half_posted(self) -> Mapping[str, int]:
        """By transfer, how much more arrived than was taken, or less."""
        sums = {name: sum(each.amount for each in entries) for name, entries in self.found.posted.items()}
        return {name: cents for name, cents in sums.items() if cents}

    @property
    def created(self) -> int:
        return sum(max(0, cents) for cents in self._differences)

    @property
    def destroyed(self) -> int:
        return sum(max(0, -cents) for cents in self._differences)

    @property
    def _differences(self) -> list[int]:
        return [*self._overwritten.values(), *self.half_posted.values()]

    @cached_property
    def posted_again(self) -> Mapping[str, int]:
        """By transfer, the cents that reached its payee beyond its amount."""
        due = {name: message.amount for name, message in self.found.workload.by_name.items()}
        came = {name: sum(max(0, e.amount) for e in entries) for name, entries in self.found.posted.items()}
        return {name: cents - due.get(name, 0) for name, cents in came.items() if cents > due.get(name, 0)}

    @property
    def seen(self) -> bool:
        return bool(self.created or self.destroyed or self.half_posted or self.posted_again)
