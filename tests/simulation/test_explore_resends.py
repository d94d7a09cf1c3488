"""Explores operators who resend a dead letter with another body, while others redrive it or resend it.

Each planted bug breaks a rule. `make explore` explores these worlds with more faults.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.protocol import resend
from idempotent_receiver.protocol.record import Change
from idempotent_receiver.transaction.action import Action
from tests.simulation import operators
from tests.simulation.explore import explored
from tests.simulation.operators import RECORDS, Operator, Queue
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
        ("resend-crossed", 0),
        ("resend-crossed-unclaimed-fifo", 0),
    ],
)
def test_at_most_one_body_takes_effect_and_nothing_vanishes(setup: str, faults: int) -> None:
    found = explored(setup, faults, seconds=600)

    assert found.violation is None
    assert found.finished


def completes_before_it_sends(patch: Patch) -> None:
    def finish(self: Operator, record: Any) -> bool:
        begun = resend.resending(record)
        assert begun is not None
        return self._mark(record, begun) and self._send_new(record) and self._delete()

    patch.setattr(Operator, "_finish", finish)


def begins_without_a_record(patch: Patch) -> None:
    step = resend.BeginResend.step

    def unwritten(self: resend.BeginResend, *rest: Any) -> Any:
        answer = step(self, *rest)
        return self.applied(answer) if isinstance(answer, Change) else answer

    patch.setattr(resend.BeginResend, "step", unwritten)


def deletes_whatever_became_of_the_send(patch: Patch) -> None:
    send = Operator._send_new
    patch.setattr(Operator, "_send_new", lambda self, record: send(self, record) or True)


def begins_whatever_became_of_the_new_key(patch: Patch) -> None:
    patch.setattr(operators, "check_open", _checks_nothing)


def replaces_what_is_going_out(patch: Patch) -> None:
    """It puts another body into the place of the one that may have been sent."""
    step = resend.BeginResend.step

    def anyhow(self: resend.BeginResend, seen: Any, *rest: Any) -> Any:
        return step(self._replace(refused=None if seen is None else seen.version), seen, *rest)

    def resent(self: Operator) -> bool:
        record = self._begin(self._record())
        return record is not None and self._finish(record)

    patch.setattr(resend.BeginResend, "step", anyhow)
    patch.setattr(Operator, "resend", resent)


def drops_what_is_resending(patch: Patch) -> None:
    """It takes a resend that has begun for one that is complete."""

    def redrive(self: Operator) -> bool:
        record = self._record()
        dropped = record is not None and resend.resend_of(record) is not None
        return (dropped or self._send_old()) and self._delete()

    patch.setattr(Operator, "redrive", redrive)


def deduplicates_by_the_new_key(patch: Patch) -> None:
    """As if the message's deduplication id were made of the body's key, which a redrive of its letter has as well."""
    ask = Queue.send_message_batch

    def send(self: Queue, *, QueueUrl: str, Entries: Any) -> Any:  # noqa: N803
        return ask(self, QueueUrl=QueueUrl, Entries=[{**each, "MessageDeduplicationId": "one"} for each in Entries])

    patch.setattr(Queue, "send_message_batch", send)


def _checks_nothing(*_: Any) -> Action:
    arguments = {"TableName": RECORDS, "Key": {"id": "m#9"}, "ConditionExpression": "attribute_not_exists(id)"}
    return Action("ConditionCheck", arguments)


@pytest.mark.parametrize(
    ("plant", "setup", "faults", "rule"),
    [
        (completes_before_it_sends, "resend", 1, "LOST"),
        (begins_without_a_record, "resend-redrive", 0, "BODIES"),
        (begins_without_a_record, "resend-redrive-unclaimed", 0, "BODIES"),
        (deletes_whatever_became_of_the_send, "resend", 2, "LOST"),
        (begins_whatever_became_of_the_new_key, "resend-crossed-fifo", 0, "LOST"),
        (begins_whatever_became_of_the_new_key, "resend-circle", 0, "LOST"),
        (replaces_what_is_going_out, "resend-other", 0, "BODIES"),
        (drops_what_is_resending, "resend-redriven-fifo", 1, "LOST"),
        (deduplicates_by_the_new_key, "resend-chain-fifo", 0, "LOST"),
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
