"""Chunks of one, so that eight messages are many: claims run ahead, and are given back, as in large batches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from idempotent_receiver.batch import claims, pace, receiver
from idempotent_receiver.sqs import consumer

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def small_chunks() -> Iterator[None]:
    """One message a claim, one held ahead of slow handlers and four of quick ones, which all are taken for to begin
    with, and soon taken for stalled.
    """
    with (
        patch.object(claims, "WRITES_A_CALL", 1),
        patch.object(pace, "FEW_RUNS", 1),
        patch.object(pace, "FEW_ROUND_TRIPS_SECONDS", 0.5),
        patch.object(pace, "STALL_SECONDS", 0.004),
        patch.object(consumer, "Pace", lambda: pace.Pace(seconds=0.0)),
        patch.object(receiver, "MOST_CLAIMED_AHEAD", 1),
        patch.object(receiver, "MOST_CLAIMED_AHEAD_OF_QUICK", 4),
    ):
        yield
