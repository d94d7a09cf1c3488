"""The story that `make run` plays: its accounts, its messages, and how each must end. A seed and a number say it all.

Nothing here sends, reads a clock or asks AWS. How a message must end is found by playing the books through, before
anything is sent, and does not depend on the order in which messages are handled: whoever is to pay is funded for all
that the whole story asks of it, and whoever is to be overdrawn never receives anything.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

CURRENCY = "EUR"
FEWEST = 20
"""A shorter story has no room for one of each kind."""

FUNDED_ACCOUNTS = 12
EMPTY_ACCOUNTS = 3
LARGEST_AMOUNT = 10_000
EMPTY_BALANCE = 50
FLAKY_REFUSALS = 2
"""How often the outside service refuses a flaky transfer before it accepts."""


class Kind(StrEnum):
    """What happens to a message on its way; the values are what people read."""

    GOOD = "good"
    FLAKY = "refused twice by the outside service"
    KILLED_BEFORE = "worker killed before its transaction"
    KILLED_AFTER = "worker killed after its transaction"
    AGAIN = "delivered again when done"
    AT_ONCE = "delivered three times at once"
    POSTED = "asked for three times over HTTP"
    GARBAGE = "does not parse"
    OVERDRAWN = "payer cannot pay"
    UNKNOWN = "account unknown"


SHARES = {
    Kind.FLAKY: 25,
    Kind.AGAIN: 25,
    Kind.POSTED: 25,
    Kind.GARBAGE: 25,
    Kind.OVERDRAWN: 25,
    Kind.UNKNOWN: 25,
    Kind.KILLED_BEFORE: 100,
    Kind.KILLED_AFTER: 100,
    Kind.AT_ONCE: 100,
}
"""One message in so many is of this kind, and at least one; all others are good."""

KILLS = (Kind.KILLED_BEFORE, Kind.KILLED_AFTER)
APART = (*KILLS, Kind.AT_ONCE)
"""Kinds that are sent far from each other, so that hardly ever two of them share a batch. A killed worker takes its
whole batch down, and five deliveries are all that a message has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One message. `name` is its transfer's id, also where the body is too broken to say so."""

    name: str
    kind: Kind
    body: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """The parts in the order of sending, the balances that the accounts are opened with, and the ends to expect."""

    parts: tuple[Part, ...]
    opening: Mapping[str, int]
    completed: frozenset[str]
    dead_lettered: frozenset[str]

    @property
    def kinds(self) -> Mapping[str, Kind]:
        """Each part's kind, by name."""
        return {part.name: part.kind for part in self.parts}

    @property
    def sides(self) -> Mapping[str, tuple[str, str]]:
        """Payer and payee of each transfer that can be read, by name."""
        found = {part.name: sides_of(part.body) for part in self.parts}
        return {name: sides for name, sides in found.items() if sides is not None}


def tell(seed: int, number: int, *, prefix: str = "", kills: bool = True, http: bool = True) -> Story:
    """Return the story of this seed with so many messages. `prefix` keeps its names apart from those of other runs.

    Without `kills` no worker dies; without `http` nothing is asked for over HTTP.
    """
    if number < FEWEST:
        raise ValueError(f"N must be at least {FEWEST}, to have one message of each kind; it is {number}")
    chance = random.Random(seed)
    names = _Names(f"{prefix}{seed}-")
    left_out = {*(() if kills else KILLS), *(() if http else (Kind.POSTED,))}
    kinds = _kinds(number, chance, left_out)
    parts = tuple(Part(name=names.transfer(i), kind=kind, body=_body(kind, i, names, chance)) for i, kind in kinds)
    opening = _opening(parts, names)
    completed = play_books(parts, opening)
    return Story(
        parts=parts,
        opening=opening,
        completed=completed,
        dead_lettered=frozenset(part.name for part in parts) - completed,
    )


def play_books(parts: Iterable[Part], opening: Mapping[str, int]) -> frozenset[str]:
    """Return the names of the parts that can be posted, one after the other, by an honest bookkeeper."""
    balances = dict(opening)
    posted = set()
    for part in parts:
        transfer = _readable(part.body)
        if transfer is None:
            continue
        payer, payee, amount = transfer["from_account"], transfer["to_account"], transfer["amount"]
        if payer in balances and payee in balances and balances[payer] >= amount:
            balances[payer] -= amount
            balances[payee] += amount
            posted.add(part.name)
    return frozenset(posted)


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of one story's accounts and transfers."""

    prefix: str

    def transfer(self, place: int) -> str:
        return f"{self.prefix}transfer-{place:05}"

    @property
    def funded(self) -> list[str]:
        return [f"{self.prefix}account-{place:02}" for place in range(FUNDED_ACCOUNTS)]

    @property
    def empty(self) -> list[str]:
        return [f"{self.prefix}empty-{place:02}" for place in range(EMPTY_ACCOUNTS)]

    @property
    def unknown(self) -> str:
        return f"{self.prefix}nobody"


def _kinds(number: int, chance: random.Random, left_out: set[Kind]) -> list[tuple[int, Kind]]:
    counts = {kind: max(1, number // share) for kind, share in SHARES.items() if kind not in left_out}
    apart = [kind for kind in APART for _ in range(counts.get(kind, 0))]
    mixed = [kind for kind, count in counts.items() if kind not in APART for _ in range(count)]
    mixed += [Kind.GOOD] * (number - len(apart) - len(mixed))
    chance.shuffle(apart)
    chance.shuffle(mixed)
    stride = number // len(apart)
    for place, kind in enumerate(apart):
        mixed.insert(place * stride + chance.randrange(max(1, stride // 2)), kind)
    return list(enumerate(mixed))


def _body(kind: Kind, place: int, names: _Names, chance: random.Random) -> str:
    payer, payee = chance.sample(names.funded, 2)
    transfer: dict[str, Any] = {
        "transfer_id": names.transfer(place),
        "from_account": payer,
        "to_account": payee,
        "amount": chance.randint(1, LARGEST_AMOUNT),
        "currency": CURRENCY,
    }
    match kind:
        case Kind.GARBAGE:
            return _garbage(transfer, chance)
        case Kind.OVERDRAWN:
            transfer["from_account"] = chance.choice(names.empty)
            transfer["amount"] += EMPTY_BALANCE
        case Kind.UNKNOWN:
            transfer[chance.choice(["from_account", "to_account"])] = names.unknown
        case _:
            pass
    return json.dumps(transfer)


def _garbage(transfer: dict[str, Any], chance: random.Random) -> str:
    """Break a transfer in one of the ways that producers find."""
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
            json.dumps({**transfer, "note": "a field that nobody asked for"}),
        ]
    )


def _opening(parts: Sequence[Part], names: _Names) -> dict[str, int]:
    """Fund every payer for all that the story asks of it, so that the order of handling makes no difference."""
    asked: Counter[str] = Counter()
    for part in parts:
        transfer = _readable(part.body)
        if transfer is not None:
            asked[transfer["from_account"]] += transfer["amount"]
    return {account: asked[account] for account in names.funded} | dict.fromkeys(names.empty, EMPTY_BALANCE)


def sides_of(body: str) -> tuple[str, str] | None:
    """Payer and payee of the transfer that a body says; None where it says none."""
    transfer = _readable(body)
    return None if transfer is None else (transfer["from_account"], transfer["to_account"])


def _readable(body: str) -> dict[str, Any] | None:
    """The transfer that a body says, by the message's rules as the story understands them; None where it says none."""
    try:
        found = json.loads(body)
    except ValueError:
        return None
    if not isinstance(found, dict) or set(found) != _FIELDS:
        return None
    amount = found["amount"]
    sound = isinstance(amount, int) and amount > 0 and found["from_account"] != found["to_account"]
    return found if sound else None


_FIELDS = {"transfer_id", "from_account", "to_account", "amount", "currency"}
