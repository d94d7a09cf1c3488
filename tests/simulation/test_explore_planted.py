"""What the exploration finds of workers without claims, and of those that renew their leases: each planted bug breaks a
rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.batch import calling, items, progress, sends, settlements
from idempotent_receiver.handler import callees, outcome
from idempotent_receiver.handler.attempt import Returned
from idempotent_receiver.protocol.answers import ClaimLost, Settled
from idempotent_receiver.protocol.exchange import Operation
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.store import Conflict, Unknown
from idempotent_receiver.protocol.transitions import Settlement
from idempotent_receiver.worker import leases
from idempotent_receiver.worker.leases import Leases
from tests.simulation import explored_clients
from tests.simulation.controlled_worker import ControlledWorker
from tests.simulation.invariants import Violation
from tests.simulation.search import Found, Search, shortest
from tests.simulation.setups import ALL, SETUPS, WAIVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from idempotent_receiver.batch.items import Item, Work
    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import Written
    from idempotent_receiver.protocol.transitions import Claimed

UNCLAIMED = [name for name, setup in SETUPS.items() if setup.adapter == "queue" and setup.unclaimed == ALL]


def replaces_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    """A settlement takes whatever is there and not completed for what it has read, and draws its change anew."""
    step, advance = Settlement.step, Operation.advance

    def careless(self: Settlement, seen: Record | None, *rest: Any) -> Any:
        answer = step(self, seen, *rest)
        overwrites = isinstance(answer, ClaimLost) and seen is not None and seen.status != Status.COMPLETED
        return step(self._replace(standing=seen), seen, *rest) if overwrites else answer

    def anew(self: Operation[Any], *rest: Any) -> None:
        self.drawn = None
        advance(self, *rest)

    monkeypatch.setattr(Settlement, "step", careless)
    monkeypatch.setattr(Operation, "advance", anew)


def forgets_the_effects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The completion is recorded alone."""
    complete = settlements.Settlements.complete

    def alone(self: settlements.Settlements, item: Item) -> None:
        item.actions = ()
        complete(self, item)

    monkeypatch.setattr(settlements.Settlements, "complete", alone)


def reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was delivered before is taken to be new."""
    made = progress._item

    def unread(index: int, work: Work) -> items.Item:
        return made(index, work._replace(seen_before=False))

    monkeypatch.setattr(progress, "_item", unread)


def takes_silence_for_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that nobody has answered counts as done."""
    of_completion, not_committed = outcome.of_completion, settlements.Settlements._not_committed

    def confident(answer: Any, *rest: Any) -> Any:
        return outcome.Completed(Record("m0", "COMPLETED")) if _silent(answer) else of_completion(answer, *rest)

    def trusting(self: settlements.Settlements, item: Item, answer: Any, **options: Any) -> None:
        self._end_completed(item, answer) if _silent(answer) else not_committed(self, item, answer, **options)

    monkeypatch.setattr(outcome, "of_completion", confident)
    monkeypatch.setattr(settlements.Settlements, "_not_committed", trusting)


def _silent(answer: object) -> bool:
    return isinstance(answer, Unknown)


def sends_what_it_has_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure for good is dead-lettered whatever the record says."""
    failed = settlements.Settlements._failed

    def regardless(self: settlements.Settlements, item: Item, done: Any) -> None:
        if isinstance(done.answer, ClaimLost):
            done.answer = Settled(item.basis.record)
        failed(self, item, done)

    monkeypatch.setattr(settlements.Settlements, "_failed", regardless)


def goes_on_behind_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's next message runs whatever became of the one before."""
    everything = outcome.Outcome
    monkeypatch.setattr(progress, "SUCCEEDED", everything)


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


def takes_what_is_not_sent_for_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The release before sends acknowledges a record with messages to send, as it would if that were COMPLETED."""

    def done(answer: Any) -> Any:
        found = answer.found if isinstance(answer, Conflict) else answer
        if not isinstance(found, Record) or found.status != Status.SENDING:
            return answer
        completed = found._replace(status=Status.COMPLETED.value)
        return Conflict(completed) if isinstance(answer, Conflict) else completed

    monkeypatch.setattr(explored_clients, "_before_sends", done)


def overlooks_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record whose messages are answered for is marked, whatever it has to call."""
    monkeypatch.setattr(sends, "calls_in", lambda entries: {})


def calls_before_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is made at once, and again from the record."""
    to_call = callees.Callees.to_call

    def at_once(self: callees.Callees, function: Any, arguments: Any) -> Any:
        function(**arguments, idempotency_key="too early")
        return to_call(self, function, arguments)

    monkeypatch.setattr(callees.Callees, "to_call", at_once)


def takes_a_raised_call_for_made(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = calling.Callings.ran

    def made(self: calling.Callings, each: calling.Calling, handled: Any, moment: Any) -> None:
        ran(self, each, Returned(None, ()), moment)

    monkeypatch.setattr(calling.Callings, "ran", made)


@pytest.mark.parametrize(
    ("plant", "setup", "faults", "rule"),
    [
        (overlooks_calls, "2x1-calls", 0, "SENT"),
        (overlooks_calls, "2x1-calls-and-sends-unclaimed", 0, "SENT"),
        (calls_before_it_commits, "2x1-calls", 0, "SENT"),
        (takes_a_raised_call_for_made, "2x1-calls", 1, "SENT"),
        (takes_what_is_not_sent_for_done, "2x1-sends-rollback", 1, "I4"),
        (replaces_what_it_finds, "2x1-unclaimed", 1, "SEEN"),
        (replaces_what_it_finds, "2x1-unclaimed-letters", 1, "SEEN"),
        (replaces_what_it_finds, "2x1-turned-on", 0, "SEEN"),
        (replaces_what_it_finds, "2x1-turned-off", 0, "SEEN"),
        (forgets_the_effects, "2x1-unclaimed", 0, "EFFECT"),
        (reads_nothing, "2x1-unclaimed", 0, "I2"),
        (takes_silence_for_success, "2x1-unclaimed", 1, "I4"),
        (sends_what_it_has_not_recorded, "2x1-unclaimed-letters", 1, "LETTER"),
        (sends_what_it_has_not_recorded, "2x1-mixed-letters", 1, "LETTER"),
        (goes_on_behind_a_failure, "2x2-unclaimed-fifo", 1, "FIFO"),
        (announces_after_the_answer, "2x1-renewed", 1, "I9"),
        (arms_after_the_claim_was_sent, "2x1-renewed", 1, "I1"),
        (moves_the_timer_alone, "2x1-renewed", 0, "I1"),
        (has_no_timer, "2x1-renewed", 0, "I1"),
        (takes_its_own_settlement_for_a_loss, "2x1-renewed", 0, "LEASE"),
    ],
)
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


@pytest.mark.parametrize("rule", WAIVED)
@pytest.mark.parametrize("setup", UNCLAIMED)
def test_a_waived_rule_does_not_hold(setup: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(WAIVED, rule)

    found = Search(SETUPS[setup], 1, seconds=60).run()

    assert found.violation is not None
    assert found.violation.rule == rule


def test_only_workers_without_claims_are_spared() -> None:
    """In a world in which the option is turned on, the worker that still claims is held to every rule."""
    turned_on = SETUPS["2x1-turned-on"]

    assert {
        (rule, receives) for rule in ("I1", "I2", "I3") for receives in ALL if turned_on.waives(rule, receives)
    } == {(rule, receives) for rule in ("I1", "I2") for receives in turned_on.unclaimed}
