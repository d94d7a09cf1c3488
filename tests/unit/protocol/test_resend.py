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
OTHER_BODY = resend("newer", "other", "bob")


@pytest.mark.parametrize(
    ("seen", "attempts", "error"),
    [
        pytest.param(None, 0, None, id="nothing"),
        pytest.param(existing("COMPLETED", expiration=NOW), 0, None, id="expired"),
        pytest.param(claimed(OTHER_BODY, expiration=NOW, error=ERROR), 0, None, id="an expired claim of a resend"),
        pytest.param(FAILED, 3, ERROR, id="failed"),
        pytest.param(existing("FAILED", error=ERROR, attempts=0, validation=None), 0, ERROR, id="failed, never run"),
        pytest.param(RELEASED, 0, None, id="released"),
        pytest.param(existing("INPROGRESS"), 1, None, id="its lease is over"),
        pytest.param(by_powertools("INPROGRESS"), 1, None, id="an orphan of Powertools"),
        pytest.param(
            claimed(in_progress_expiration=NOW_MS, error=ERROR), 0, ERROR, id="the same, but its lease is over"
        ),
    ],
)
def test_the_claim_keeps_what_the_record_said(seen: Record | None, attempts: int, error: str | None) -> None:
    assert after(seen) == claimed(attempts=attempts, error=error)


@pytest.mark.parametrize(
    ("seen", "answer"),
    [
        pytest.param(LEASED, HeldElsewhere(NOW_MS + 1), id="a live worker's"),
        pytest.param(claimed(), Settled(claimed()), id="the same body"),
        pytest.param(
            claimed(resend(operator="bob")),
            Settled(claimed(resend(operator="bob"))),
            id="the same body, by another operator",
        ),
        pytest.param(claimed(OTHER_BODY), HeldElsewhere(UNTIL_MS), id="another body under another key"),
        pytest.param(claimed(resend(fingerprint="other")), HeldElsewhere(UNTIL_MS), id="another body under the key"),
        pytest.param(claimed(owner="w"), HeldElsewhere(UNTIL_MS), id="a worker's, over an old claim of the resend"),
        pytest.param(existing("COMPLETED"), AlreadyCompleted(existing("COMPLETED")), id="completed"),
        pytest.param(
            claimed(status="COMPLETED"), AlreadyCompleted(claimed(status="COMPLETED")), id="resent with this very body"
        ),
        pytest.param(
            claimed(validation="another's"), OtherPayload("another's", "ours"), id="another payload's, resending too"
        ),
    ],
)
def test_the_claim_has_an_answer(seen: Record, answer: object) -> None:
    assert CLAIM.step(seen, (), NOW_MS, "fresh") == answer


@pytest.mark.parametrize(
    "item",
    [
        {"status": "SOMETHING_NEWER"},
        {"status": "INPROGRESS"},
        attributes(claimed()) | {"attempts": "one"},
    ],
    ids=["an unknown status", "no end", "a claim of this resend with a foreign type"],
)
def test_what_cannot_be_read_is_not_claimed(item: dict[str, object]) -> None:
    assert isinstance(CLAIM.step(from_attributes({"id": "k"} | item), (), NOW_MS, "fresh"), Unreadable)


def test_a_resent_key_is_completed_and_says_under_which_key_its_message_goes_on() -> None:
    change = complete_resend(claimed(attempts=3, error=ERROR), DAY).step(
        claimed(attempts=3, error=ERROR), (), NOW_MS, "done"
    )

    assert change == Change(
        claimed(status="COMPLETED", version="done", attempts=3, in_progress_expiration=None),
        claimed(attempts=3, error=ERROR),
    )
    assert resent(change.new) == RESEND
    assert resending(change.new) is taken_back(change.new) is None


@pytest.mark.parametrize(
    ("before", "then"),
    [
        pytest.param(FAILED, FAILED._replace(owner=None), id="failed"),
        pytest.param(
            existing("FAILED", error=ERROR, attempts=0, validation=None),
            existing("FAILED", error=ERROR, attempts=0, validation=None, owner=None),
            id="failed, never run",
        ),
        pytest.param(RELEASED, RELEASED, id="released"),
        pytest.param(
            existing("INPROGRESS", in_progress_expiration=NOW_MS, owner=None), None, id="released after a run"
        ),
        pytest.param(None, RELEASED, id="nothing"),
    ],
)
def test_a_take_back_restores_what_was_there(before: Record | None, then: Record | None) -> None:
    change = take_back(after(before), NOW_MS, DAY).step(after(before), (), NOW_MS, "back")

    assert change == Change((then or before)._replace(version="back"), after(before))  # type: ignore[union-attr]
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


@pytest.fixture
def table() -> Table:
    return Table("id")


@pytest.fixture
def store(table: Table) -> MemoryStore:
    store = MemoryStore(tables={"records": table})
    store.insert([FAILED])
    return store


@pytest.fixture
def deadline() -> Deadline:
    return Deadline.after(ManualClock(), 60_000)


def put(table: Table, record: Record | None) -> None:
    if record is not None:
        table.items[(record.id,)] = dict(attributes(record))


def new_key(status: str, **changes: Any) -> Record:
    return existing(status, id="new", **{"validation": "fixed", **changes})


@pytest.mark.parametrize(
    ("there", "is_open"),
    [
        pytest.param(None, True, id="nothing"),
        pytest.param(new_key("COMPLETED", expiration=NOW), True, id="expired"),
        pytest.param(new_key("FAILED"), True, id="the same body has failed"),
        pytest.param(new_key("INPROGRESS", validation=None), True, id="released"),
        pytest.param(new_key("FAILED", validation="other"), False, id="another payload's"),
        pytest.param(new_key("COMPLETED"), False, id="completed"),
        pytest.param(closing(RESEND, NOW_MS, DAY, "v"), False, id="closed by a take-back"),
        pytest.param(
            claimed(resend("k", "ours", "bob", old_id="new"), id="new", validation="fixed"), False, id="a circle"
        ),
    ],
)
def test_a_resend_claims_only_where_its_new_key_lets_the_body_in(
    store: MemoryStore, table: Table, deadline: Deadline, there: Record | None, is_open: bool
) -> None:
    put(table, there)

    answer = ask(CLAIM, FAILED, store, deadline, actions=[check_open(RESEND, "records", NOW_MS)])

    assert isinstance(answer, Settled if is_open else ActionFailed)
    (record,) = store.read(["k"])
    assert record is not None
    assert (resending(record) if is_open else record) == (RESEND if is_open else FAILED)


@pytest.mark.parametrize(
    ("there", "is_free"),
    [
        pytest.param(None, True, id="nothing"),
        pytest.param(new_key("COMPLETED", expiration=NOW), True, id="expired"),
        pytest.param(new_key("FAILED"), False, id="the new body has failed"),
        pytest.param(new_key("INPROGRESS"), False, id="the new body has begun"),
        pytest.param(new_key("COMPLETED"), False, id="the new body is done"),
    ],
)
def test_a_resend_is_taken_back_only_while_its_new_key_is_free(
    store: MemoryStore, table: Table, deadline: Deadline, there: Record | None, is_free: bool
) -> None:
    put(table, there)
    answer = ask(CLAIM, FAILED, store, deadline)
    assert isinstance(answer, Settled)

    back = commit(
        take_back(answer.record, NOW_MS, DAY), [put_closed(RESEND, "records", NOW_MS, DAY, "c")], store, deadline
    )

    (record,) = store.read(["k"])
    assert record is not None
    closed = from_attributes(table.items.get(("new",), {}))
    assert isinstance(back, Settled if is_free else ActionFailed)
    assert (record.status, resending(record)) == (("FAILED", None) if is_free else ("INPROGRESS", RESEND))
    assert taken_back(closed) == (RESEND if is_free else None)
    assert decide(closing(RESEND, NOW_MS, DAY, "c"), claim(fingerprint="fixed"), (), NOW_MS) == AlreadyCompleted(
        closing(RESEND, NOW_MS, DAY, "c")
    )
