"""A workflow's record: what starts its execution, and what that concludes; and a lease that is renewed."""

from __future__ import annotations

from itertools import product

import pytest

from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.answers import ClaimLost, Settled
from idempotent_receiver.protocol.execution import hand_over
from idempotent_receiver.protocol.record import Change, Record, Status
from tests.unit.protocol.records import DAY, NOW, NOW_MS, applied_claim, change_of, conclusion, existing


def test_a_claim_for_a_workflow_keeps_what_to_start_until_it_is_handed_over() -> None:
    """Until then, whoever finds it orphaned can start the execution; afterwards nobody needs to."""
    mine = applied_claim(existing(Status.INPROGRESS, execution="arn:0"), input="{}").record
    assert (mine.input, mine.execution) == ("{}", None)

    change = hand_over(applied_claim(input="{}"), "arn:1", NOW_MS + 7_200_000).change(NOW_MS, "fresh")

    ends = {"in_progress_expiration": NOW_MS + 7_200_000, "expiration": NOW + DAY}
    assert change.new == applied_claim().record._replace(version="fresh", execution="arn:1", **ends)


@pytest.mark.parametrize("revises", [None, "v7", "v6"])
def test_a_conclusion_ends_what_is_in_progress_and_its_own_or_a_failure_that_it_names(revises: str | None) -> None:
    """The lease does not matter, because nobody has taken it over; and whoever has put its cause right names a failure.
    A late conclusion changes nothing, and one whose answer was lost is recognised.
    """
    concluding = conclusion(revises=revises)
    for status, execution, lease, unreadable, version in product(
        [*Status, "SOMETHING"], [None, "arn:1", "arn:2"], [NOW_MS - 1, NOW_MS + 1], [None, "foreign"], ["v7", "mine"]
    ):
        seen = existing(status, execution=execution, in_progress_expiration=lease, version=version, input="{}")
        seen = seen._replace(unreadable=unreadable)
        is_open = status == "INPROGRESS" and execution in (None, "arn:1")
        revised = status == "FAILED" and (version, revises) == ("v7", "v7")
        answer = concluding.step(seen, ("mine",), NOW_MS, "fresh")
        if unreadable is None and (is_open or revised):
            kept = {"id": "k", "attempts": 1, "validation": "ours", "owner": "them", "execution": "arn:1"}
            new = Record(**kept, status="COMPLETED", data="1", version="fresh", expiration=NOW + 30 * DAY)
            assert answer == Change(new, seen)
            assert concluding.applied(answer) == Settled(new)
        else:
            assert answer == (Settled(seen) if version == "mine" else ClaimLost(seen))
    assert concluding.step(None, ("mine",), NOW_MS, "fresh") == ClaimLost(None)


def test_what_a_conclusion_has_put_right_tells_of_it() -> None:
    failed = existing(Status.FAILED, execution="arn:1", error="{}", version="v7")
    revising = conclusion(outcome=transitions.failed('{"type": "ABORTED"}'), revises="v7")
    assert change_of(revising, failed).new.error == '{"type": "ABORTED"}'
