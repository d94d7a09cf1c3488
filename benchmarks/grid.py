"""A grid of round trips, batch sizes, shares of duplicates and handlers. No promise depends on it."""

from __future__ import annotations

from itertools import product

from benchmarks.settings import Cell

ROUND_TRIPS_SECONDS = (0.0, 0.001, 0.005, 0.010)
BATCHES = (1, 10, 25, 100)
DUPLICATES = (0.0, 0.5, 1.0)
HANDLERS = ((0.0, 1), (0.020, 1), (0.020, 8))
"""The seconds that a handler takes, and the concurrency."""


def cells() -> list[Cell]:
    """All cells of the grid."""
    return [_cell(*axes) for axes in product(ROUND_TRIPS_SECONDS, BATCHES, DUPLICATES, HANDLERS)]


def _cell(delay_seconds: float, messages: int, share: float, handler: tuple[float, int]) -> Cell:
    seconds, concurrency = handler
    powertools = ["powertools"] if concurrency == 1 else []  # it has no concurrency
    bare = ["bare"] if share == 0 and seconds == 0 else []
    shown = f"{seconds * 1000:.0f} ms x{concurrency}" if seconds else "instant"
    return Cell(
        name=f"{delay_seconds * 1000:g} ms, {messages}, {share:.0%} again, {shown}",
        messages=messages,
        subjects=("ours", *powertools, "idemkit", *bare),
        repeats=3 if messages <= 10 and not seconds else 1,
        delay_seconds=delay_seconds,
        duplicates=share,
        handler_seconds=seconds,
        concurrency=concurrency,
    )
