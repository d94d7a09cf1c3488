"""What a run did to the money, in cents. Pure.

Money appears or disappears where a concurrent write overwrote a balance, which then differs from the account's entries,
and where a transfer's entries do not cancel out. That is all: `before + created - destroyed` is `after`, always.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.workload.reconciliation import Reconciliation


class Harm(NamedTuple):
    """Sums of cents; and by transfer, by how much its legs differ, and what its payee got beyond its amount."""

    before: int
    after: int
    created: int
    destroyed: int
    half_posted: Mapping[str, int]
    paid_again: Mapping[str, int]

    @property
    def seen(self) -> bool:
        return any(self[2:])


def harm_of(found: Reconciliation) -> Harm:
    explained = Counter(found.workload.opening)
    for entry in found.entries:
        explained[entry.account] += entry.amount
    legs = {name: [each.amount for each in entries] for name, entries in found.posted.items()}
    halves = {name: sum(cents) for name, cents in legs.items() if sum(cents)}
    due = {name: message.amount for name, message in found.workload.by_name.items()}
    again = {name: sum(max(0, each) for each in cents) - due.get(name, 0) for name, cents in legs.items()}
    changes = [found.closing.get(account, 0) - cents for account, cents in explained.items()] + [*halves.values()]
    return Harm(
        before=sum(found.workload.opening.values()),
        after=sum(found.closing.values()),
        created=sum(max(0, cents) for cents in changes),
        destroyed=sum(max(0, -cents) for cents in changes),
        half_posted=halves,
        paid_again={name: cents for name, cents in again.items() if cents > 0},
    )
