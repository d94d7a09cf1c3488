"""What a resend writes to the record of a dead letter's key, and when its new key lets in the new body."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    HeldElsewhere,
    OtherPayload,
    Settled,
    Unreadable,
    Unsent,
)
from idempotent_receiver.protocol.exchange import ask
from idempotent_receiver.protocol.record import Change, Record, attributes, from_attributes
from idempotent_receiver.protocol.resend import (
    BeginResend,
    Resend,
    check_open,
    resend_of,
    resending,
    resent,
    taken_back,
)
from idempotent_receiver.protocol.sending import TakeOver, mark
from idempotent_receiver.protocol.store import ActionFailed
from idempotent_receiver.protocol.transitions import Claim, Claimed
from idempotent_receiver.testing.memory import Table
from tests.manual_clock import ManualClock
from tests.unit.protocol.records import DAY, NOW, NOW_MS, by_powertools, existing

if TYPE_CHECKING:
    from collections.abc import Callable


RESEND = Resend(new_id="new", operator="alice", why="it was a text", message_id="d", original_id="m")
CLAIM = Claim("k", "ours", "alice", 0, DAY, lease_ms=0)
BEGIN = BeginResend(CLAIM, RESEND, "[1]")
ERROR = '{"type":"ValueError","permanent":true}'
FAILED = existing("FAILED", error=ERROR, attempts=3)


def sending(**changes: Any) -> Record:
    """The record of a key whose resend has begun."""
    made = Record(
        id="k",
        status="SENDING",
        version="fresh",
        validation="ours",
        owner="alice",
        resent=RESEND.to_json(),
        outbox="[1]",
        expiration=NOW + DAY,
        in_progress_expiration=NOW_MS,
        attempts=0,
    )
    return made._replace(**changes)


def after(seen: Record | None, begin: BeginResend = BEGIN) -> Record:
    """What the beginning of a resend makes of what it meets."""
    change = begin.step(seen, (), NOW_MS, "fresh")
    assert isinstance(change, Change)
    assert change.seen is seen
    return change.new


LEASED = existing("INPROGRESS", in_progress_expiration=NOW_MS + 1)
RELEASED = existing("INPROGRESS", in_progress_expiration=NOW_MS, owner=None, attempts=0, validation=None)
NEVER_RUN = existing("FAILED", error=ERROR, attempts=0, validation=None)
COMPLETED = existing("COMPLETED")
UNKNOWN, ENDLESS = (from_attributes({"id": "k", "status": status}) for status in ("PAUSED", "INPROGRESS"))
FOREIGN = from_attributes(attributes(sending()) | {"attempts": "one"})


@pytest.mark.parametrize(
    ("seen", "attempts"),
    [
        (None, 0),
        (existing("COMPLETED", expiration=NOW), 0),
        (sending(expiration=NOW), 0),
        (FAILED, 3),
        (NEVER_RUN, 0),
        (RELEASED, 0),
        # A lease that is over: a worker's, and of Powertools.
        (existing("INPROGRESS"), 1),
        (by_powertools("INPROGRESS"), 1),
    ],
)
def test_a_resend_makes_the_record_an_outbox_without_a_lease_and_counts_no_attempt(
    seen: Record | None, attempts: int
) -> None:
    assert after(seen) == sending(attempts=attempts)


@pytest.mark.parametrize(
    ("seen", "answer"),
    [
        (LEASED, HeldElsewhere(NOW_MS + 1)),
        (sending(in_progress_expiration=NOW_MS + 1), HeldElsewhere(NOW_MS + 1)),
        (sending(), Unsent(sending())),
        (COMPLETED, AlreadyCompleted(COMPLETED)),
        (sending(status="COMPLETED"), AlreadyCompleted(sending(status="COMPLETED"))),
        (sending(validation="another's"), OtherPayload("another's", "ours")),
        (UNKNOWN, Unreadable("unknown status 'PAUSED'")),
        (ENDLESS, Unreadable("INPROGRESS with neither a lease nor an expiration")),
        (FOREIGN, Unreadable("unexpected type of attempts")),
    ],
)
def test_a_resend_begins_only_where_the_key_may_be_claimed(seen: Record, answer: object) -> None:
    assert BEGIN.step(seen, (), NOW_MS, "fresh") == answer


def test_a_resend_whose_answer_was_lost_knows_its_own_record() -> None:
    assert BEGIN.step(sending(), ("fresh",), NOW_MS, "again") == Claimed(sending(), CLAIM)


def test_what_sqs_can_never_take_is_replaced_over_the_version_that_was_seen() -> None:
    again = BEGIN._replace(outbox="[2]", refused="fresh")
    assert after(sending(), again) == sending(outbox="[2]")
    for other in (sending(version="w"), sending(in_progress_expiration=NOW_MS + 1), COMPLETED):
        assert not isinstance(again.step(other, (), NOW_MS, "x"), Change)


def test_whose_resend_it_is_survives_a_take_over_and_the_mark() -> None:
    """Neither keeps the owner."""
    worker = Claim("k", "ours", "worker", NOW_MS + 1000, DAY)
    taken = TakeOver(worker).step(sending(), (), NOW_MS, "taken")
    assert isinstance(taken, Change)
    assert (taken.new.owner, resending(taken.new), resent(taken.new)) == ("worker", RESEND, None)
    marked = mark(Claimed(taken.new, worker)).step(taken.new, (), NOW_MS, "done")
    assert isinstance(marked, Change)
    assert (marked.new.status, marked.new.outbox) == ("COMPLETED", None)
    assert (resent(marked.new), resending(marked.new), taken_back(marked.new)) == (RESEND, None, None)


# What versions before wrote.

OF_BEFORE = Resend(old_id="k", new_id="new", fingerprint="fixed", operator="alice", why="it was a text")
CLAIMED = existing("INPROGRESS", owner="alice", resent=OF_BEFORE.to_json(), in_progress_expiration=NOW_MS + 1)


@pytest.mark.parametrize(
    ("record", "read"),
    [
        (CLAIMED, resending),
        (CLAIMED._replace(status="COMPLETED"), resent),
        (CLAIMED._replace(status="COMPLETED", id="new"), taken_back),
    ],
)
def test_what_a_version_before_wrote_is_read(record: Record, read: Callable[[Record], object]) -> None:
    assert [each(record) for each in (resending, resent, taken_back) if each is not read] == [None, None]
    assert read(record) == OF_BEFORE
    assert read(record._replace(owner="w")) is None, "an older version overwrote it, and left the attribute"


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{}", '{"new_id": 1}', "[" * 100_000, json.dumps(json.loads(RESEND.to_json()) | {"x": ""})],
)
def test_an_unreadable_attribute_is_not_believed(text: str) -> None:
    assert resend_of(sending(resent=text)) is None


@pytest.mark.parametrize("status", ["FAILED", "INPROGRESS"])
def test_a_stale_attribute_is_no_resend_in_any_other_status(status: str) -> None:
    record = sending(status=status)
    assert (resending(record), resent(record), taken_back(record)) == (None, None, None)


# The new key, in the transaction.


DEADLINE = Deadline.after(ManualClock(), 60_000)


def store_with(there: Record | None) -> MemoryStore:
    """A store in which `k` has failed, and its table with this record of the new key."""
    store = MemoryStore(tables={"records": Table("id")})
    store.insert([FAILED])
    if there is not None:
        store.tables["records"].items[(there.id,)] = dict(attributes(there))
    return store


def new_key(status: str, **changes: Any) -> Record:
    return existing(status, id="new", **{"validation": "fixed", **changes})


@pytest.mark.parametrize(
    ("there", "is_open"),
    [
        (None, True),
        (new_key("COMPLETED", expiration=NOW), True),
        # The same body has failed, or was released.
        (new_key("FAILED"), True),
        (new_key("INPROGRESS", validation=None), True),
        (new_key("FAILED", validation="other"), False),
        (new_key("COMPLETED"), False),
        (new_key("COMPLETED", validation=None), False),
        (new_key("SENDING"), False),
        # Itself being resent, and resent; claimed and closed by a version before.
        (sending(id="new", validation="fixed"), False),
        (sending(id="new", validation="fixed", status="COMPLETED"), False),
        (CLAIMED._replace(id="new", validation="fixed"), False),
    ],
)
def test_a_resend_begins_only_where_its_new_key_lets_the_body_in(there: Record | None, is_open: bool) -> None:
    store = store_with(there)
    answer = ask(BEGIN, FAILED, store, DEADLINE, actions=[check_open("new", "fixed", "records", NOW_MS)])
    assert isinstance(answer, Claimed if is_open else ActionFailed)
    (record,) = store.read(["k"])
    assert isinstance(record, Record)
    assert (resending(record) if is_open else record) == (RESEND if is_open else FAILED)
    if isinstance(answer, Claimed):
        assert isinstance(ask(mark(answer), answer.record, store, DEADLINE), Settled)
