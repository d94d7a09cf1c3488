"""What a resend writes to the record of a dead letter's key, and what a take-back makes of it again."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import MemoryStore
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    Claimable,
    HeldElsewhere,
    OtherPayload,
    Settled,
    Unreadable,
)
from idempotent_receiver.protocol.exchange import ask, commit
from idempotent_receiver.protocol.record import Change, Record, attributes, from_attributes
from idempotent_receiver.protocol.resend import (
    Resend,
    ResendClaim,
    check_open,
    closing,
    complete_resend,
    put_closed,
    resending,
    resent,
    take_back,
    taken_back,
)
from idempotent_receiver.protocol.store import ActionFailed
from idempotent_receiver.protocol.transitions import decide
from idempotent_receiver.testing.memory import Table
from tests.manual_clock import ManualClock
from tests.unit.protocol.records import DAY, NOW, NOW_MS, by_powertools, claim, existing

if TYPE_CHECKING:
    from collections.abc import Callable


def resend(new_id: str = "new", fingerprint: str = "fixed", operator: str = "alice", old_id: str = "k") -> Resend:
    return Resend(old_id=old_id, new_id=new_id, fingerprint=fingerprint, operator=operator, why="it was a text")


RESEND = resend()
CLAIM = ResendClaim(RESEND, "ours", DAY)
ERROR = '{"type":"ValueError","permanent":true}'
FAILED = existing("FAILED", error=ERROR, attempts=3)
UNTIL_MS = NOW_MS + DAY * 1000


def claimed(resend: Resend = RESEND, **changes: Any) -> Record:
    """The record of a key that is claimed for a resend."""
    made = Record(
        id="k",
        status="INPROGRESS",
        version="fresh",
        validation="ours",
        owner=resend.operator,
        resent=resend.to_json(),
        expiration=NOW + DAY,
        in_progress_expiration=UNTIL_MS,
        attempts=0,
    )
    return made._replace(**changes)


def after(seen: Record | None) -> Record:
    """What the claim makes of what it meets."""
    change = CLAIM.step(seen, (), NOW_MS, "fresh")
    assert isinstance(change, Change)
    assert change.seen is seen
    return change.new


LEASED = existing("INPROGRESS", in_progress_expiration=NOW_MS + 1)
RELEASED = existing("INPROGRESS", in_progress_expiration=NOW_MS, owner=None, attempts=0, validation=None)
STARTED = existing("INPROGRESS", in_progress_expiration=NOW_MS, owner=None)
NEVER_RUN = existing("FAILED", error=ERROR, attempts=0, validation=None)
COMPLETED = existing("COMPLETED")
OTHER_BODY = resend("newer", "other", "bob")
OTHERS = claimed(OTHER_BODY), claimed(resend(fingerprint="other")), claimed(owner="w")
BOBS, RESENT = claimed(resend(operator="bob")), claimed(status="COMPLETED")
UNKNOWN, ENDLESS = (from_attributes({"id": "k", "status": status}) for status in ("PAUSED", "INPROGRESS"))
FOREIGN = from_attributes(attributes(claimed()) | {"attempts": "one"})


@pytest.mark.parametrize(
    ("seen", "attempts", "error"),
    [
        (None, 0, None),
        (existing("COMPLETED", expiration=NOW), 0, None),
        (claimed(OTHER_BODY, expiration=NOW, error=ERROR), 0, None),
        (FAILED, 3, ERROR),
        (NEVER_RUN, 0, ERROR),
        (RELEASED, 0, None),
        # A lease that is over: a worker's, of Powertools, and of this very resend.
        (existing("INPROGRESS"), 1, None),
        (by_powertools("INPROGRESS"), 1, None),
        (claimed(in_progress_expiration=NOW_MS, error=ERROR), 0, ERROR),
    ],
)
def test_the_claim_keeps_what_the_record_said(seen: Record | None, attempts: int, error: str | None) -> None:
    """Unless it has expired."""
    assert after(seen) == claimed(attempts=attempts, error=error)


@pytest.mark.parametrize(
    ("seen", "answer"),
    [
        (LEASED, HeldElsewhere(NOW_MS + 1)),
        # The same body, by whichever operator.
        (claimed(), Settled(claimed())),
        (BOBS, Settled(BOBS)),
        # Another body, under another key and under this one; and a worker's, over an old claim of the resend.
        *((seen, HeldElsewhere(UNTIL_MS)) for seen in OTHERS),
        (COMPLETED, AlreadyCompleted(COMPLETED)),
        (RESENT, AlreadyCompleted(RESENT)),
        (claimed(validation="another's"), OtherPayload("another's", "ours")),
        (UNKNOWN, Unreadable("unknown status 'PAUSED'")),
        (ENDLESS, Unreadable("INPROGRESS with neither a lease nor an expiration")),
        (FOREIGN, Unreadable("unexpected type of attempts")),
    ],
)
def test_the_claim_has_an_answer(seen: Record, answer: object) -> None:
    assert CLAIM.step(seen, (), NOW_MS, "fresh") == answer


def test_a_resent_key_is_completed_and_says_under_which_key_its_message_goes_on() -> None:
    held = claimed(attempts=3, error=ERROR)
    change = complete_resend(held, DAY).step(held, (), NOW_MS, "done")
    done = held._replace(status="COMPLETED", version="done", error=None, in_progress_expiration=None)
    assert change == Change(done, held)
    assert resent(change.new) == RESEND
    assert resending(change.new) is taken_back(change.new) is None


@pytest.mark.parametrize(
    ("before", "then"),
    [
        (FAILED, FAILED._replace(owner=None)),
        (NEVER_RUN, NEVER_RUN._replace(owner=None)),
        (RELEASED, RELEASED),
        (STARTED, STARTED),
        (None, RELEASED),
    ],
    ids=["failed", "failed, never run", "released", "released after a run", "nothing"],
)
def test_a_take_back_restores_what_was_there(before: Record | None, then: Record) -> None:
    change = take_back(after(before), NOW_MS, DAY).step(after(before), (), NOW_MS, "back")
    assert change == Change(then._replace(version="back"), after(before))
    assert isinstance(decide(change.new, claim(), (), NOW_MS), Claimable)


@pytest.mark.parametrize("read", [resending, resent, taken_back])
@pytest.mark.parametrize(
    "record",
    [
        claimed(owner="w"),
        claimed(owner=None),
        claimed(owner="w", status="COMPLETED"),
        closing(RESEND, NOW_MS, DAY, "v")._replace(owner="w"),
        claimed(owner="alice", status="FAILED"),
        *(claimed(resent=text) for text in ("", "null", "[]", "{}", '{"old_id": 1}', "[" * 100_000)),
        claimed(resent=json.dumps(json.loads(RESEND.to_json()) | {"more": ""})),
    ],
)
def test_a_stale_or_unreadable_attribute_is_not_believed(read: Callable[[Record], object], record: Record) -> None:
    """A version of the library that does not know the attribute leaves it, and writes its own owner."""
    assert read(record) is None


def test_an_older_versions_claim_keeps_the_attribute_and_is_its_own() -> None:
    """It replaces the attributes that it knows; the item keeps the others."""
    held = from_attributes({**attributes(claimed()), **attributes(existing("COMPLETED", id="k"))})
    assert (held.resent, resent(held)) == (RESEND.to_json(), None)
    assert CLAIM.step(held, (), NOW_MS, "fresh") == AlreadyCompleted(held)


# The new key, in the transactions of the claim and of the take-back.


DEADLINE = Deadline.after(ManualClock(), 60_000)


def store_with(there: Record | None) -> MemoryStore:
    """A store in which `k` has failed, and its table with this record of the new key."""
    store = MemoryStore(tables={"records": Table("id")})
    store.insert([FAILED])
    if there is not None:
        store.tables["records"].items[(there.id,)] = dict(attributes(there))
    return store


def at_rest(store: MemoryStore) -> Record:
    (record,) = store.read(["k"])
    assert isinstance(record, Record)
    return record


def new_key(status: str, **changes: Any) -> Record:
    return existing(status, id="new", **{"validation": "fixed", **changes})


CLOSING = closing(RESEND, NOW_MS, DAY, "c")
CIRCLE = resend("k", "ours", "bob", old_id="new")


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
        # Closed by a take-back, and a circle.
        (CLOSING, False),
        (claimed(CIRCLE, id="new", validation="fixed"), False),
    ],
)
def test_a_resend_claims_only_where_its_new_key_lets_the_body_in(there: Record | None, is_open: bool) -> None:
    store = store_with(there)
    answer = ask(CLAIM, FAILED, store, DEADLINE, actions=[check_open(RESEND, "records", NOW_MS)])
    assert isinstance(answer, Settled if is_open else ActionFailed)
    record = at_rest(store)
    assert (resending(record) if is_open else record) == (RESEND if is_open else FAILED)


@pytest.mark.parametrize(
    ("there", "is_free"),
    [
        (None, True),
        (new_key("COMPLETED", expiration=NOW), True),
        *((new_key(status), False) for status in ("FAILED", "INPROGRESS", "COMPLETED")),
    ],
)
def test_a_resend_is_taken_back_only_while_its_new_key_is_free(there: Record | None, is_free: bool) -> None:
    """The new key is closed then: its body has failed, has begun, or is done."""
    store = store_with(there)
    assert ask(CLAIM, FAILED, store, DEADLINE) == Settled(at_rest(store))

    closes = put_closed(RESEND, "records", NOW_MS, DAY, "c")
    back = commit(take_back(at_rest(store), NOW_MS, DAY), [closes], store, DEADLINE)

    record = at_rest(store)
    closed = from_attributes(store.tables["records"].items.get(("new",), {}))
    assert isinstance(back, Settled if is_free else ActionFailed)
    assert (record.status, resending(record)) == (("FAILED", None) if is_free else ("INPROGRESS", RESEND))
    assert taken_back(closed) == (RESEND if is_free else None)
    assert decide(CLOSING, claim(fingerprint="fixed"), (), NOW_MS) == AlreadyCompleted(CLOSING)
