"""What a store's answer means: once for all ways in, each answer with its ending."""

from __future__ import annotations

from typing import Any

import pytest

from idempotent_receiver import PermanentError
from idempotent_receiver.clock import Deadline
from idempotent_receiver.errors import Failure
from idempotent_receiver.handler import outcome
from idempotent_receiver.handler.outcome import (
    ClaimFailed,
    Completed,
    Duplicate,
    Failed,
    NotSent,
    NotStarted,
    SettleFailed,
)
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    AlreadyFailed,
    ClaimLost,
    HeldElsewhere,
    OtherPayload,
    Settled,
    Unreadable,
)
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.store import ActionFailed, Unknown
from idempotent_receiver.protocol.transitions import Claim, Claimed, Unclaimed
from idempotent_receiver.transaction.transaction import Transaction
from tests.manual_clock import START_MS, ManualClock

FAILURE = Failure(type="ValueError", at="here")
RECORD = Record(id="k", status="COMPLETED", version="theirs", validation="f")


def claim(**changes: Any) -> Claim:
    return Claim(id="k", fingerprint="f", owner="me", lease_until_ms=START_MS + 33_000, **changes)


def deadline() -> Deadline:
    return Deadline.after(ManualClock(), 30_000)


def held(**options: Any) -> Claimed:
    return Claimed(RECORD, claim(**options))


@pytest.mark.parametrize(
    ("answer", "ending"),
    [
        (AlreadyCompleted(RECORD), Duplicate(RECORD)),
        (HeldElsewhere(5), HeldElsewhere(5)),
        (Unreadable("odd"), Unreadable("odd")),
        (Unknown("down"), ClaimFailed("down")),
        (AlreadyFailed(RECORD), AlreadyFailed(RECORD)),
        (OtherPayload("a", "b"), OtherPayload("a", "b")),
    ],
)
def test_a_claim_that_is_not_granted(answer: Any, ending: object) -> None:
    """No handler has run."""
    assert outcome.of_claim(answer) == ending


@pytest.mark.parametrize(
    ("answer", "completion", "failure", "release"),
    [
        (Settled(RECORD), Completed(RECORD), Failed(FAILURE), NotStarted()),
        (Unknown("down"), SettleFailed("down"), Failed(FAILURE, recorded=False), NotStarted(released=False)),
        (ClaimLost(RECORD), *[Duplicate(RECORD, lost=True)] * 3),
        (ClaimLost(None), *[ClaimLost(None)] * 3),
    ],
)
def test_a_settlement(answer: Any, completion: object, failure: object, release: object) -> None:
    """By what was to be recorded."""
    assert outcome.of_completion(answer, held(), deadline()) == completion
    assert outcome.of_failure(answer, FAILURE, held(), deadline()) == failure
    assert outcome.of_release(answer, held(), deadline()) == release


@pytest.mark.parametrize(
    "found",
    [
        None,
        RECORD._replace(status="INPROGRESS", in_progress_expiration=START_MS + 1_000),
        RECORD._replace(status="INPROGRESS", in_progress_expiration=START_MS - 1_000),
        RECORD._replace(status="FAILED"),
        RECORD._replace(unreadable="unexpected type of data"),
        RECORD._replace(validation="another payload's"),
        RECORD._replace(expiration=START_MS // 1000 - 1),
    ],
)
def test_a_lost_claim_is_a_success_only_if_its_own_effect_is_done(found: Record | None) -> None:
    """Anything else that the winner has left is a failure: the message comes again."""
    assert outcome.of_loss(ClaimLost(found), held(), deadline()) == ClaimLost(found)


@pytest.mark.parametrize("found", [None, RECORD._replace(status="FAILED")])
def test_a_run_without_a_claim_has_none_to_lose(found: Record | None) -> None:
    """It has failed, as its handler did or because of what it met; what is done is done."""
    unclaimed = Unclaimed(RECORD, claim(), None)
    failed, lost = FAILURE, ClaimLost(found)
    assert outcome.of_completion(lost, unclaimed, deadline()) == Failed(outcome.OVERTAKEN, recorded=False)
    assert outcome.of_failure(lost, failed, unclaimed, deadline()) == Failed(failed, recorded=False)
    assert outcome.of_completion(ClaimLost(RECORD), unclaimed, deadline()) == Duplicate(RECORD)


@pytest.mark.parametrize(
    ("found", "ending"),
    [
        (RECORD._replace(validation="theirs"), OtherPayload("theirs", "f")),
        (RECORD._replace(unreadable="odd"), Unreadable("odd")),
        (RECORD._replace(status="INPROGRESS", in_progress_expiration=START_MS + 9), HeldElsewhere(START_MS + 9)),
    ],
)
def test_a_run_without_a_claim_ends_as_a_claim_would_by_what_it_met(found: Record, ending: object) -> None:
    """Unless its handler has failed itself."""
    unclaimed = Unclaimed(RECORD, claim(), None)
    assert outcome.of_completion(ClaimLost(found), unclaimed, deadline()) == ending
    failed = outcome.of_failure(ClaimLost(found), FAILURE, unclaimed, deadline())
    assert failed == Failed(FAILURE, recorded=False)


def test_a_lost_claim_may_find_a_failure_that_is_an_answer() -> None:
    """For a way in that takes failures so."""
    found = RECORD._replace(status="FAILED")
    assert outcome.of_loss(ClaimLost(found), held(failures_are_answers=True), deadline()) == AlreadyFailed(found)


def test_a_message_pays_for_a_refused_commit_only_if_its_own_actions_are_the_cause() -> None:
    """Not for contention, a throttled or silent store, or data that others kept changing."""
    tx = Transaction()
    tx.delete(TableName="t", Key={"id": "1"})
    for answer, own, charged in [
        (ActionFailed(0), False, True),
        (ActionFailed(0, stale=True), False, False),
        (Unknown("down"), False, False),
        (Unknown("the item is too large", retry=False), True, True),
    ]:
        failure, _ = outcome.uncommitted(answer, tx.actions, with_text=False, own=own)
        assert failure.charged is charged


def test_a_commit_that_was_refused_or_not_answered_is_a_failure() -> None:
    """The error that goes with the condition, or one that nobody knows."""
    tx, refused = Transaction(), PermanentError("overdrawn")
    tx.delete(TableName="t", Key={"id": "1"})
    tx.delete(TableName="t", Key={"id": "2"}, otherwise=refused)
    tx.delete(TableName="t", Key={"id": "3"}, otherwise=ConnectionError("busy"))

    failure, error = outcome.uncommitted(ActionFailed(1), tx.actions, with_text=False)
    assert (failure.type, failure.permanent, error) == ("PermanentError", True, refused)
    for with_text, text in ((True, "busy"), (False, None)):
        failure, _ = outcome.uncommitted(ActionFailed(2), tx.actions, with_text=with_text)
        assert (failure.permanent, failure.text) == (False, text)
    failure, error = outcome.uncommitted(Unknown("down"), tx.actions, with_text=False)
    assert (failure, error) == (Failure(type="TransactionNotCommitted", text="down", charged=False), None)
    assert outcome.uncommitted(ClaimLost(None), tx.actions, with_text=False) is None


def test_a_mismatch_names_both_fingerprints() -> None:
    """For good, since no retry changes the payload."""
    failure = outcome.mismatch(OtherPayload(expected="then", found="now"))
    assert (failure.type, failure.permanent, failure.started) == ("FingerprintMismatch", True, False)
    assert "then" in failure.reason
    assert "now" in failure.reason


def test_a_worker_that_was_taken_over_while_it_sent_ends_as_the_record_says() -> None:
    """Whether it marks or stops: what another one has done is a duplicate, and what it does is held elsewhere."""
    not_sent = NotSent("the queue is gone")
    now_ms = deadline().now_ms
    sending = RECORD._replace(status="SENDING", expiration=now_ms, in_progress_expiration=now_ms + 5_000)
    done = RECORD._replace(status="COMPLETED", expiration=now_ms)
    ends: dict[Record | None, Any] = {
        done: Duplicate(done),
        sending: HeldElsewhere(now_ms + 5_000),
        sending._replace(in_progress_expiration=now_ms - 1): NotSent("its record has changed meanwhile"),
        None: NotSent("its record has changed meanwhile"),
    }
    for found, ending in ends.items():
        assert outcome.of_mark(ClaimLost(found), claim(), deadline(), ran=True) == ending
        assert outcome.of_stop(ClaimLost(found), claim(), deadline(), not_sent) == ending
    assert outcome.of_stop(Settled(sending), claim(), deadline(), not_sent) == not_sent
    unknown = outcome.of_stop(Unknown("down"), claim(), deadline(), NotSent("late", out_of_time=True))
    assert isinstance(unknown, NotSent)
    assert (unknown.out_of_time, "late" in unknown.why, "down" in unknown.why) == (False, True, True)


def test_a_mark_for_a_handler_that_ran_elsewhere_is_a_duplicate() -> None:
    assert outcome.of_mark(Settled(RECORD), claim(), deadline(), ran=True) == Completed(RECORD)
    assert outcome.of_mark(Settled(RECORD), claim(), deadline(), ran=False) == Duplicate(RECORD)
