"""During a deployment, workers of two releases meet one record: what each makes of every form of an outbox."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from idempotent_receiver.transaction.outbox import (
    GivenUp,
    OutboxCall,
    Outgoing,
    confirmed,
    from_text,
    given_up,
    outgoing,
    to_text,
    with_reason,
)
from tests.unit.sqs.test_sends import SHIPMENTS, Orders, Sqs, both_modes, deliver, fails, key_of, messages

OUTBOX = to_text([Outgoing(SHIPMENTS, {"MessageBody": text}) for text in "ab"])
GIVEN_UP = GivenUp(SHIPMENTS, "alice", "the queue is gone")
LIVE_MS, OVER_MS = 2_000 * int(time.time()), 1


def read_before_tombstones(text: str) -> list[Outgoing]:
    """What the release before tombstones makes of an outbox. Any exception makes it leave the record alone, and report
    its message as failed.
    """
    return [outgoing(entry.pop("QueueUrl"), entry.pop("MessageBody"), entry) for entry in json.loads(text)]


def read_before_reasons(text: str) -> dict[int, Outgoing]:
    """What the release before tombstones had reasons makes of an outbox."""
    entries = json.loads(text)
    return {
        number: outgoing(entry.pop("QueueUrl"), entry.pop("MessageBody"), entry)
        for number, entry in enumerate(entries, 1)
        if entry is not None
    }


@pytest.mark.parametrize("number", [1, 2])
def test_the_release_before_reasons_reads_no_outbox_with_a_message_that_was_given_up(number: int) -> None:
    """So it never sends that, and does not mark the record, which would lose the reason."""
    assert read_before_reasons(OUTBOX) == from_text(OUTBOX)
    with pytest.raises(KeyError):
        read_before_reasons(with_reason(OUTBOX, number, GIVEN_UP))


@both_modes
def test_a_delivery_sends_what_is_left_beside_what_was_given_up_and_keeps_the_reason(effects: str) -> None:
    store, sqs = Orders(), Sqs()
    ended: dict[str, Any] = {"in_progress_expiration": OVER_MS, "expiration": LIVE_MS // 1000}
    outbox = with_reason(OUTBOX, 1, GIVEN_UP)
    store.items["m0"] = {"id": "m0", "status": "SENDING", "version": "v", "owner": "before", "outbox": outbox, **ended}

    assert deliver(store, sqs, fails, *messages(1, receives=2), effects=effects) == []

    assert (sqs.keys, store.status()) == ([key_of("m0", 2)], "COMPLETED")
    assert given_up(store.items["m0"].get("outbox")) == {1: GIVEN_UP}


@pytest.mark.parametrize("numbers", [{1}, {2}, {1, 2}])
def test_the_release_before_tombstones_reads_no_outbox_that_has_one(numbers: set[int]) -> None:
    """It would send what is left under other keys, and mark a record whose messages it has not seen."""
    with pytest.raises(AttributeError):
        read_before_tombstones(confirmed(OUTBOX, numbers))


def test_it_reads_all_that_is_left_of_a_delivery_that_confirmed_nothing() -> None:
    assert read_before_tombstones(confirmed(OUTBOX, set())) == [*from_text(OUTBOX).values()]


@pytest.mark.parametrize(
    ("outbox", "lease_ms", "sent", "status"),
    [
        (OUTBOX, LIVE_MS, [], "SENDING"),
        (OUTBOX, OVER_MS, [1, 2], "COMPLETED"),
        (confirmed(OUTBOX, {1}), LIVE_MS, [], "SENDING"),
        (confirmed(OUTBOX, {1}), OVER_MS, [2], "COMPLETED"),
        (confirmed(OUTBOX, {1, 2}), LIVE_MS, [], "SENDING"),
        (confirmed(OUTBOX, {1, 2}), OVER_MS, [], "COMPLETED"),
    ],
    ids=["live", "over", "tombstone, live", "tombstone", "tombstones alone, live", "tombstones alone"],
)
@both_modes
def test_this_release_sends_what_is_left_of_each_form_under_its_own_keys(
    effects: str, outbox: str, lease_ms: int, sent: list[int], status: str
) -> None:
    store, sqs = Orders(), Sqs()
    lasts: dict[str, Any] = {"in_progress_expiration": lease_ms, "expiration": LIVE_MS // 1000}
    store.items["m0"] = {"id": "m0", "status": "SENDING", "version": "v", "owner": "before", "outbox": outbox, **lasts}

    failed = deliver(store, sqs, fails, *messages(1, receives=2), effects=effects)

    assert failed == ([] if status == "COMPLETED" else ["m0"])
    assert sqs.keys == [key_of("m0", number) for number in sent]
    assert store.status() == status


CALL = OutboxCall("notify", {"order": 1})


def read_before_calls(text: str) -> dict[int, Outgoing]:
    """What the release before calls makes of an outbox."""
    entries = json.loads(text)
    return {
        number: outgoing(entry.pop("QueueUrl"), entry.pop("MessageBody"), entry)
        for number, entry in enumerate(entries, 1)
        if entry is not None and entry.keys() != {"GivenUp"}
    }


@pytest.mark.parametrize(
    "outbox",
    [
        to_text([CALL]),
        to_text([Outgoing(SHIPMENTS, {"MessageBody": "a"}), CALL]),
        confirmed(to_text([Outgoing(SHIPMENTS, {"MessageBody": "a"}), CALL]), {1}),
        confirmed(to_text([CALL, CALL]), {1}),
        with_reason(to_text([CALL, CALL]), 1, GIVEN_UP),
    ],
    ids=["a call", "behind a message", "behind a tombstone", "behind a call's tombstone", "behind one given up"],
)
def test_the_release_before_calls_reads_no_outbox_with_a_call(outbox: str) -> None:
    """So it neither sends nor marks: its delivery fails, and a worker of this release makes the call."""
    assert read_before_calls(OUTBOX) == from_text(OUTBOX)
    with pytest.raises(KeyError):
        read_before_calls(outbox)


def test_it_reads_an_outbox_whose_calls_are_all_made() -> None:
    assert read_before_calls(confirmed(to_text([CALL, CALL]), {1, 2})) == {}
