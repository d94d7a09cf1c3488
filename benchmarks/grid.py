"""The whole grid: round trips, batch sizes, shares of duplicates, handlers. Nothing of it is accepted or refused."""

from __future__ import annotations

from itertools import product

from benchmarks.measure import Cell

ROUND_TRIPS_SECONDS = (0.0, 0.001, 0.005, 0.010)
BATCHES = (1, 10, 25, 100)
DUPLICATES = (0.0, 0.5, 1.0)
HANDLERS = ((0.0, 1), (0.020, 1), (0.020, 8))
"""Seconds, and how many messages are handled at once."""


def cells() -> list[Cell]:
    """All cells of the grid up to 100 messages; larger batches are among the acceptance's."""
    every = product(ROUND_TRIPS_SECONDS, BATCHES, DUPLICATES, HANDLERS)
    return [_cell(delay, messages, share, seconds, at_once) for delay, messages, share, (seconds, at_once) in every]


def _cell(delay_seconds: float, messages: int, share: float, handler_seconds: float, concurrency: int) -> Cell:
    subjects = ["ours", "idemkit"]
    if concurrency == 1:
        subjects.insert(1, "powertools")  # which has no other
    if share == 0 and handler_seconds == 0:
        subjects.append("bare")
    handler = f"{handler_seconds * 1000:.0f} ms x{concurrency}" if handler_seconds else "instant"
    return Cell(
        name=f"{delay_seconds * 1000:g} ms, {messages}, {share:.0%} again, {handler}",
        messages=messages,
        subjects=tuple(subjects),
        repeats=3 if messages <= 10 and not handler_seconds else 1,
        delay_seconds=delay_seconds,
        duplicates=share,
        handler_seconds=handler_seconds,
        concurrency=concurrency,
    )
