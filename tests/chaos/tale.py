"""What is sent, and what must come of it: by the seed alone, before anything runs."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property


class Kind(StrEnum):
    """What the handler does with a message."""

    POSTED = "posted"
    """Writes to the ledger, by its transaction."""
    NOTED = "noted"
    """Writes nothing: its completion is settled together with others."""
    FLAKY = "fails once"
    """Posts at its second attempt."""
    HANGING = "hangs once"
    """Its first attempt is still running when the time-out comes; the second posts."""
    REFUSED = "refused"
    """Can never be posted, and the handler says so: to the dead-letter queue, by the consumer."""
    UNREADABLE = "unreadable"
    """A body that does not validate: likewise."""
    HOPELESS = "always fails"
    """Fails at every attempt, and never says that it is for good: to the dead-letter queue, by the queue itself."""


POSTING = frozenset({Kind.POSTED, Kind.FLAKY, Kind.HANGING})
DYING = frozenset({Kind.REFUSED, Kind.UNREADABLE, Kind.HOPELESS})

SHARES = {
    Kind.NOTED: 0.2,
    Kind.FLAKY: 0.05,
    Kind.REFUSED: 0.02,
    Kind.UNREADABLE: 0.01,
    Kind.HANGING: 0.001,
    Kind.HOPELESS: 0.001,
}
"""Of all messages, rounded up, so that each kind is there; the others are posted."""

ACCOUNTS = tuple(f"account-{number:02}" for number in range(20))
OPENING_BALANCE = 1_000_000


@dataclass(frozen=True, slots=True)
class Part:
    """One message: move `amount` from one account to another."""

    name: str
    kind: Kind
    payer: str
    payee: str
    amount: int

    @property
    def body(self) -> str:
        """What the queue is given."""
        amount = "a lot" if self.kind is Kind.UNREADABLE else self.amount
        told = {"name": self.name, "kind": self.kind, "payer": self.payer, "payee": self.payee, "amount": amount}
        return json.dumps(told)


@dataclass(frozen=True)
class Tale:
    """All messages, in the order in which they are sent."""

    parts: tuple[Part, ...]

    @cached_property
    def kinds(self) -> dict[str, Kind]:
        """The kinds by the parts' names."""
        return {part.name: part.kind for part in self.parts}

    @cached_property
    def posted(self) -> frozenset[str]:
        """What must be in the ledger in the end, and nothing else may be."""
        return frozenset(part.name for part in self.parts if part.kind in POSTING)

    @cached_property
    def dead_lettered(self) -> frozenset[str]:
        """What must be in the dead-letter queue in the end."""
        return frozenset(part.name for part in self.parts if part.kind in DYING)

    @cached_property
    def completed(self) -> frozenset[str]:
        """What must be completed in the end: everything else."""
        return frozenset(self.kinds) - self.dead_lettered

    @cached_property
    def closing(self) -> dict[str, int]:
        """The accounts' balances in the end."""
        moved: Counter[str] = Counter(dict.fromkeys(ACCOUNTS, OPENING_BALANCE))
        for part in self.parts:
            if part.kind in POSTING:
                moved[part.payer] -= part.amount
                moved[part.payee] += part.amount
        return dict(moved)


def tell(seed: int, number: int) -> Tale:
    """The tale of a seed."""
    chance = random.Random(f"{seed} tale")
    kinds = [kind for kind, share in SHARES.items() for _ in range(-int(-number * share // 1))][:number]
    kinds += [Kind.POSTED] * (number - len(kinds))
    chance.shuffle(kinds)
    kinds.sort(key=lambda kind: kind is not Kind.HOPELESS)  # first, for they take the longest
    return Tale(tuple(_part(f"t-{place:05}", kind, chance) for place, kind in enumerate(kinds, 1)))


def _part(name: str, kind: Kind, chance: random.Random) -> Part:
    payer, payee = chance.sample(ACCOUNTS, 2)
    return Part(name, kind, payer, payee, chance.randint(1, 500))
