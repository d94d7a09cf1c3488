"""What the exploration finds of workers that renew their leases: each planted bug breaks a rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.worker import leases
from idempotent_receiver.worker.leases import Leases
from tests.simulation.controlled_worker import ControlledWorker
from tests.simulation.invariants import Violation
from tests.simulation.search import Found, shortest
from tests.simulation.setups import SETUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import Written
    from idempotent_receiver.protocol.transitions import Claimed


def announces_after_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A settlement learns of a renewal's version once that was written."""

    def replace(self: Any, changes: Sequence[Change]) -> Sequence[Written]:
        written: Sequence[Written] = self._store.replace(changes)
        for change in changes:
            self._renewed[change.new.id].add(str(change.new.version))
        return written

    monkeypatch.setattr(leases._Announcing, "replace", replace)


def arms_after_the_claim_was_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer is armed once the claim is known to be made, and a lease counted from there."""
    claiming, claimed = Leases.claiming, Leases.claimed

    def late(self: Leases, answer: Claimed, batch: object) -> Claimed:
        claiming(self, [answer.record.id], batch)
        return claimed(self, answer, batch)

    def silent(self: Leases, ids: Iterable[str], batch: object) -> None:
        """Nothing is armed yet."""

    monkeypatch.setattr(Leases, "claiming", silent)
    monkeypatch.setattr(Leases, "claimed", late)


def moves_the_timer_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal counts as written without being sent."""

    def renew(self: Leases) -> None:
        for held in self._held.values():
            held.ends_seconds = self._clock.monotonic_seconds() + self._lease_seconds
        self._arm()

    monkeypatch.setattr(Leases, "renew", renew)


def has_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing ends a process that could not renew."""
    monkeypatch.setattr(ControlledWorker, "arm", lambda self, seconds: None)


def takes_its_own_settlement_for_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being settled is still renewed, and a refusal is a loss."""

    def settling(self: Leases, claimed: Claimed) -> Claimed:
        return claimed

    monkeypatch.setattr(Leases, "settling", settling)


PLANTED = [
    (announces_after_the_answer, "2x1-renewed", 1, "I9"),
    (arms_after_the_claim_was_sent, "2x1-renewed", 1, "I1"),
    (moves_the_timer_alone, "2x1-renewed", 0, "I1"),
    (has_no_timer, "2x1-renewed", 0, "I1"),
    (takes_its_own_settlement_for_a_loss, "2x1-renewed", 0, "LEASE"),
]


@pytest.mark.parametrize(("plant", "setup", "faults", "rule"), PLANTED)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    setup: str,
    faults: int,
    rule: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch)

    violation, _ = shortest(Found(SETUPS[setup], faults, violation=Violation("NONE", "is found")))

    assert violation.rule == rule, violation
