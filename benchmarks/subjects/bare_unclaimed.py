"""The limit without claims: the transactions alone, sent by a bare client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.subjects import bare

if TYPE_CHECKING:
    from benchmarks.settings import Cell, Event

build = bare.build


def prepare(event: Event, cell: Cell) -> Event:
    """The event with its transactions."""
    return bare.prepare(event, cell, claims=False)
