"""What is sent: transfers between accounts, each with what happens to it on its way, all determined by a seed and a
number.

Nothing here sends, reads a clock or calls AWS. How a message must end follows from its kind alone, whatever the order
of processing: every payer is funded for everything the workload asks of it, and an account to be overdrawn never
receives money.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

CURRENCY = "EUR"
FUNDED_ACCOUNTS = 12
EMPTY_ACCOUNTS = 3
LARGEST_AMOUNT = 10_000
EMPTY_BALANCE = 50


class Kind(StrEnum):
    """What happens to a message on its way. The values are for people; a transfer's id contains the member's name."""

    GOOD = "good"
    FLAKY = "refused at first"
    AGAIN = "delivered again when done"
    AT_ONCE = "delivered three times at once"
    POSTED = "asked for three times over HTTP"
    GARBAGE = "does not parse"
    OVERDRAWN = "payer cannot pay"
    UNKNOWN = "account unknown"
    KILLED_BEFORE = "worker killed before its transaction"
    KILLED_AFTER = "worker killed after its transaction"
    KILLED_SENT = "worker killed after its receipt was sent"
    # Chaos: what its handler does.
    NOTED = "writes nothing"
    HANGING = "hangs once"
    REFUSED = "refused for good"
    BANK_AWAY = "refused until it is redriven"
    HOPELESS = "fails until it is redriven"
    # The workflow: where a process dies, or what else happens.
    REPEATED = "asked for three times at once"
    ABORTED = "execution stopped after its debit"
    DEBIT_BEFORE = "killed before its debit"
    DEBIT_AFTER = "killed after its debit"
    CREDIT_BEFORE = "killed before its credit"
    CREDIT_AFTER = "killed after its credit"
    RECEIPT_BEFORE = "killed before its receipt"
    RECEIPT_AFTER = "killed after its receipt"
    REFUND_BEFORE = "killed before its refund"
    REFUND_AFTER = "killed after its refund"
    START_BEFORE = "killed before its start, never asked for again"
    START_AFTER = "killed after its start, never asked for again"
    START_BEFORE_AGAIN = "killed before its start, asked for again"
    START_AFTER_AGAIN = "killed after its start, asked for again"


DEATHS = {
    Kind.KILLED_BEFORE: "post.before",
    Kind.KILLED_AFTER: "post.after",
    Kind.KILLED_SENT: "send.after",
    Kind.START_BEFORE_AGAIN: "start.before",
    Kind.START_AFTER_AGAIN: "start.after",
    **{
        Kind[f"{step}_{side}".upper()]: f"{step}.{side}"
        for step in ("debit", "credit", "receipt", "refund", "start")
        for side in ("before", "after")
    },
}
"""The place where a message's process dies, once: before or after the write, the start or the send of that name."""

HOLDS = {Kind.AT_ONCE: "handler", Kind.ABORTED: "credit.before"}
"""The place where a message's process waits, once, for something to happen to it."""

TO_NOBODY = frozenset({Kind.UNKNOWN, Kind.REFUND_BEFORE, Kind.REFUND_AFTER})
FAILING = TO_NOBODY | {Kind.GARBAGE, Kind.OVERDRAWN, Kind.REFUSED}
"""These must end as dead letters or failed workflows."""


@dataclass(frozen=True, slots=True)
class Mix:
    """The composition of a workload: for each kind, one message in this many, and at least one; all others are good.

    It moves money between this many accounts. `hot`: the first accounts, which pay for one message in this many.
    `group`: the approximate number of messages per FIFO group; with 0, each has its own.
    """

    shares: Mapping[Kind, int]
    fewest: int = 1
    accounts: int = FUNDED_ACCOUNTS
    hot: Mapping[int, int] = field(default_factory=dict)
    group: int = 0


RUN = Mix(
    {
        **dict.fromkeys((Kind.FLAKY, Kind.AGAIN, Kind.POSTED, Kind.GARBAGE, Kind.OVERDRAWN, Kind.UNKNOWN), 25),
        **dict.fromkeys((Kind.KILLED_BEFORE, Kind.KILLED_AFTER, Kind.AT_ONCE), 100),
        Kind.KILLED_SENT: 250,
    },
    fewest=20,
)
CHAOS = Mix(
    {Kind.NOTED: 5, Kind.FLAKY: 20, Kind.REFUSED: 50, Kind.BANK_AWAY: 50, Kind.GARBAGE: 100}
    | {Kind.HANGING: 1000, Kind.HOPELESS: 1000},
    accounts=400,
    hot={1: 10, 10: 5},
)
FIFO = replace(CHAOS, group=20)
ASKED_FOR = Mix({Kind.REFUSED: 50}, accounts=400, hot={1: 10, 10: 5})
WORKFLOW = Mix(
    {Kind.REPEATED: 10, Kind.ABORTED: 13, Kind.OVERDRAWN: 17, Kind.UNKNOWN: 17}
    | {kind: 17 for kind in DEATHS if kind not in RUN.shares}
)
APART = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER, Kind.KILLED_SENT, Kind.AT_ONCE)
"""These are sent far apart, so that two rarely share a batch: a killed worker takes its whole batch with it, and a
message has only five deliveries.
"""
ALONE = (Kind.HOPELESS, Kind.BANK_AWAY)
"""These have their own FIFO groups: repeated failures would also use up the receives of messages behind them, and one
in a dead-letter queue hides those behind it.
"""
SLOW = (Kind.HOPELESS, Kind.FLAKY)
"""These are sent first because they take longest, so that no kill delays them in a short workload."""


@dataclass(frozen=True, slots=True)
class TransferMessage:
    """One message. `name` is its transfer's id, even if `garbage` replaces its body."""

    name: str
    kind: Kind
    payer: str
    payee: str
    amount: int
    garbage: str | None = None
    group: str | None = None

    @property
    def transfer(self) -> dict[str, Any]:
        ends = {"from_account": self.payer, "to_account": self.payee}
        return {"transfer_id": self.name, **ends, "amount": self.amount, "currency": CURRENCY}

    @property
    def body(self) -> str:
        return json.dumps(self.transfer) if self.garbage is None else self.garbage


def kind_of(name: str) -> Kind:
    """The kind in a transfer's id; good if it has none, as with ids that the API assigns."""
    _, _, kind = name.rpartition("-")[0].rpartition("-")
    return Kind.__members__.get(kind.upper(), Kind.GOOD)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """All messages in sending order, and the accounts' opening balances."""

    messages: tuple[TransferMessage, ...]
    opening: Mapping[str, int]

    @cached_property
    def by_name(self) -> Mapping[str, TransferMessage]:
        return {message.name: message for message in self.messages}

    @cached_property
    def completed(self) -> frozenset[str]:
        return frozenset(self.by_name) - self.dead_lettered

    @cached_property
    def dead_lettered(self) -> frozenset[str]:
        return frozenset(message.name for message in self.messages if message.kind in FAILING)

    def of_kind(self, kind: Kind) -> list[str]:
        return [message.name for message in self.messages if message.kind is kind]


def generate(seed: int, number: int, mix: Mix = RUN, *, prefix: str = "", without: Collection[Kind] = ()) -> Workload:
    """Return this seed's workload of this many messages. `prefix` separates its names from those of other runs."""
    if number < mix.fewest:
        raise ValueError(f"N must be at least {mix.fewest}, to have one message of each kind; it is {number}")
    chance = random.Random(seed)
    names = f"{prefix}{seed}-"
    kinds = _kinds(number, {kind: share for kind, share in mix.shares.items() if kind not in without}, chance)
    funded = _funded(names, mix.accounts)
    parties = partial(_parties, funded, mix.hot, chance)
    messages = tuple(_message(kind, place, names, parties, chance) for place, kind in enumerate(kinds))
    if mix.group:
        groups = random.Random(f"groups {seed}")
        most = max(1, number // mix.group)
        messages = tuple(
            each if each.kind in ALONE else replace(each, group=f"{names}group-{groups.randrange(most)}")
            for each in messages
        )
    asked: Counter[str] = Counter()
    for message in messages:
        asked[message.payer] += message.amount
    opening = {account: asked[account] for account in funded} | dict.fromkeys(_empty(names), EMPTY_BALANCE)
    return Workload(messages=messages, opening=opening)


def _funded(names: str, number: int) -> list[str]:
    return [f"{names}account-{place:02}" for place in range(number)]


def _empty(names: str) -> list[str]:
    return [f"{names}empty-{place:02}" for place in range(EMPTY_ACCOUNTS)]


def _kinds(number: int, shares: Mapping[Kind, int], chance: random.Random) -> Sequence[Kind]:
    kinds = [kind for kind, share in shares.items() for _ in range(max(1, number // share))][:number]
    apart = [kind for kind in kinds if kind in APART]
    mixed = [kind for kind in kinds if kind not in APART] + [Kind.GOOD] * (number - len(kinds))
    chance.shuffle(apart)
    apart.sort(key=lambda kind: kind is not Kind.AT_ONCE)
    chance.shuffle(mixed)
    mixed.sort(key=lambda kind: SLOW.index(kind) if kind in SLOW else len(SLOW))
    for place, kind in enumerate(apart):
        stride = number // len(apart)
        mixed.insert(place * stride + chance.randrange(max(1, stride // 2)), kind)
    return mixed


def _parties(funded: Sequence[str], hot: Mapping[int, int], chance: random.Random) -> tuple[str, str]:
    """The payer and the payee."""
    payer, payee = chance.sample(funded, 2)
    for accounts, share in hot.items():
        if chance.randrange(share) == 0:
            payer = chance.choice([each for each in funded[:accounts] if each != payee] or [payer])
    return payer, payee


def _message(
    kind: Kind, place: int, names: str, parties: Callable[[], tuple[str, str]], chance: random.Random
) -> TransferMessage:
    amount, nobody = chance.randint(1, LARGEST_AMOUNT), f"{names}nobody"
    payer, payee = parties()
    if kind is Kind.OVERDRAWN:
        payer, amount = chance.choice(_empty(names)), amount + EMPTY_BALANCE
    elif kind is Kind.UNKNOWN and chance.random() < 0.5:
        payer = nobody
    elif kind in TO_NOBODY:
        payee = nobody
    message = TransferMessage(f"{names}{kind.name.lower()}-{place:05}", kind, payer, payee, amount)
    return replace(message, garbage=_garbage(message.transfer, chance)) if kind is Kind.GARBAGE else message


def _garbage(transfer: dict[str, Any], chance: random.Random) -> str:
    """Break a transfer in one of the ways that producers do."""
    whole = json.dumps(transfer)
    missing = {name: value for name, value in transfer.items() if name != "to_account"}
    return chance.choice(
        [
            whole[: len(whole) // 2],
            f"transfer {transfer['transfer_id']}, please",
            json.dumps([transfer]),
            json.dumps(missing),
            json.dumps({**transfer, "amount": -transfer["amount"]}),
            json.dumps({**transfer, "amount": str(transfer["amount"])}),
            json.dumps({**transfer, "to_account": transfer["from_account"]}),
            json.dumps({**transfer, "note": "an unexpected field"}),
        ]
    )
