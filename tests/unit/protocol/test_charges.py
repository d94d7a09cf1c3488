"""What a message itself has cost: what counts, for whom, and where it ends."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver.errors import Failure
from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.answers import (
    AlreadyCompleted,
    Claimable,
    ClaimableAlone,
    Exhausted,
    HeldElsewhere,
    OtherPayload,
    Unsent,
)
from idempotent_receiver.protocol.charges import (
    CRASHED,
    NO_CHARGE,
    Allowance,
    Charged,
    charged_of,
    on_failure,
)
from idempotent_receiver.protocol.peek import Peek
from idempotent_receiver.protocol.record import Change, Record, attributes, error_of, from_attributes
from idempotent_receiver.protocol.renewal import Renewal
from idempotent_receiver.protocol.sending import TakeOver, checkpoint, mark, stop
from idempotent_receiver.protocol.transitions import Claim, Claimed, decide
from tests.unit.protocol.records import DAY, NOW, NOW_MS, change_of, claim, existing

if TYPE_CHECKING:
    from collections.abc import Callable

OURS = Allowance("m", 3)
REDRIVEN = Allowance("m2", 3, base=3)
LATER_MS = NOW_MS + 60_000
"""After a claim's lease."""


def counted(status: str, charged: Charged = NO_CHARGE, **changes: object) -> Record:
    """A record that this release has written."""
    seen = existing(status, **changes)
    return seen._replace(charged=charged.text(str(seen.version)))


def mine(allowance: Allowance | None = OURS, **changes: object) -> Claim:
    return claim(allowance=allowance, **changes)


def claimed(seen: Record | None, allowance: Allowance | None = OURS, *, alone: bool = False) -> Claimed:
    wanted = mine(allowance, alone=alone)
    answer = wanted.applied(change_of(wanted, seen, "claimed"))
    assert isinstance(answer, Claimed)
    return answer


def failed(run: Claimed, *, charged: bool = True, final: bool = False) -> Record:
    cost = on_failure(run.record, run.claim.allowance, charged=charged, final=final)
    return transitions.fail(run, '{"type":"E"}', charged=cost).change(NOW_MS, "failed").new


def crash(run: Claimed) -> Record:
    """The record that a killed worker leaves, once its lease is over."""
    return run.record._replace(in_progress_expiration=NOW_MS)


def history(allowance: Allowance, *runs: Callable[[Claimed], Record], seen: Record | None = None) -> list[object]:
    """What a message's deliveries meet one after the other: the count, or the answer that ends it."""
    told: list[object] = []
    for end in runs:
        alone = isinstance(decide(seen, mine(allowance), (), NOW_MS), ClaimableAlone)
        answer = decide(seen, mine(allowance, alone=alone), (), NOW_MS)
        if not isinstance(answer, Claimable):
            told.append(type(answer).__name__)
            continue
        seen = end(claimed(seen, allowance, alone=alone))
        told.append(charged_of(seen).attempts)
    return told


# What is charged.


def test_a_recorded_failure_is_charged_and_the_last_one_allowed_is_final() -> None:
    assert history(OURS, *[failed] * 5) == [1, 2, 3, "Exhausted", "Exhausted"]


def test_a_failure_whose_cause_is_not_the_message_is_not_charged() -> None:
    def not_its_own(run: Claimed) -> Record:
        return failed(run, charged=False)

    assert history(OURS, failed, *[not_its_own] * 30, failed, failed, failed)[-3:] == [2, 3, "Exhausted"]


def test_a_first_crash_is_charged_to_nobody_and_each_later_one_to_the_claim_made_alone() -> None:
    assert history(OURS, *[crash] * 6) == [0, 0, 1, 2, "Exhausted", "Exhausted"]


def test_what_has_crashed_once_is_claimed_alone_from_then_on() -> None:
    """Also after it has failed, or was released: only what completes is out of it."""
    seen: Record = crash(claimed(None))
    for end in (failed, lambda run: transitions.release(run, NOW_MS).change(NOW_MS, "released").new):
        assert decide(seen, mine(), (), NOW_MS) == ClaimableAlone(seen)
        assert mine().step(seen, (), NOW_MS, "unused") == ClaimableAlone(seen), "a claim in a batch writes nothing"
        assert decide(seen, mine(alone=True), (), NOW_MS) == Claimable(seen)
        seen = end(claimed(seen, alone=True))
    assert transitions.complete(claimed(seen, alone=True), "1").change(NOW_MS, "done").new.charged is None


def test_a_claim_among_others_is_never_charged_for_its_crash() -> None:
    """The killer's neighbours have been claimed as often as it, and never started."""
    alone = claimed(crash(claimed(None)), alone=True)
    assert charged_of(crash(alone)) == Charged(0, alone=True, message="m")
    released = transitions.release(alone, NOW_MS).change(NOW_MS, "released").new
    assert charged_of(released) == Charged(0, alone=True)
    assert decide(released, mine(), (), NOW_MS) == ClaimableAlone(released)
    assert charged_of(claimed(released, alone=True).record).attempts == 0, "a released claim is no crash"


def test_a_release_for_a_dead_worker_counts_as_its_crash() -> None:
    """`receiver work` ends the leases of a process that died, so that nobody waits for them."""
    run, counts = claimed(None), []
    for _ in range(3):
        seen = transitions.release(run, NOW_MS, started=True, crash=True).change(NOW_MS, "released").new
        counts.append(charged_of(seen))
        run = claimed(seen, alone=True)
    assert counts == [Charged(0, True), Charged(1, True, "m"), Charged(2, True, "m")]


def test_nothing_is_kept_of_a_message_that_has_cost_nothing() -> None:
    """So its record, and what it costs to write, is the one that it always was."""
    assert claimed(None).record.charged is None
    assert transitions.release(claimed(None), NOW_MS).change(NOW_MS, "released").new.charged is None


# Where it ends.


def test_a_crash_at_the_limit_is_replaced_by_its_final_failure_before_its_dead_letter() -> None:
    """The fence: a worker that was not dead after all can no longer complete it."""
    seen = counted("INPROGRESS", Charged(2, alone=True, message="m"), attempts=7)
    late = Claimed(seen, mine(alone=True))
    assert Peek(mine()).step(seen, (), NOW_MS, "unused") == Claimable(seen), "a peek writes nothing"
    for alone in (False, True):
        change = change_of(mine(alone=alone), seen)
        assert change.seen == seen
        new = change.new
        assert (new.status, new.attempts, new.in_progress_expiration) == ("FAILED", 7, None)
        assert charged_of(new) == Charged(3, alone=True, message="m")
        assert error_of(new) == json.loads(CRASHED.to_json())
        assert mine().applied(change) == Exhausted(new)
        assert mine().step(new, ["fresh"], NOW_MS, "later") == Exhausted(new), "its answer was lost"
        assert isinstance(transitions.complete(late, "1").step(new, (), NOW_MS, "v"), transitions.ClaimLost)


@pytest.mark.parametrize("status", ["INPROGRESS", "SENDING"])
def test_a_live_claim_is_waited_for_also_at_the_limit(status: str) -> None:
    seen = counted(status, Charged(2, alone=True, message="m"), in_progress_expiration=NOW_MS + 1)
    assert decide(seen, mine(), (), NOW_MS) == HeldElsewhere(NOW_MS + 1)


def test_what_is_done_or_has_another_payload_is_that_and_not_exhausted() -> None:
    cost = Charged(9, message="m")
    assert isinstance(decide(counted("COMPLETED", cost), mine(), (), NOW_MS), AlreadyCompleted)
    assert isinstance(decide(counted("FAILED", cost), mine(fingerprint="x"), (), NOW_MS), OtherPayload)


def test_a_permanent_failure_whose_dead_letter_was_not_confirmed_is_not_run_again() -> None:
    seen = failed(claimed(None), final=True)
    assert charged_of(seen) == Charged(1, message="m")
    assert decide(seen, mine(), (), NOW_MS) == Exhausted(seen)


@pytest.mark.parametrize("allowance", [None, Allowance("m", None)])
def test_without_a_limit_nothing_is_exhausted(allowance: Allowance | None) -> None:
    for seen in (counted("FAILED", Charged(9, message="m")), counted("INPROGRESS", Charged(9, True, "m"))):
        assert not isinstance(decide(seen, mine(allowance), (), NOW_MS), Exhausted)
    assert decide(counted("INPROGRESS"), mine(None), (), NOW_MS) == Claimable(counted("INPROGRESS"))
    assert claimed(counted("FAILED", Charged(9)), None).record.charged is None, "nobody counts"


def test_another_message_under_the_key_begins_anew() -> None:
    """Else every later message of a business key would be swallowed as long as its record lasts."""
    for seen in (failed(claimed(None), final=True), counted("FAILED", Charged(3, message="m"))):
        other = Allowance("other", 3)
        assert decide(seen, mine(other), (), NOW_MS) == Claimable(seen)
        assert history(other, *[failed] * 4, seen=seen) == [1, 2, 3, "Exhausted"]
    crashed = counted("INPROGRESS", Charged(2, alone=True, message="m"))
    assert decide(crashed, mine(Allowance("other", 3)), (), NOW_MS) == ClaimableAlone(crashed)
    assert charged_of(claimed(crashed, Allowance("other", 3), alone=True).record) == Charged(0, True, "other")


def test_two_messages_of_one_key_share_its_count_until_one_fails_finally() -> None:
    seen = failed(claimed(failed(claimed(None)), Allowance("other", 3)))
    assert charged_of(seen).attempts == 2
    assert charged_of(failed(claimed(seen))) == Charged(3, message="m")


# A redrive begins anew.


def test_a_redriven_message_begins_anew_at_the_count_of_its_stamp() -> None:
    """Also one that SQS had moved before it failed finally; later, its own count is judged by the same stamp."""
    final = counted("FAILED", Charged(3, message="m"))
    assert history(REDRIVEN, *[failed] * 4, seen=final) == [4, 5, 6, "Exhausted"]
    moved = counted("FAILED", Charged(2))
    assert history(Allowance("m2", 3, base=2), *[failed] * 4, seen=moved) == [3, 4, 5, "Exhausted"]
    assert history(Allowance("m2", 3), *[failed] * 3, seen=moved) == [3, "Exhausted", "Exhausted"], "no stamp"


@pytest.mark.parametrize("seen", [None, counted("FAILED", Charged(3, message="m"), expiration=NOW)])
def test_a_stamp_whose_count_exceeds_the_records_counts_as_zero(seen: Record | None) -> None:
    """It was forged, or the record has expired since."""
    for base in (3, 99):
        assert history(Allowance("m2", 3, base), *[failed] * 4, seen=seen) == [1, 2, 3, "Exhausted"]


# An outbox.


def unsent(charged: Charged = NO_CHARGE, **changes: object) -> Record:
    return counted("SENDING", charged, outbox="[]", in_progress_expiration=NOW_MS - 1, **changes)


def taken(seen: Record, allowance: Allowance | None = OURS, *, alone: bool = False) -> Claimed:
    step = TakeOver(mine(allowance, alone=alone)).step(seen, (), NOW_MS, "taken")
    assert isinstance(step, Change)
    return TakeOver(mine(allowance, alone=alone)).applied(step)


def stopped(sending: Claimed, *, charged: bool) -> Record:
    cost = on_failure(sending.record, sending.claim.allowance, charged=charged, final=False)
    return stop(sending, "[]", NOW_MS, cost).change(NOW_MS, "stopped").new


def test_an_outbox_begins_with_a_count_of_its_own() -> None:
    run = claimed(counted("FAILED", Charged(2)))
    assert charged_of(run.record).attempts == 2
    assert transitions.complete(run, "1", "[]", NOW_MS).change(NOW_MS, "v").new.charged is None


def test_refused_sends_are_charged_and_end_with_the_dead_letter_again() -> None:
    seen = unsent(owner=None)
    for count in (1, 2, 3):
        assert decide(seen, mine(), (), NOW_MS) == Unsent(seen)
        seen = stopped(taken(seen), charged=True)
        assert charged_of(seen) == Charged(count, message="m" if count == 3 else None)
    assert Peek(mine()).step(seen, (), NOW_MS, "unused") == Exhausted(seen)
    assert TakeOver(mine()).step(seen, (), NOW_MS, "unused") == Exhausted(seen), "it stays SENDING"
    assert charged_of(stopped(taken(unsent(Charged(2), owner=None)), charged=False)) == Charged(2)


def test_what_sends_again_for_a_redrive_or_an_operator_begins_anew() -> None:
    for seen in (unsent(Charged(3, message="m"), owner=None), unsent(Charged(2, True, "m"))):
        for allowance in (Allowance("m2", 3), None):
            assert charged_of(taken(seen, allowance, alone=True).record).attempts == 0


def test_a_lease_of_an_outbox_that_nobody_ended_is_a_crash() -> None:
    """Charged to nobody, then to who finishes it alone. A release that does not know the count owns what it stops."""
    seen, counts = unsent(), []
    for _ in range(3):
        assert decide(seen, mine(), (), NOW_MS) == Unsent(seen)
        seen = taken(seen, alone=True).record._replace(in_progress_expiration=NOW_MS - 1)
        counts.append(charged_of(seen).attempts)
    assert counts == [0, 1, 2]
    assert decide(seen, mine(), (), NOW_MS) == Exhausted(seen)
    assert mark(taken(unsent(), alone=True)).change(NOW_MS, "v").new.charged is None


def test_a_record_of_progress_keeps_the_count_and_who_sends_alone() -> None:
    sending = taken(unsent(Charged(1, True, "m")), alone=True)
    kept = checkpoint(sending, "[]", NOW_MS, "kept").change(NOW_MS, "unused").new
    assert charged_of(kept) == Charged(2, True, "m")


# A release that does not know the count.


def by_the_release_before(seen: Record | None, **changes: object) -> Record:
    """What its claim leaves of a record: it writes all attributes that it knows, and leaves the others."""
    change = change_of(claim(), seen, "before")
    kept = {} if seen is None or seen.charged is None else {"charged": seen.charged}
    return from_attributes({**attributes(change.new), **kept, **changes})


def test_a_count_beside_another_releases_write_does_not_count() -> None:
    for cost, status in product((Charged(2), Charged(2, True, "m"), Charged(3, message="m")), ("FAILED", "INPROGRESS")):
        seen = by_the_release_before(counted("FAILED", cost), status=status, in_progress_expiration=NOW_MS)
        assert seen.charged is not None
        assert charged_of(seen) == NO_CHARGE
        assert not isinstance(decide(seen, mine(), (), NOW_MS), Exhausted)


def test_nor_does_it_after_that_release_has_claimed_the_expired_record() -> None:
    """The count of claims begins anew, and may be the same as when the count of charges was written."""
    old = counted("INPROGRESS", Charged(1, True, "m"), attempts=1, expiration=NOW)
    seen = by_the_release_before(old)._replace(in_progress_expiration=NOW_MS)
    assert seen.attempts == old.attempts == 1
    assert charged_of(crash(claimed(seen, alone=True))) == Charged(0, True, "m"), "its crash is a first one"


def test_a_renewed_lease_and_a_handover_of_the_version_keep_the_count() -> None:
    run = claimed(counted("FAILED", Charged(2)))
    renewal = Renewal(run.record, 30_000, DAY).step(run.record, (), NOW_MS, "renewed")
    assert isinstance(renewal, Change)
    assert charged_of(renewal.new) == Charged(2)
    assert charged_of(failed(Claimed(renewal.new, run.claim))) == Charged(3, message="m")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "7", '{"version":"theirs","attempts":"x"}', '{"version":"theirs","attempts":[]}']
)
def test_a_count_that_cannot_be_read_counts_as_none(text: str) -> None:
    assert charged_of(existing("FAILED", charged=text)) == NO_CHARGE


@pytest.mark.parametrize(
    ("retry_until_ms", "delay_seconds", "over"),
    [(10_000, 1, False), (9_999, 1, True), (10_000, 2, True), (1, None, False), (None, 60, False)],
)
def test_a_delay_is_final_if_it_would_end_too_late(
    retry_until_ms: int | None, delay_seconds: int | None, over: bool
) -> None:
    allowance = Allowance("m", 3, retry_until_ms=retry_until_ms)
    assert allowance.over(9_000, Failure("RetryLater", delay_seconds=delay_seconds)) == over


def test_a_first_cancellation_costs_nothing_and_the_next_claim_is_made_alone() -> None:
    """Whoever shared the event loop may have used up the time."""
    first = on_failure(existing("INPROGRESS"), OURS, charged=True, final=False, cancelled=True)
    assert first == Charged(0, alone=True)
    record = existing("INPROGRESS", charged=first.text("theirs"))
    assert on_failure(record, OURS, charged=True, final=False, cancelled=True) == Charged(1, alone=True)
