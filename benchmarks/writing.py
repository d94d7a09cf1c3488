"""Batches of fresh messages whose handlers write one item each, under a condition.

Sizes, shares of conditions that fail, and the items: one each, ten or one that all messages share. Transactions on one
item cannot overlap, so what is shared costs requests and time. Promises rest on the batches that share nothing and of
which nothing fails; the others are measured in one round.
"""

from __future__ import annotations

from itertools import product

from benchmarks.settings import Cell

SIZES = (10, 100, 1_000)
ITEMS = {
    0: "each with a write of its own",
    10: "each with a write to one of ten items",
    1: "all with a write to one item",
}
"""How many items the messages share, and what that is called."""
FAILING = (0.0, 0.01, 0.10)


def _cell(messages: int, hot_items: int = 0, failing: float = 0.0) -> Cell:
    name = f"{messages:,} fresh, {ITEMS[hot_items]}" + f", {failing:.0%} failing" * bool(failing)
    subjects: tuple[str, ...] = ("ours", "unclaimed")
    repeats = {10: 5, 100: 3, 1_000: 1}[messages]
    if not hot_items and not failing:
        subjects = ("ours", "bare", "unclaimed", "bare_unclaimed", "powertools")
    elif messages <= 100 and not failing:
        subjects = (*subjects, "powertools")  # a thousand take it 20 seconds
    return Cell(
        name=name,
        messages=messages,
        subjects=subjects,
        repeats=repeats,
        writes=True,
        hot_items=hot_items,
        failing=failing,
    )


CELLS = [
    _cell(messages, hot_items, failing)
    for messages, hot_items, failing in product(SIZES, ITEMS, FAILING)
    if not failing or messages * failing >= 1  # a hundredth of ten is nobody
]
FRESH = {messages: _cell(messages) for messages in SIZES}
TENTH_FAILS = _cell(100, failing=0.10)
READING = {
    concurrency: Cell(
        name=f"100 fresh, each with a read and a write of its own, {concurrency} at once",
        messages=100,
        subjects=("ours", "unclaimed", "powertools"),
        repeats=3,
        concurrency=concurrency,
        writes=True,
        reads=True,
    )
    for concurrency in (1, 25)
}
"""Batches whose handlers also read the item that they write, one after the other or many at once."""

SENDING = Cell(
    name="100 fresh, each with a write of its own and a message that it sends",
    messages=100,
    subjects=("ours", "unclaimed", "powertools"),
    repeats=3,
    writes=True,
    sends=True,
)
"""A batch whose handlers also send a message each, to one queue."""

OTHERS = [cell for cell in CELLS if cell not in FRESH.values()]
