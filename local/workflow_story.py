"""What `make run WORKFLOW=1` plays: transfers by the workflow, each with its mishap, told by a seed alone."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum

CURRENCY = "USD"
OPENING = {"alice": 1_000_000, "bob": 1_000_000, "carol": 1_000_000}
NOBODY = "nobody"
TOO_MUCH = 10**12


class Mishap(StrEnum):
    """What happens to a transfer on its way. Where a process is killed, the name says in which step, and when."""

    NONE = "none"
    REPEATED = "repeated"
    """Its client asks three times at once."""
    POOR = "poor"
    """The payer cannot pay."""
    REFUSED = "refused"
    """The payee is unknown, so the payer is given the money back."""
    DEBIT_BEFORE = "debit.before"
    DEBIT_AFTER = "debit.after"
    CREDIT_BEFORE = "credit.before"
    CREDIT_AFTER = "credit.after"
    RECEIPT_BEFORE = "receipt.before"
    RECEIPT_AFTER = "receipt.after"
    REFUND_BEFORE = "refund.before"
    REFUND_AFTER = "refund.after"
    START_BEFORE = "start.before"
    """Between claim and start. Its client never asks again: a sweep finds it."""
    START_AFTER = "start.after"
    """Between start and hand-over, likewise."""
    START_BEFORE_AGAIN = "start.before.again"
    """Between claim and start. Its client asks until it is answered."""
    START_AFTER_AGAIN = "start.after.again"
    ABORTED = "aborted"
    """Its execution is stopped from outside, once it has debited."""


SHARES = {Mishap.NONE: 4, Mishap.REPEATED: 3, Mishap.ABORTED: 2} | {
    mishap: 1 for mishap in Mishap if mishap not in (Mishap.NONE, Mishap.REPEATED, Mishap.ABORTED)
}
FAILS = frozenset({Mishap.POOR, Mishap.REFUSED, Mishap.REFUND_BEFORE, Mishap.REFUND_AFTER})
KILLS = frozenset(mishap for mishap in Mishap if "." in mishap)
FORSAKEN = frozenset({Mishap.START_BEFORE, Mishap.START_AFTER})
TO_NOBODY = frozenset({Mishap.REFUSED, Mishap.REFUND_BEFORE, Mishap.REFUND_AFTER})


@dataclass(frozen=True, slots=True)
class Part:
    """One transfer, with the key that it is asked for by."""

    name: str
    mishap: Mishap
    payer: str
    payee: str
    amount: int

    @property
    def key(self) -> str:
        """The Idempotency-Key."""
        return f"key-{self.name}"

    @property
    def body(self) -> dict[str, object]:
        """What is asked for."""
        ends = {"from_account": self.payer, "to_account": self.payee}
        return {"transfer_id": self.name, **ends, "amount": self.amount, "currency": CURRENCY}

    @property
    def expected(self) -> frozenset[str]:
        """The statuses that it may end in. A credit that is on its way when its execution is stopped may arrive."""
        if self.mishap is Mishap.ABORTED:
            return frozenset({"COMPLETED", "FAILED"})
        return frozenset({"FAILED" if self.mishap in FAILS else "COMPLETED"})


def tell(seed: int, number: int) -> list[Part]:
    """The parts of a story: every mishap at least once where there are enough, the others by their shares."""
    chance = random.Random(seed)
    mishaps = list(Mishap)[:number]
    mishaps += chance.choices(list(SHARES), weights=list(SHARES.values()), k=number - len(mishaps))
    chance.shuffle(mishaps)
    counts: Counter[Mishap] = Counter()
    parts = []
    for mishap in mishaps:
        counts[mishap] += 1
        payer, payee = chance.sample(sorted(OPENING), 2)
        amount = TOO_MUCH if mishap is Mishap.POOR else chance.randint(1, 100)
        payee = NOBODY if mishap in TO_NOBODY else payee
        parts.append(Part(f"{mishap}-{counts[mishap]}", mishap, payer, payee, amount))
    return parts
