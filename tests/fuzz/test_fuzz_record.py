"""Any DynamoDB item, any claim, any moment: reading and deciding never raise, and never break a claim."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import TypeSerializer
from hypothesis import given
from hypothesis import strategies as st

from idempotent_receiver.dynamodb.statements import record_in
from idempotent_receiver.protocol import answers, transitions
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, Change, Status, attributes, from_attributes
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
    transitions.Claim,
    id=st.just("k"),
    fingerprint=st.sampled_from([OURS, "another's"]),
    owner=st.just("w"),
    lease_until_ms=st.integers(1, 900_000).map(lambda ahead: NOW_MS + ahead),
    retention_seconds=st.integers(1, 1000) | st.just(DEFAULT_RETENTION_SECONDS),
    failures_are_answers=st.booleans(),
    lease_ms=st.none() | st.integers(1, 900_000),
)
versions = st.lists(hostile.characters.filter(bool), max_size=2)

ANSWERS = {
    FREE: (answers.Claimable, answers.AlreadyFailed, transitions.Claimed),
    DONE: answers.AlreadyCompleted,
    HELD: (answers.HeldElsewhere, transitions.Claimed),
    UNUSABLE: (answers.Unreadable, answers.OtherPayload),
}


@given(items, claims, versions)
def test_every_item_has_its_answer(item: dict[str, Any], claim: transitions.Claim, sent_versions: list[str]) -> None:
    """The decision is the oracle's, and it never raises."""
    seen = from_attributes(item)

    answer = transitions.decide(seen, claim, sent_versions, NOW_MS)

    assert isinstance(answer, ANSWERS[met(item, str(claim.fingerprint))])  # type: ignore[arg-type]
    if isinstance(answer, transitions.Claimed):
        assert seen.version in sent_versions
    if isinstance(answer, answers.HeldElsewhere):
        assert answer.until_ms > NOW_MS
    if isinstance(answer, answers.AlreadyFailed):
        assert claim.failures_are_answers


@given(items, claims, versions, st.integers(-(10**12), 10**15))
def test_no_live_claim_or_completed_record_is_claimed(
    item: dict[str, Any], claim: transitions.Claim, sent_versions: list[str], now_ms: int
) -> None:
    seen = from_attributes(item)
    lasts = seen.unreadable is None and not seen.expired(now_ms)

    answer = transitions.decide(seen, claim, sent_versions, now_ms)

    if lasts and seen.status == Status.COMPLETED:
        assert isinstance(answer, answers.AlreadyCompleted | answers.OtherPayload)
    live = seen.lease_until_ms is not None and now_ms < seen.lease_until_ms
    if lasts and seen.status == Status.INPROGRESS and live and seen.version not in sent_versions:
        assert not isinstance(answer, answers.Claimable | transitions.Claimed)
    if seen.unreadable is not None:
        assert answer == answers.Unreadable(seen.unreadable)


@given(items, claims, st.sampled_from(["complete", "fail", "release"]), hostile.items)
def test_a_claim_can_be_settled_only_by_its_owner(
    item: dict[str, Any], claim: transitions.Claim, ending: str, meanwhile: dict[str, Any] | None
) -> None:
    """A claim names what it replaces, and a settlement names the claim; if that is gone, the answer is a lost claim."""
    seen = from_attributes(item)
    change = claim.step(seen, (), NOW_MS, "fresh")
    if not isinstance(change, Change):
        return
    held = claim.applied(change)
    settlement = getattr(transitions, ending)(held, NOW_MS if ending == "release" else "{}")

    settled = settlement.step(held.record, (), NOW_MS, "later")

    assert change.seen is seen
    assert change.new.version == "fresh"
    assert change.new.expiration is not None
    ends_ms = claim.lease_until_ms if claim.lease_ms is None else NOW_MS + claim.lease_ms
    assert change.new.expiration * 1000 >= change.new.in_progress_expiration == ends_ms
    assert isinstance(settled, Change)
    assert settled.expected == {"version": "fresh"}
    assert settlement.step(settled.new, ["later"], NOW_MS, "third") == answers.Settled(settled.new)
    there = None if meanwhile is None else from_attributes({"id": "k", **meanwhile})
    if there is None or there.version != "fresh":
        assert settlement.step(there, ["later" * 9], NOW_MS, "third") == answers.ClaimLost(there)


@given(items)
def test_what_is_read_is_written_back_the_same(item: dict[str, Any]) -> None:
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
