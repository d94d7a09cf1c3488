"""What an operator sends from a record: how long that may take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore
from idempotent_receiver.operations.unsent import send_from
from idempotent_receiver.protocol.outbox import Outgoing, to_text
from idempotent_receiver.protocol.store import NotApplied
from tests.manual_clock import START_MS, ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import Written

OUTBOX = to_text([Outgoing("https://sqs.us-east-1.amazonaws.com/1/q", {"MessageBody": "a"})])


class ThrottledOnce(MemoryStore):
    """Refuses the first write."""

    refused = False

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        if self.refused:
            return super().replace(changes)
        self.refused = True
        return [NotApplied("throttled", retry=True)] * len(changes)


@pytest.mark.parametrize(("seconds", "why"), [(59.9, None), (60, "throttled")])
def test_what_was_sent_is_recorded_within_a_minute_or_the_reason_is_told(seconds: float, why: str | None) -> None:
    clock, store = ManualClock(fraction=0), ThrottledOnce()
    ended = {"in_progress_expiration": START_MS - 1, "expiration": START_MS // 1000 + 86_400}
    store.items["k"] = {"id": "k", "status": "SENDING", "version": "v", "owner": "w", "outbox": OUTBOX, **ended}

    def send(**asked: Any) -> Any:
        clock.sleep(seconds)
        return {"Successful": [{"Id": "0"}]}

    told = send_from(store, SimpleNamespace(send_message_batch=send), "k", clock, 86_400)  # type: ignore[arg-type]
    assert told is None if why is None else f"sent, but that was not recorded: {why}" in str(told)
    assert store.items["k"]["status"] == ("COMPLETED" if why is None else "SENDING")
