"""The record's one decision, and what every transition writes: whole, beside a second implementation."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.protocol import execution, transitions
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    AlreadyFailed,
    Claimable,
    ClaimLost,
    HeldElsewhere,
    OtherPayload,
    Settled,
    Unreadable,
    Unsent,
)
from idempotent_receiver.protocol.peek import Peek
from idempotent_receiver.protocol.record import Change, Record, Status
from idempotent_receiver.protocol.sending import TakeOver, mark, stop
from idempotent_receiver.protocol.transitions import Claimed, Settlement, Unclaimed, decide
from tests.unit.protocol.records import DAY, NOW, NOW_MS, applied_claim, by_powertools, change_of, claim, existing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MD5 = "d" * 32
"""A fingerprint as Powertools writes it: in its records it cannot be compared with ours."""

ORPHAN, DONE, GONE = existing("INPROGRESS"), existing("COMPLETED"), existing("FAILED")


def every_record() -> Iterator[Record]:
    """Zero is a time; the leases and expirations beside now are the bounds of live and over."""
    names = ("status", "in_progress_expiration", "expiration", "validation", "version", "unreadable")
    for values in product(
        [*Status, "SOMETHING_NEWER", ""],
        [None, 0, NOW_MS - 1, NOW_MS, NOW_MS + 1],
        [None, 0, NOW, NOW + 1],
        [None, "ours", "another's", MD5],
        [None, "mine", "theirs"],
        [None, "foreign types"],
    ):
        yield Record(id="k", data="1", **dict(zip(names, values, strict=True)))


@pytest.mark.parametrize("ours", [None, "ours"])
@pytest.mark.parametrize("answers", [False, True])
def test_every_combination_has_exactly_the_answer_of_the_first_row_that_fits(answers: bool, ours: str | None) -> None:
    """No other record of a newer version, of an operator's hand or of Powertools is guessed to be free or done."""
    wanted = claim(failures_are_answers=answers, fingerprint=ours)
    for seen in [None, *every_record()]:
        expected = Claimable(None) if seen is None else _second_implementation(seen, ours, answers)
        assert decide(seen, wanted, ("earlier", "mine"), NOW_MS) == expected
        if expected != Claimed(seen, wanted):
            assert Peek(wanted).step(seen, ("earlier", "mine"), NOW_MS, "unused") == expected


def _second_implementation(seen: Record, ours: str | None, answers: bool) -> object:
    until, lease = seen.expiration, seen.in_progress_expiration
    ends = lease if lease is not None else until if until is None else until * 1000
    comparable = None not in (ours, seen.validation) and (seen.version, seen.validation) != (None, MD5)
    leased = seen.status in ("INPROGRESS", "SENDING")
    rows: list[tuple[bool, Any]] = [
        (seen.unreadable is not None, Unreadable("foreign types")),
        (until is not None and until <= NOW, Claimable(seen)),
        (
            seen.status not in ("INPROGRESS", "SENDING", "COMPLETED", "FAILED"),
            Unreadable(f"unknown status {seen.status!r}"),
        ),
        (leased and ends is None, Unreadable(f"{seen.status} with neither a lease nor an expiration")),
        (comparable and seen.validation != "ours", OtherPayload(str(seen.validation), "ours")),
        (seen.status == "COMPLETED", AlreadyCompleted(seen)),
        (seen.version == "mine", Claimed(seen, claim(failures_are_answers=answers, fingerprint=ours))),
        (leased and (ends or 0) > NOW_MS, HeldElsewhere(ends or 0)),
        (seen.status == "SENDING", Unsent(seen)),
        (seen.status == "FAILED" and answers, AlreadyFailed(seen)),
        (True, Claimable(seen)),
    ]
    return next(answer for fits, answer in rows if fits)


def test_a_peek_never_writes() -> None:
    with pytest.raises(AssertionError):
        Peek(claim()).applied(Change(GONE, None))


# What a claim writes.


def test_a_claim_writes_a_fresh_version_over_exactly_what_was_seen_and_counts_the_attempt() -> None:
    """It keeps neither the result nor the error of an earlier attempt, and the count starts anew after an expired
    record. A claim that was never settled is taken over; a released record has no owner.
    """
    seen = [
        existing(status, attempts=attempts, owner=owner, version=version, expiration=NOW + left, data="1", error="{}")
        for status, attempts, owner, version, left in product(
            ["INPROGRESS", "FAILED"], [None, 0, 4], [None, "them"], [None, "theirs"], [0, DAY]
        )
    ]
    written = {"id": "k", "status": "INPROGRESS", "validation": "ours", "owner": "me", "version": "fresh"}
    ends = {"expiration": NOW + DAY, "in_progress_expiration": NOW_MS + 30_000}
    for over in [None, *seen]:
        before = 0 if over is None or over.expiration == NOW else 1 if over.attempts is None else over.attempts
        change = change_of(claim(), over)
        assert change == Change(Record(**written, **ends, attempts=before + 1), over)
        held = over is not None and over.status == "INPROGRESS" and (over.owner == "them" or over.version is None)
        assert claim().applied(change).taken_over is held


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
    """In place of the claim, or of a renewal of it, kept from now on in whole seconds. It changes no other record,
    restores none, and knows its own when its answer was lost.
    """
    mine = replace(applied_claim(over, input="{}"), renewed=("renewed",))
    new = Record(id="k", version="fresh", expiration=NOW + 91 + DAY, **kept)
    renewed, own, others = (mine.record._replace(version=name) for name in ("renewed", "sent", "theirs"))
    answers = [
        (mine.record, Change(new, mine.record)),
        (renewed, Change(new, renewed)),
        (own, Settled(own)),
        *((seen, ClaimLost(seen)) for seen in (None, others, DONE, by_powertools("COMPLETED"))),
    ]

    for seen, answer in answers:
        assert settle(mine).step(seen, ("sent",), NOW_MS + 90_500, "fresh") == answer
    assert settle(mine).applied(Change(new, None)) == Settled(new)


@pytest.mark.parametrize("retention", [1, 60, DAY])
@pytest.mark.parametrize("lease_ms", [1, 999, 1000, 60_001, 900_000])
@pytest.mark.parametrize("after_ms", [0, 1, 999])
def test_a_record_is_kept_for_all_of_its_retention_and_never_expires_before_its_lease(
    after_ms: int, lease_ms: int, retention: int
) -> None:
    """Expirations are whole seconds and round up; an expired record counts as absent, whatever its lease."""
    wanted = claim(lease_until_ms=NOW_MS + lease_ms, retention_seconds=retention)
    mine, now_ms = applied_claim(retention_seconds=retention), NOW_MS + after_ms
    until_ms = NOW_MS + lease_ms
    for transition, seen, ends_ms in [
        (wanted, None, until_ms),
        (execution.hand_over(mine, "arn:1", until_ms), mine.record, until_ms),
        (transitions.release(mine, NOW_MS), mine.record, NOW_MS),
    ]:
        change = transition.step(seen, (), now_ms, "fresh")
        assert isinstance(change, Change)
        last_ms = max(now_ms + retention * 1000, ends_ms)
        assert (change.new.in_progress_expiration, change.new.expiration) == (ends_ms, -(-last_ms // 1000))


@pytest.mark.scenario("S10", mutant="a record expires before its lease")
def test_a_live_lease_is_honoured_to_its_end_however_short_the_retention() -> None:
    """A result that is kept for a second, of a call that may run for a quarter of an hour."""
    seen = applied_claim(lease_until_ms=NOW_MS + 900_500, retention_seconds=1).record

    assert decide(seen, claim(), (), NOW_MS + 900_499) == HeldElsewhere(NOW_MS + 900_500)
    assert isinstance(decide(seen, claim(), (), NOW_MS + 900_500), Claimable)


# What is sent.


@pytest.mark.parametrize("ours", [None, "ours"])
def test_a_take_over_writes_where_a_record_is_left_unsent_and_else_answers_as_a_claim_does(ours: str | None) -> None:
    """It replaces exactly what was seen: version, lease, expiration and owner, and nothing else."""
    wanted = claim(fingerprint=ours)
    mine = {"version": "fresh", "owner": "me", "in_progress_expiration": NOW_MS + 30_000, "expiration": NOW + DAY}
    beside = {
        "data": "1",
        "error": "{}",
        "attempts": 7,
        "input": "i",
        "execution": "arn",
        "resent": "{}",
        "outbox": "x",
    }
    for seen in [None, *(record._replace(**beside) for record in every_record())]:
        answer = decide(seen, wanted, ("mine",), NOW_MS)
        step = TakeOver(wanted).step(seen, ("mine",), NOW_MS, "fresh")
        assert step == (Change(seen._replace(**mine), seen) if seen is not None and answer == Unsent(seen) else answer)
        if isinstance(step, Change):
            assert TakeOver(wanted).applied(step) == Claimed(step.new, wanted, seen)
            assert not TakeOver(wanted).applied(step).taken_over, "its handler is done"


def test_what_has_messages_to_send_is_sending_until_they_are_marked_as_sent() -> None:
    """It keeps a lease: a claim's own, one of the length of a renewed one, and one without a claim too."""
    for claimed, lease_until_ms in ((claim(), NOW_MS + 30_000), (claim(lease_ms=5_000), NOW_MS + 1 + 5_000)):
        record = applied_claim(None).record
        for basis in (Claimed(record, claimed), Unclaimed(record, claimed, None)):
            sending = transitions.complete(basis, "1", "[]", NOW_MS + 1).change(NOW_MS + 1, "fresh").new

            assert sending.status == "SENDING"
            assert (sending.outbox, sending.data, sending.in_progress_expiration) == ("[]", "1", lease_until_ms)
            marked = mark(Claimed(sending, claimed, renewed=("renewed",)))
            done = sending._replace(status="COMPLETED", outbox=None, in_progress_expiration=None, version="marked")
            for standing in (sending, sending._replace(version="renewed")):
                change = Change(done._replace(expiration=NOW + DAY), standing)
                assert marked.step(standing, [], NOW_MS, "marked") == change
            assert marked.step(done, ["marked"], NOW_MS, "later") == Settled(done)
            assert marked.step(done, [], NOW_MS, "later") == ClaimLost(done)
            assert marked.step(None, [], NOW_MS, "later") == ClaimLost(None)


def test_what_stops_with_messages_left_keeps_them_and_all_else_and_ends_its_lease() -> None:
    """In place of the take-over or of a renewal of it. Nobody owns what was ended: a lease that ran out is a crash."""
    beside = {"data": "1", "error": "{}", "attempts": 7, "input": "i", "execution": "arn", "resent": "{}"}
    record = existing("SENDING", version="taken", outbox="[1,2]", in_progress_expiration=NOW_MS + 9, **beside)
    stopped = stop(Claimed(record, claim(), renewed=("renewed",)), "[null,2]", NOW_MS)
    ended = {"in_progress_expiration": NOW_MS, "expiration": NOW + DAY, "owner": None}
    new = record._replace(version="fresh", outbox="[null,2]", **ended)
    for standing in (record, record._replace(version="renewed")):
        assert stopped.step(standing, [], NOW_MS, "fresh") == Change(new, standing)
    theirs = record._replace(version="theirs")
    assert stopped.step(theirs, [], NOW_MS, "fresh") == ClaimLost(theirs)
    assert decide(new, claim(), (), NOW_MS) == Unsent(new), "whoever finds it goes on at once"


def test_no_other_settlement_leaves_messages_behind() -> None:
    held = applied_claim(None)
    held = replace(held, record=held.record._replace(outbox="[]"))
    for settlement in (transitions.complete(held, None), transitions.fail(held, "{}"), transitions.release(held, 1)):
        assert settlement.change(NOW_MS, "fresh").new.outbox is None
