"""A workflow's record: what starts its execution, and what that concludes."""

from __future__ import annotations

import pytest

from idempotent_receiver.protocol import transitions
from idempotent_receiver.protocol.execution import hand_over
from idempotent_receiver.protocol.record import Change, Status
from idempotent_receiver.protocol.transitions import ClaimLost, Settled
from tests.unit.protocol.records import (
    NOW_MS,
    applied_claim,
    change_of,
    claim,
    conclusion,
    existing,
)


def test_a_claim_for_a_workflow_keeps_what_to_start_until_it_is_handed_over() -> None:
    """Until then, whoever finds it orphaned can start the execution; afterwards nobody needs to."""
    mine = applied_claim(input='{"amount": 1}')
    assert mine.record.input == '{"amount": 1}'

    handed = hand_over(mine, "arn:1", NOW_MS + 7_200_000).change(NOW_MS, "fresh").new

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
