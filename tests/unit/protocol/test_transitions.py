"""The record's one decision, row by row, and what every transition writes."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.execution import hand_over
from idempotent_receiver.protocol.record import Change, Record, Status, from_attributes
from idempotent_receiver.protocol.transitions import (
    AlreadyCompleted,
    AlreadyFailed,
    Claimable,
    Claimed,
    ClaimLost,
    HeldElsewhere,
    OtherPayload,
    Peek,
    Settled,
    Settlement,
    Unreadable,
    decide,
)
from tests.unit.protocol.records import (
    DAY,
    NOW,
    NOW_MS,
    applied_claim,
    by_powertools,
    change_of,
    claim,
    conclusion,
    existing,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def decided(seen: Record | None, wrote: tuple[str, ...] = (), **changes: object) -> object:
    return decide(seen, claim(**changes), wrote, NOW_MS)


# The decision table, row by row.

HELD, DONE, GONE = existing("INPROGRESS"), existing("COMPLETED"), existing("FAILED")
LATER_MS = NOW_MS + 60_000


def leased(until_ms: int | None, **changes: object) -> Record:
    return existing("INPROGRESS", in_progress_expiration=until_ms, **changes)


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(None, id="nothing is there"),
        # DynamoDB deletes up to days late, so the attribute decides, before anything else.
        *(
            pytest.param(existing(status, expiration=NOW, validation="another's", in_progress_expiration=LATER_MS))
            for status in [*Status, "SOMETHING_NEWER", ""]
        ),
        pytest.param(DONE._replace(expiration=NOW - 1), id="expired before"),
        pytest.param(DONE._replace(expiration=0), id="zero is a time"),
        pytest.param(leased(NOW_MS - 1), id="an orphan"),
        pytest.param(leased(NOW_MS), id="a lease has ended at its end"),
        pytest.param(leased(0), id="a lease of zero is one"),
        pytest.param(by_powertools("INPROGRESS"), id="an orphan of Powertools"),
        pytest.param(GONE, id="failed"),
    ],
)
def test_what_may_be_claimed(seen: Record | None) -> None:
    assert decided(seen) == Claimable(seen)


@pytest.mark.parametrize(
    "seen",
    [
        *(existing(status) for status in ("EXPIRED", "inprogress", "", "SOMETHING_NEWER")),
        pytest.param(leased(None, expiration=None), id="no end"),
        pytest.param(existing("SOMETHING_NEWER", validation="another's"), id="before a mismatch"),
        *(
            pytest.param(from_attributes({"id": "k"} | item), id=f"no record: {item}")
            for item in (
                {},
                {"status": "COMPLETED", "expiration": "soon"},
                # No write could name what it replaces, so it is not claimable even when it has expired.
                {"expiration": NOW - 1},
                {"status": "FAILED", "version": 7, "expiration": NOW - 1},
            )
        ),
    ],
)
def test_what_cannot_be_read(seen: Record) -> None:
    """The record of a newer version, or an operator's edit, is neither free nor completed, and is not guessed."""
    assert isinstance(decided(seen), Unreadable)


@pytest.mark.parametrize(("status", "lease"), [*product(Status, [NOW_MS - 1, NOW_MS + 1])])
@pytest.mark.parametrize("version", ["theirs", "mine"])
def test_another_payload_under_the_key_is_a_mismatch_in_any_status(status: Status, lease: int, version: str) -> None:
    """Completed, failed, held or orphaned: the key belongs to another payload, whoever wrote it."""
    seen = existing(status, version=version, validation="another's", in_progress_expiration=lease)

    assert decided(seen, ("mine",)) == OtherPayload(expected="another's", found="ours")


@pytest.mark.parametrize(("stored", "ours"), [(None, "ours"), ("theirs", None), (None, None)])
def test_a_payload_is_only_compared_where_both_sides_know_one(stored: str | None, ours: str | None) -> None:
    """A record whose handler never started keeps no fingerprint: a corrected payload may come under its key."""
    assert isinstance(decided(GONE._replace(validation=stored), fingerprint=ours), Claimable)


@pytest.mark.parametrize(
    "seen",
    [
        DONE._replace(data='{"receipt":1}'),
        pytest.param(DONE._replace(expiration=NOW + 1), id="not yet expired"),
        pytest.param(DONE._replace(expiration=None), id="never expires"),
        pytest.param(DONE._replace(version="mine"), id="before one's own version"),
        pytest.param(by_powertools("COMPLETED"), id="by Powertools"),
    ],
)
def test_what_is_completed_is_done(seen: Record) -> None:
    """The answer has the stored record. A claim never mistakes it for its own, and nothing runs after a migration."""
    assert decided(seen, ("mine",)) == AlreadyCompleted(seen)


@pytest.mark.parametrize("lease", [NOW_MS - 1, LATER_MS])
def test_the_version_that_this_claim_wrote_is_its_own_claim(lease: int) -> None:
    """The answer to its write was lost. Its lease does not matter; it is not held elsewhere."""
    seen = leased(lease, version="mine")

    answer = decided(seen, wrote=("earlier", "mine"))

    assert isinstance(answer, Claimed)
    assert answer.record == seen


def test_a_lease_is_live_until_its_end() -> None:
    """To the millisecond. Without a context Powertools writes no lease: the claim ends at the record's expiration."""
    assert decided(leased(NOW_MS + 1)) == HeldElsewhere(NOW_MS + 1)
    unleased = by_powertools("INPROGRESS", in_progress_expiration=None)
    assert decided(unleased) == HeldElsewhere((NOW + DAY) * 1000)


def test_failures_are_answers_if_the_claim_says_so() -> None:
    """Not so an orphan: no attempt has failed there."""
    assert decided(GONE, failures_are_answers=True) == AlreadyFailed(GONE)
    assert decided(HELD, failures_are_answers=True) == Claimable(HELD)


# What a claim writes.


@pytest.mark.parametrize("seen", [None, GONE, HELD, by_powertools("INPROGRESS"), DONE._replace(expiration=NOW)])
def test_every_write_puts_a_fresh_version_in_place_of_what_was_seen(seen: Record | None) -> None:
    """So two take-overs cannot both succeed."""
    change = change_of(claim(), seen, "fresh")

    assert change.new.version == "fresh"
    assert change.seen is seen


def test_a_claim_writes_its_lease_its_owner_its_fingerprint_and_the_retention() -> None:
    """It keeps neither the result nor the error of an earlier attempt."""
    seen = existing(Status.FAILED, data="1", error="{}", validation=None)

    assert change_of(claim(), seen, "fresh").new == Record(
        id="k",
        status="INPROGRESS",
        version="fresh",
        expiration=NOW + DAY,
        in_progress_expiration=NOW_MS + 30_000,
        attempts=2,
        validation="ours",
        owner="me",
    )


@pytest.mark.parametrize(
    ("seen", "attempts", "taken_over"),
    [
        (None, 1, False),
        (existing("FAILED", attempts=4), 5, False),
        (existing("FAILED", attempts=None), 2, False),
        (existing("FAILED", attempts=4, expiration=NOW), 1, False),
        (HELD, 2, True),
        (by_powertools("INPROGRESS"), 2, True),
        # A released record has no owner, and its claim does not count.
        (existing("INPROGRESS", attempts=0, owner=None), 1, False),
    ],
)
def test_attempts_count_how_often_the_handler_may_have_started(
    seen: Record | None, attempts: int, taken_over: bool
) -> None:
    """The count starts anew after an expired record. A claim that was never settled is taken over."""
    mine = applied_claim(seen)

    assert (mine.record.attempts, mine.taken_over) == (attempts, taken_over)


def test_a_peek_decides_and_never_writes() -> None:
    """It returns the record that a claim would replace."""
    look = Peek(claim())

    assert look.step(GONE, (), NOW_MS, "unused") == Claimable(GONE)
    assert look.step(DONE, (), NOW_MS, "unused") == AlreadyCompleted(DONE)
    with pytest.raises(AssertionError):
        look.applied(Change(GONE, None))


# Settlements.


STARTED = {"attempts": 1, "validation": "ours"}
ERROR = {"status": "FAILED", "error": "{}", "owner": "me"}
FREE = {"status": "INPROGRESS", "in_progress_expiration": NOW_MS}
RESULT = {"status": "COMPLETED", "data": "1", "owner": "me"}


def failed_unstarted(mine: Claimed) -> Settlement:
    return transitions.fail(mine, "{}", started=False)


def released(mine: Claimed) -> Settlement:
    return transitions.release(mine, NOW_MS)


@pytest.mark.parametrize(
    ("settle", "over", "kept"),
    [
        (lambda mine: transitions.complete(mine, "1"), None, RESULT | STARTED),
        (lambda mine: transitions.fail(mine, "{}"), existing("FAILED", attempts=2), ERROR | STARTED | {"attempts": 3}),
        # A body that did not validate may be corrected under the same key.
        (failed_unstarted, None, ERROR | {"attempts": 0}),
        (released, None, FREE | {"attempts": 0}),
        # Not starting a second attempt does not forget the payload of the first, whose handler had started.
        (failed_unstarted, GONE, ERROR | STARTED),
        (released, GONE, FREE | STARTED),
    ],
    ids=["complete", "fail", "unstarted", "released", "unstarted again", "released again"],
)
def test_what_a_settlement_writes(
    settle: Callable[[Claimed], Settlement], over: Record | None, kept: dict[str, Any]
) -> None:
    """In place of the claim, kept from now on in whole seconds. The lease ends."""
    mine = applied_claim(over)

    change = settle(mine).step(mine.record, (), NOW_MS + 90_500, "fresh")

    assert isinstance(change, Change)
    assert change.expected == {"version": "claim-version"}
    assert change.new == Record(id="k", version="fresh", expiration=NOW + 91 + DAY, **kept)
    assert settle(mine).applied(change) == Settled(change.new)
    others = decide(change.new, claim(owner="next", fingerprint="another's"), (), NOW_MS)
    assert isinstance(others, OtherPayload if "validation" in kept else Claimable)


def test_a_settlement_knows_the_versions_that_renewals_have_sent() -> None:
    mine = replace(applied_claim(), renewed=("renewed",))
    assert transitions.complete(mine, None).renewed == mine.renewed


@pytest.mark.parametrize("retention", [1, 60, DAY])
@pytest.mark.parametrize("lease_ms", [1, 999, 1000, 60_001, 900_000])
def test_a_record_never_expires_before_its_lease(lease_ms: int, retention: int) -> None:
    """Otherwise it would count as absent, because the expiration is checked before the lease."""
    wanted = claim(lease_until_ms=NOW_MS + lease_ms, retention_seconds=retention)
    written = [
        change_of(wanted, seen).new for seen in (None, existing("FAILED"), existing("COMPLETED", expiration=NOW))
    ]
    mine = applied_claim(retention_seconds=retention)
    written.append(change_of(hand_over(mine, "arn:1", NOW_MS + lease_ms), mine.record).new)
    written.append(change_of(transitions.release(mine, NOW_MS + 1), mine.record).new)

    for new in written:
        assert new.expiration is not None
        assert new.in_progress_expiration is not None
        assert new.expiration * 1000 >= new.in_progress_expiration
        assert new.expiration >= NOW + retention


@pytest.mark.scenario("S10", mutant="a record expires before its lease")
def test_a_live_lease_is_honoured_to_its_end_however_short_the_retention() -> None:
    """A result that is kept for a second, of a call that may run for a quarter of an hour."""
    seen = applied_claim(lease_until_ms=NOW_MS + 900_500, retention_seconds=1).record

    assert decide(seen, claim(), (), NOW_MS + 900_499) == HeldElsewhere(NOW_MS + 900_500)
    assert isinstance(decide(seen, claim(), (), NOW_MS + 900_500), Claimable)


@pytest.mark.parametrize("after_ms", [0, 1, 999])
def test_a_record_is_kept_for_all_of_its_retention(after_ms: int) -> None:
    """Expirations are whole seconds and round up, or a retention of a second could last a millisecond."""
    mine = applied_claim(retention_seconds=1)
    done = transitions.complete(mine, "1").change(NOW_MS + after_ms, "fresh").new

    assert not done.expired(NOW_MS + after_ms + 999)
    assert done.expired(NOW_MS + after_ms + 2000)


@pytest.mark.parametrize("found", [None, existing("INPROGRESS"), existing("COMPLETED"), by_powertools("COMPLETED")])
def test_a_settlement_whose_version_is_gone_has_lost_its_claim(found: Record | None) -> None:
    """It changes no other record, and does not restore a deleted one."""
    assert transitions.complete(applied_claim(), "1").step(found, ("never-written",), NOW_MS, "next") == ClaimLost(
        found
    )


@pytest.mark.parametrize(
    "seen",
    [
        None,
        existing(Status.COMPLETED, execution="arn:1", data="0"),
        existing(Status.FAILED, execution="arn:1", error="{}"),
        existing(Status.INPROGRESS, in_progress_expiration=NOW_MS + 1, execution="arn:2"),
        existing(Status.INPROGRESS, execution="arn:1")._replace(unreadable="foreign"),
        existing("SOMETHING", execution="arn:1"),
    ],
)
def test_a_late_conclusion_changes_nothing(seen: Record | None) -> None:
    assert conclusion().step(seen, (), NOW_MS, "fresh") == ClaimLost(seen)


def test_every_combination_has_exactly_the_answer_of_the_first_row_that_fits() -> None:
    """Compares the table with a second implementation, over every combination of its inputs."""
    statuses = [*Status, "SOMETHING_NEWER"]
    leases, expirations = [None, NOW_MS - 1, NOW_MS, NOW_MS + 1], [None, NOW, NOW + 1]
    prints, versions = [None, "ours", "another's"], [None, "mine", "theirs"]

    for status, lease, expiration, stored, version, answers in product(
        statuses, leases, expirations, prints, versions, [False, True]
    ):
        ends = {"expiration": expiration, "in_progress_expiration": lease}
        seen = Record(id="k", status=status, version=version, validation=stored, **ends)
        answer = decided(seen, ("mine",), failures_are_answers=answers)
        assert type(answer) is _second_implementation(seen, answers), seen


def _second_implementation(seen: Record, failures_are_answers: bool) -> type:
    until = seen.in_progress_expiration
    if until is None and seen.expiration is not None:
        until = seen.expiration * 1000
    rows = [
        (seen.expiration is not None and seen.expiration <= NOW, Claimable),
        (seen.status == "SOMETHING_NEWER" or (seen.status == "INPROGRESS" and until is None), Unreadable),
        (seen.validation == "another's", OtherPayload),
        (seen.status == "COMPLETED", AlreadyCompleted),
        (seen.version == "mine", Claimed),
        (seen.status == "INPROGRESS" and until is not None and until > NOW_MS, HeldElsewhere),
        (seen.status == "FAILED" and failures_are_answers, AlreadyFailed),
        (True, Claimable),
    ]
    return next(answer for fits, answer in rows if fits)
