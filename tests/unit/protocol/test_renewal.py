"""A renewed lease."""

from __future__ import annotations

import pytest

from idempotent_receiver.protocol.answers import ClaimLost, Settled
from idempotent_receiver.protocol.record import Change, Status
from idempotent_receiver.protocol.renewal import Renewal
from tests.unit.protocol.records import DAY, NOW, NOW_MS, existing


@pytest.mark.parametrize(("retention", "expiration"), [(DAY, NOW + DAY), (1, NOW + 60)])
def test_a_renewal_writes_the_lease_anew_and_changes_nothing_else(retention: int, expiration: int) -> None:
    """The record outlasts its lease."""
    held = existing(Status.INPROGRESS, version="mine", in_progress_expiration=NOW_MS + 1, input="{}")
    renewal = Renewal(held, 60_000, retention)
    renewed = held._replace(version="fresh", in_progress_expiration=NOW_MS + 60_000, expiration=expiration)
    change = renewal.step(held, (), NOW_MS, "fresh")
    assert change == Change(renewed, held)
    assert renewal.applied(change) == renewal.step(renewed, ("fresh",), NOW_MS, "later") == Settled(renewed)
    assert renewal.step(None, (), NOW_MS, "fresh") == ClaimLost(None)


def test_a_renewal_keeps_what_a_checkpoint_recorded_meanwhile() -> None:
    """Whichever of its own writes it finds."""
    held = existing(Status.SENDING, version="mine", in_progress_expiration=NOW_MS + 1, outbox="[1,2]")
    kept = held._replace(version="checkpoint", outbox="[null,2]")
    change = Renewal(held, 60_000, DAY, {"checkpoint"}).step(kept, (), NOW_MS, "fresh")
    assert isinstance(change, Change)
    assert (change.new.outbox, change.new.version, change.seen) == ("[null,2]", "fresh", kept)
