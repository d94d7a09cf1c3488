"""Chunks of one message, so that with eight messages claims run ahead and are released, as in large batches."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest.mock import patch

from idempotent_receiver.batch import exchanges

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def small_chunks() -> Iterator[None]:
    """Claim one message at a time, and at most four ahead of the handlers."""
    with patch.object(exchanges, "CLAIMS_A_CALL", 1), patch.object(exchanges, "MOST_CLAIMED_AHEAD", 4):
        yield
