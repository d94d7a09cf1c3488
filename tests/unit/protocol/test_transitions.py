"""The record's one decision, row by row, and what every transition writes."""

from __future__ import annotations

from itertools import product

import pytest

from idempotent_receiver.protocol import long_runs, transitions
from idempotent_receiver.protocol.record import Change, Record, Status, from_attributes
from idempotent_receiver.protocol.transitions import (
    AlreadyCompleted,
    AlreadyFailed,
    Claim,
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
from tests.unit.protocol.records import DAY, NOW, NOW_MS, by_powertools, existing


def claim(**changes: object) -> Claim:
    made = Claim(id="k", fingerprint="ours", owner="me", lease_until_ms=NOW_MS + 30_000, retention_seconds=DAY)
    return made._replace(**changes)  # type: ignore[arg-type]


def decided(seen: Record | None, wrote: tuple[str, ...] = (), **changes: object) -> object:
    return decide(seen, claim(**changes), wrote, NOW_MS)


def change_of(transition: Claim | Settlement, seen: Record | None, version: str = "fresh") -> Change:
    change = transition.step(seen, (), NOW_MS, version)
    assert isinstance(change, Change)
    return change


def applied_claim(seen: Record | None = None, **changes: object) -> Claimed:
    """A claim of this worker that the store has applied."""
    wanted = claim(**changes)
    return wanted.applied(change_of(wanted, seen, "claim-version"))


# The decision table, row by row.


def test_what_is_not_there_may_be_claimed() -> None:
    """There is nothing under the key, so the claim is an insert."""
    assert decided(None) == Claimable(None)


@pytest.mark.parametrize("status", [*Status, "SOMETHING_NEWER", ""])
def test_a_record_past_its_expiration_counts_as_absent_whatever_it_says(status: str) -> None:
    """DynamoDB deletes up to days late, so the attribute decides, before anything else."""
    expired = existing(status, expiration=NOW, validation="another's", in_progress_expiration=NOW_MS + 60_000)

    assert decided(expired) == Claimable(expired)


@pytest.mark.parametrize(("expiration", "free"), [(NOW - 1, True), (NOW, True), (NOW + 1, False)])
def test_a_record_expires_at_its_expiration_and_not_before(expiration: int, free: bool) -> None:
    """In the second of its expiration it has expired."""
    done = existing(Status.COMPLETED, expiration=expiration)

    assert decided(done) == (Claimable(done) if free else AlreadyCompleted(done))


def test_a_record_without_an_expiration_never_expires() -> None:
    """Zero is a time, and an absent expiration is not zero."""
    assert decided(existing(Status.COMPLETED, expiration=None)) == AlreadyCompleted(
        existing(Status.COMPLETED, expiration=None)
    )
    assert isinstance(decided(existing(Status.COMPLETED, expiration=0)), Claimable)


@pytest.mark.parametrize("status", ["EXPIRED", "inprogress", "", "SOMETHING_NEWER"])
def test_an_unknown_status_is_unreadable(status: str) -> None:
    """The record of a newer version, or an operator's edit, is neither free nor completed."""
    assert isinstance(decided(existing(status)), Unreadable)


def test_a_claim_without_any_end_is_unreadable() -> None:
    """Without lease and expiration it is not known when it ends."""
    endless = existing(Status.INPROGRESS, in_progress_expiration=None, expiration=None)

    assert isinstance(decided(endless), Unreadable)


def test_foreign_types_are_unreadable_even_where_the_status_is_known() -> None:
    """A value of another type, written by an operator, is not guessed."""
    seen = from_attributes({"id": "k", "status": "COMPLETED", "expiration": "soon"})

    assert isinstance(decided(seen), Unreadable)


def test_unreadable_goes_before_mismatch() -> None:
    """A record that cannot be read is not compared."""
    assert isinstance(decided(existing("SOMETHING_NEWER", validation="another's")), Unreadable)


@pytest.mark.parametrize(("status", "lease"), [*product(Status, [NOW_MS - 1, NOW_MS + 1])])
def test_another_payload_under_the_key_is_a_mismatch_in_any_status(status: Status, lease: int) -> None:
    """Completed, failed, held or orphaned: the key belongs to another payload."""
    seen = existing(status, validation="another's", in_progress_expiration=lease)

    assert decided(seen) == OtherPayload(expected="another's", found="ours")


def test_mismatch_goes_before_ones_own_version() -> None:
    """The worker's own version does not make another payload its own."""
    seen = existing(Status.INPROGRESS, version="mine", validation="another's")

    assert isinstance(decided(seen, wrote=("mine",)), OtherPayload)


@pytest.mark.parametrize(("stored", "ours"), [(None, "ours"), ("theirs", None), (None, None)])
def test_a_payload_is_only_compared_where_both_sides_know_one(stored: str | None, ours: str | None) -> None:
    """A record whose handler never started keeps no fingerprint: a corrected payload may come under its key."""
    assert isinstance(decided(existing(Status.FAILED, validation=stored), fingerprint=ours), Claimable)


def test_what_is_completed_is_done() -> None:
    """The answer has the stored record."""
    done = existing(Status.COMPLETED, data='{"receipt":1}')

    assert decided(done) == AlreadyCompleted(done)


def test_completed_goes_before_ones_own_version() -> None:
    """A claim never mistakes a completed record for its own claim."""
    done = existing(Status.COMPLETED, version="mine")

    assert decided(done, wrote=("mine",)) == AlreadyCompleted(done)


@pytest.mark.parametrize("lease", [NOW_MS - 1, NOW_MS + 60_000])
def test_the_version_that_this_claim_wrote_is_its_own_claim(lease: int) -> None:
    """The answer to its write was lost. Its lease does not matter; it is not held elsewhere."""
    seen = existing(Status.INPROGRESS, version="mine", in_progress_expiration=lease)

    answer = decided(seen, wrote=("earlier", "mine"))

    assert isinstance(answer, Claimed)
    assert answer.record == seen


@pytest.mark.parametrize(("lease", "live"), [(NOW_MS - 1, False), (NOW_MS, False), (NOW_MS + 1, True)])
def test_a_lease_is_live_until_its_end_and_not_at_it(lease: int, live: bool) -> None:
    """To the millisecond."""
    seen = existing(Status.INPROGRESS, in_progress_expiration=lease)

    assert decided(seen) == (HeldElsewhere(lease) if live else Claimable(seen))


def test_a_lease_of_zero_is_a_lease_that_is_over() -> None:
    """Zero is a number."""
    seen = existing(Status.INPROGRESS, in_progress_expiration=0)

    assert decided(seen) == Claimable(seen)


def test_failures_are_answers_if_the_claim_says_so() -> None:
    """Otherwise they are retried."""
    failed = existing(Status.FAILED)

    assert decided(failed, failures_are_answers=True) == AlreadyFailed(failed)
    assert decided(failed) == Claimable(failed)


def test_an_orphan_is_claimable_even_where_failures_are_answers() -> None:
    """No attempt has failed there."""
    orphan = existing(Status.INPROGRESS)

    assert decided(orphan, failures_are_answers=True) == Claimable(orphan)


# Records that Powertools wrote.


def test_a_claim_of_powertools_without_a_lease_lasts_until_its_expiration() -> None:
    """Without a context Powertools writes no lease, so the claim ends at the record's expiration."""
    seen = by_powertools(Status.INPROGRESS, in_progress_expiration=None)

    assert decided(seen) == HeldElsewhere((NOW + DAY) * 1000)


def test_a_claim_of_powertools_is_taken_over_once_its_lease_is_over() -> None:
    """It counts as an earlier attempt."""
    seen = by_powertools(Status.INPROGRESS)

    change = change_of(claim(), seen)

    assert change.seen == seen
    assert change.new.attempts == 2
    assert claim().applied(change).taken_over


def test_what_powertools_completed_is_done() -> None:
    """Nothing is run again after a migration."""
    assert isinstance(decided(by_powertools(Status.COMPLETED)), AlreadyCompleted)


@pytest.mark.parametrize("seen", [None, existing("FAILED"), existing("INPROGRESS"), existing("FAILED", expiration=NOW)])
def test_every_write_puts_a_fresh_version(seen: Record | None) -> None:
    """It writes the version that it is given, never the one that it has seen."""
    assert change_of(claim(), seen, "fresh").new.version == "fresh"


@pytest.mark.parametrize("seen", [existing("FAILED"), existing("INPROGRESS"), existing("COMPLETED", expiration=NOW)])
def test_every_write_but_the_first_replaces_what_was_seen(seen: Record) -> None:
    """So two take-overs cannot both succeed."""
    assert change_of(claim(), seen).seen is seen


# What a claim writes.


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
    ("seen", "attempts"),
    [
        (None, 1),
        (existing("FAILED", attempts=4), 5),
        (existing("INPROGRESS", attempts=1), 2),
        (existing("INPROGRESS", attempts=0), 1),
        (existing("FAILED", attempts=None), 2),
        (existing("FAILED", attempts=4, expiration=NOW), 1),
    ],
)
def test_attempts_count_how_often_the_handler_may_have_started(seen: Record | None, attempts: int) -> None:
    """The count starts anew after an expired record, and a released claim does not count."""
    assert change_of(claim(), seen).new.attempts == attempts


@pytest.mark.parametrize(
    ("over", "taken"),
    [
        (None, False),
        (existing("FAILED"), False),
        (existing("INPROGRESS"), True),
        (existing("INPROGRESS", owner=None), False),
        (by_powertools("INPROGRESS"), True),
    ],
)
def test_a_claim_that_was_never_settled_is_taken_over(over: Record | None, taken: bool) -> None:
    """A released record has no owner; Powertools never writes one."""
    assert applied_claim(over).taken_over is taken


def test_a_peek_decides_and_never_writes() -> None:
    """It returns the record that a claim would replace."""
    seen = existing(Status.FAILED)
    look = Peek(claim())

    assert look.id == "k"
    assert look.step(seen, (), NOW_MS, "unused") == Claimable(seen)
    assert isinstance(look.step(existing(Status.COMPLETED), (), NOW_MS, "unused"), AlreadyCompleted)
    with pytest.raises(AssertionError):
        look.applied(Change(seen, None))


# Settlements.


def test_completing_keeps_the_result_and_ends_the_lease() -> None:
    """The fingerprint, the owner and the count stay as they are."""
    mine = applied_claim()

    change = change_of(transitions.complete(mine, '{"receipt":1}'), mine.record)

    assert change.expected == {"version": "claim-version"}
    assert change.new == Record(
        id="k",
        status="COMPLETED",
        version="fresh",
        expiration=NOW + DAY,
        attempts=1,
        data='{"receipt":1}',
        validation="ours",
        owner="me",
    )


def test_failing_keeps_the_error_and_the_fingerprint_of_what_started() -> None:
    """Another payload under this key stays a mismatch."""
    mine = applied_claim(existing(Status.FAILED, attempts=2))

    new = change_of(transitions.fail(mine, '{"type":"Boom"}'), mine.record).new

    assert (new.status, new.error, new.validation, new.attempts) == ("FAILED", '{"type":"Boom"}', "ours", 3)
    assert new.in_progress_expiration is None


def test_what_failed_before_its_handler_started_keeps_no_fingerprint_and_does_not_count() -> None:
    """A body that did not validate may be corrected under the same key."""
    mine = applied_claim()

    new = change_of(transitions.fail(mine, "{}", started=False), mine.record).new

    assert (new.status, new.validation, new.attempts) == ("FAILED", None, 0)


def test_releasing_ends_the_lease_now_for_everybody() -> None:
    """It has no owner, no fingerprint and no attempt, as if it had not been claimed."""
    mine = applied_claim()
    new = change_of(transitions.release(mine, NOW_MS), mine.record).new

    assert (new.status, new.owner, new.validation, new.attempts) == ("INPROGRESS", None, None, 0)
    assert decide(new, claim(owner="next", fingerprint="another's"), (), NOW_MS) == Claimable(new)


@pytest.mark.parametrize("settle", ["release", "fail"])
def test_not_starting_a_second_attempt_does_not_forget_the_payload_of_the_first(settle: str) -> None:
    """The first one's handler had started, so another payload stays a mismatch as long as the record exists."""
    mine = applied_claim(existing(Status.FAILED, attempts=1))
    settlement = (
        transitions.release(mine, NOW_MS) if settle == "release" else transitions.fail(mine, "{}", started=False)
    )

    new = change_of(settlement, mine.record).new

    assert (new.validation, new.attempts) == ("ours", 1)
    assert isinstance(decide(new, claim(fingerprint="another's"), (), NOW_MS), OtherPayload)


@pytest.mark.parametrize(
    "settlement",
    [
        transitions.complete(applied_claim(), "1"),
        transitions.fail(applied_claim(), "{}"),
        transitions.release(applied_claim(), NOW_MS),
    ],
    ids=["complete", "fail", "release"],
)
def test_every_settlement_renews_the_retention(settlement: Settlement) -> None:
    """From now on, in whole seconds, as TTL requires."""
    later = NOW_MS + 90_500

    change = settlement.step(settlement.held, (), later, "fresh")

    assert isinstance(change, Change)
    assert change.new.expiration == NOW + 91 + DAY
    assert change.new.version == "fresh"


@pytest.mark.parametrize("retention", [1, 60, DAY])
@pytest.mark.parametrize("lease_ms", [1, 999, 1000, 60_001, 900_000])
def test_a_record_never_expires_before_its_lease(lease_ms: int, retention: int) -> None:
    """Otherwise it would count as absent, because the expiration is checked before the lease."""
    wanted = claim(lease_until_ms=NOW_MS + lease_ms, retention_seconds=retention)
    written = [
        change_of(wanted, seen).new for seen in (None, existing("FAILED"), existing("COMPLETED", expiration=NOW))
    ]
    mine = applied_claim(retention_seconds=retention)
    written.append(change_of(long_runs.hand_over(mine, "arn:1", NOW_MS + lease_ms), mine.record).new)
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


def test_a_settlement_whose_own_version_is_there_is_settled() -> None:
    """The answer to its write was lost."""
    mine = applied_claim()
    written = change_of(transitions.complete(mine, "1"), mine.record, "written").new

    assert transitions.complete(mine, "1").step(written, ("written",), NOW_MS, "next") == Settled(written)


@pytest.mark.parametrize("found", [None, existing("INPROGRESS"), existing("COMPLETED"), by_powertools("COMPLETED")])
def test_a_settlement_whose_version_is_gone_has_lost_its_claim(found: Record | None) -> None:
    """It changes no other record, and does not restore a deleted one."""
    assert transitions.complete(applied_claim(), "1").step(found, ("never-written",), NOW_MS, "next") == ClaimLost(
        found
    )


# A workflow's record.


def test_a_claim_for_a_workflow_keeps_what_to_start_until_it_is_handed_over() -> None:
    """Until then, whoever finds it orphaned can start the execution; afterwards nobody needs to."""
    mine = applied_claim(input='{"amount": 1}')
    assert mine.record.input == '{"amount": 1}'

    handed = long_runs.hand_over(mine, "arn:1", NOW_MS + 7_200_000).change(NOW_MS, "fresh").new

    assert handed.status == Status.INPROGRESS
    assert (handed.execution, handed.in_progress_expiration, handed.input) == ("arn:1", NOW_MS + 7_200_000, None)
    assert (handed.validation, handed.attempts, handed.owner) == (
        mine.record.validation,
        mine.record.attempts,
        mine.record.owner,
    )


def test_a_claim_over_an_orphan_belongs_to_no_execution() -> None:
    seen = existing(Status.INPROGRESS, in_progress_expiration=NOW_MS, execution="arn:1")
    assert change_of(claim(), seen).new.execution is None


def conclusion(**changes: object) -> long_runs.Conclusion:
    given = {"id": "k", "execution": "arn:1", "outcome": transitions.completed("1"), **changes}
    return long_runs.Conclusion(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize("execution", [None, "arn:1"])
@pytest.mark.parametrize("lease", [NOW_MS - 1, NOW_MS + 1])
def test_an_execution_concludes_a_record_in_progress_that_is_its_own_or_has_no_execution(
    execution: str | None, lease: int
) -> None:
    """Its lease does not matter, because nobody has taken it over."""
    seen = existing(Status.INPROGRESS, in_progress_expiration=lease, execution=execution, input="{}")
    change = conclusion().step(seen, (), NOW_MS, "fresh")
    assert isinstance(change, Change)
    assert (change.seen, change.new.version) == (seen, "fresh")
    assert (change.new.status, change.new.data, change.new.execution) == (Status.COMPLETED, "1", "arn:1")
    assert (change.new.in_progress_expiration, change.new.input) == (None, None)
    assert conclusion().applied(change) == Settled(change.new)


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
    ids=["vanished", "completed", "failed", "another's", "unreadable", "unknown"],
)
def test_a_late_conclusion_changes_nothing(seen: Record | None) -> None:
    assert conclusion().step(seen, (), NOW_MS, "fresh") == ClaimLost(seen)


def test_a_conclusion_whose_answer_was_lost_is_recognised() -> None:
    seen = existing(Status.COMPLETED, execution="arn:1", version="mine")
    assert conclusion().step(seen, ("mine",), NOW_MS, "fresh") == Settled(seen)


def test_a_failure_may_be_revised_by_whoever_names_its_version() -> None:
    """Once an operator has corrected its cause. A completion is never revised."""
    failed = existing(Status.FAILED, execution="arn:1", error="{}", version="v7")
    change = conclusion(outcome=transitions.failed('{"type": "ABORTED"}'), revises="v7").step(
        failed, (), NOW_MS, "fresh"
    )
    assert isinstance(change, Change)
    assert change.new.error == '{"type": "ABORTED"}'
    assert conclusion(revises="v6").step(failed, (), NOW_MS, "fresh") == ClaimLost(failed)
    done = existing(Status.COMPLETED, execution="arn:1", version="v7")
    assert conclusion(revises="v7").step(done, (), NOW_MS, "fresh") == ClaimLost(done)


def test_an_item_without_a_status_is_unreadable() -> None:
    """It is another program's item."""
    assert isinstance(decided(from_attributes({"id": "k"})), Unreadable)


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


@pytest.mark.parametrize("item", [{"id": "k", "expiration": NOW - 1}, {"id": "k", "status": "FAILED", "version": 7}])
def test_an_item_that_is_no_record_is_unreadable_even_when_expired(item: dict[str, object]) -> None:
    """No write could name what it replaces, so it is not claimable even when it has expired."""
    seen = from_attributes(item | {"expiration": NOW - 1})
    answer = decide(seen, claim(), [], NOW_MS)
    assert isinstance(answer, Unreadable)
