"""Explores operators who resend a dead letter with another body, while others redrive it, resend it or take that back.

Each planted bug breaks a rule. `make explore` explores these worlds with more faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.protocol import resend
from idempotent_receiver.protocol.action import Action
from idempotent_receiver.protocol.answers import Settled
from idempotent_receiver.protocol.record import Change
from tests.simulation import operators
from tests.simulation.explore import explored
from tests.simulation.explored_clients import LOST
from tests.simulation.operators import Operator
from tests.simulation.search import Search
from tests.simulation.setups import SETUPS
from tests.simulation.trace import encoded, replayed

if TYPE_CHECKING:
    from collections.abc import Callable

Patch = pytest.MonkeyPatch


@pytest.mark.parametrize(
    ("setup", "faults"),
    [
        ("resend", 1),
        ("resend-unclaimed", 1),
        ("resend-fifo", 2),
        ("resend-unclaimed-fifo", 2),
        ("resend-redrive", 0),
        ("resend-redrive-unclaimed", 0),
        ("resend-redrive-fifo", 1),
        ("resend-redriven", 0),
        ("resend-circle", 0),
        ("resend-chain-fifo", 0),
        ("resend-back-redrive-fifo", 0),
        ("resend-back-again-fifo", 0),
    ],
)
def test_at_most_one_body_takes_effect_and_nothing_vanishes(setup: str, faults: int) -> None:
    found = explored(setup, faults, seconds=600)

    assert found.violation is None
    assert found.finished


def completes_before_it_sends(patch: Patch) -> None:
    def resend(self: Operator) -> bool:
        claimed = self._claim()
        return claimed is not None and self._complete(claimed) and self._send(self.act.new) and self._delete()

    patch.setattr(Operator, "resend", resend)


def claims_nothing(patch: Patch) -> None:
    step = resend.ResendClaim.step

    def unwritten(self: resend.ResendClaim, *rest: Any) -> Any:
        answer = step(self, *rest)
        return Settled(answer.new) if isinstance(answer, Change) else answer

    patch.setattr(resend.ResendClaim, "step", unwritten)


def deletes_whatever_became_of_the_completion(patch: Patch) -> None:
    complete = Operator._complete
    patch.setattr(Operator, "_complete", lambda self, claimed: complete(self, claimed) or True)


def sends_again_what_may_have_been_closed(patch: Patch) -> None:
    """It claims without a look at the new key, which a take-back has closed."""
    patch.setattr(operators, "check_open", _checks_nothing)


def takes_back_without_closing(patch: Patch) -> None:
    patch.setattr(operators, "put_closed", _checks_nothing)


def closes_what_is_not_free(patch: Patch) -> None:
    put_closed = resend.put_closed

    def regardless(*arguments: Any) -> Any:
        action = put_closed(*arguments)
        condition = "#e <= :now OR attribute_exists(#i) OR attribute_not_exists(#i)"
        return Action(action.kind, {**action.arguments, "ConditionExpression": condition})

    patch.setattr(operators, "put_closed", regardless)


def drops_what_is_resending(patch: Patch) -> None:
    """It takes a key that is claimed for a resend for one that was resent."""

    def redrive(self: Operator) -> bool:
        record = self._record(self.act.old)
        dropped = record is not None and resend.resend_of(record) is not None
        return (dropped or self._send(self.act.old)) and self._delete()

    patch.setattr(Operator, "redrive", redrive)


def deduplicates_by_the_key(patch: Patch) -> None:
    def send(self: Operator, body: int) -> bool:
        return bool(self.worker.ask("send", (body, f"{body}")) != (LOST,))

    patch.setattr(Operator, "_send", send)


def _checks_nothing(back: Any, table_name: str, *_: Any) -> Action:
    arguments = {"TableName": table_name, "Key": {"id": "m#9"}, "ConditionExpression": "attribute_not_exists(id)"}
    return Action("ConditionCheck", arguments)


@pytest.mark.parametrize(
    ("plant", "setup", "faults", "rule"),
    [
        (completes_before_it_sends, "resend", 1, "LOST"),
        (claims_nothing, "resend-redrive", 0, "BODIES"),
        (claims_nothing, "resend-redrive-unclaimed", 0, "BODIES"),
        (deletes_whatever_became_of_the_completion, "resend-back-again-fifo", 0, "LOST"),
        (sends_again_what_may_have_been_closed, "resend-back-again-fifo", 0, "LOST"),
        (sends_again_what_may_have_been_closed, "resend-circle", 0, "LOST"),
        (takes_back_without_closing, "resend-back-redrive", 0, "BODIES"),
        (closes_what_is_not_free, "resend-back-redrive", 0, "I3"),
        (drops_what_is_resending, "resend-redriven-fifo", 1, "LOST"),
        (deduplicates_by_the_key, "resend-fifo", 1, "LOST"),
    ],
)
def test_a_planted_bug_is_found_and_told(
    plant: Callable[[Patch], None], setup: str, faults: int, rule: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)

    found = Search(SETUPS[setup], faults, seconds=120).run()

    assert found.violation is not None
    assert found.violation.rule == rule, found.violation
    told = list(replayed(found.setup, faults, encoded(found.setup, faults, found.schedule)))
    assert str(found.violation) in told[-1]
