"""Our consumer without claims: all effects of its handlers are in their transactions."""

from benchmarks.settings import Cell, Handler
from benchmarks.subjects import ours


def build(cell: Cell) -> Handler:
    """The consumer, with metrics and its default logging."""
    return ours.build(cell, effects="transaction")
