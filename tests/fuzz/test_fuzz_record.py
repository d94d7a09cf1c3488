"""Any DynamoDB item, any claim, any moment: reading and deciding never raise, and never break a claim."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver.dynamodb.statements import record_in
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Change, Status, attributes, from_attributes
from idempotent_receiver.protocol.transitions import (
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
    Claimable,
    Claimed,
    ClaimLost,
    HeldElsewhere,
    OtherPayload,
    Settled,
    Unreadable,
    complete,
    decide,
    fail,
    release,
)
from tests.fuzz import hostile
from tests.fuzz.hostile import NOW_MS, OURS
from tests.fuzz.oracle import DONE, FREE, HELD, UNUSABLE, met

no_numbers = st.sampled_from([Decimal("NaN"), Decimal("Infinity"), float("nan"), float("-inf"), 1.5, 1 + 2j, object()])
items = st.one_of(
    hostile.ours,
    hostile.powertools,
    hostile.anything,
    st.dictionaries(st.sampled_from(["status", "expiration", "attempts", "version", "data"]), no_numbers),
).map(lambda item: {"id": "k", **item})
claims = st.builds(
    Claim,
    id=st.just("k"),
    fingerprint=st.sampled_from([OURS, "another's"]),
    owner=st.just("w"),
    lease_until_ms=st.integers(1, 900_000).map(lambda ahead: NOW_MS + ahead),
    retention_seconds=st.integers(1, 1000) | st.just(DEFAULT_RETENTION_SECONDS),
    failures_are_answers=st.booleans(),
)
versions = st.lists(hostile.characters.filter(bool), max_size=2)

ANSWERS = {
    FREE: (Claimable, AlreadyFailed, Claimed),
    DONE: AlreadyCompleted,
    HELD: (HeldElsewhere, Claimed),
    UNUSABLE: (Unreadable, OtherPayload),
}


@given(items, claims, versions)
def test_every_item_has_its_answer(item: dict[str, Any], claim: Claim, wrote: list[str]) -> None:
    """The decision is the oracle's, and it never raises."""
    seen = from_attributes(item)

    answer = decide(seen, claim, wrote, NOW_MS)

    assert isinstance(answer, ANSWERS[met(item, str(claim.fingerprint))])  # type: ignore[arg-type]
    if isinstance(answer, Claimed):
        assert seen.version in wrote
    if isinstance(answer, HeldElsewhere):
        assert answer.until_ms > NOW_MS
    if isinstance(answer, AlreadyFailed):
        assert claim.failures_are_answers


@given(items, claims, versions, st.integers(-(10**12), 10**15))
def test_no_live_claim_or_completed_record_is_claimed(
    item: dict[str, Any], claim: Claim, wrote: list[str], now_ms: int
) -> None:
    """A live claim is not taken over, and a completed record stays completed until it expires, at any time."""
    seen = from_attributes(item)
    lasts = seen.unreadable is None and not seen.expired(now_ms)

    answer = decide(seen, claim, wrote, now_ms)

    if lasts and seen.status == Status.COMPLETED:
        assert isinstance(answer, AlreadyCompleted | OtherPayload)
    live = seen.lease_until_ms is not None and now_ms < seen.lease_until_ms
    if lasts and seen.status == Status.INPROGRESS and live and seen.version not in wrote:
        assert not isinstance(answer, Claimable | Claimed)
    if seen.unreadable is not None:
        assert answer == Unreadable(seen.unreadable)


@given(items, claims, st.sampled_from(["complete", "fail", "release"]), hostile.items)
def test_a_claim_can_be_settled_only_by_its_owner(
    item: dict[str, Any], claim: Claim, ending: str, meanwhile: dict[str, Any] | None
) -> None:
    """A claim names what it replaces, and a settlement names the claim; if that is gone, the answer is a lost claim."""
    seen = from_attributes(item)
    change = claim.step(seen, (), NOW_MS, "fresh")
    if not isinstance(change, Change):
        return
    held = claim.applied(change)
    endings = {"complete": complete(held, "{}"), "fail": fail(held, "{}"), "release": release(held, NOW_MS)}
    settlement = endings[ending]

    settled = settlement.step(held.record, (), NOW_MS, "later")

    assert change.seen is seen
    assert change.new.version == "fresh"
    assert change.new.expiration is not None
    assert change.new.expiration * 1000 >= claim.lease_until_ms
    assert isinstance(settled, Change)
    assert settled.expected == {"version": "fresh"}
    assert settlement.step(settled.new, ["later"], NOW_MS, "third") == Settled(settled.new)
    there = None if meanwhile is None else from_attributes({"id": "k", **meanwhile})
    if there is None or there.version != "fresh":
        assert settlement.step(there, ["later" * 9], NOW_MS, "third") == ClaimLost(there)


@given(items)
def test_what_is_read_is_written_back_the_same(item: dict[str, Any]) -> None:
    """A readable record's attributes make the same record again, and other attributes are left out."""
    seen = from_attributes(item)

    again = from_attributes(attributes(seen))

    assert again == seen._replace(unreadable=None)
    assert attributes(seen).keys() <= item.keys() | {"id", "status"}


@given(hostile.ours | hostile.powertools | hostile.anything)
def test_an_item_on_the_wire_is_the_same_record(item: dict[str, Any]) -> None:
    """DynamoDB's typed values are read like plain ones, so an item is readable in both forms or in neither."""
    typed = {name: TypeSerializer().serialize(value) for name, value in {"id": "k", **item}.items()}

    read, plain = record_in(typed), from_attributes({"id": "k", **item})

    assert read == plain
