"""What the exploration finds of workers without claims: each planted bug breaks the rule that stands in for a claim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.batch import items, progress, settlements
from idempotent_receiver.handler import outcome
from idempotent_receiver.protocol.exchange import Operation, Unavailable
from idempotent_receiver.protocol.record import Record, Status
from idempotent_receiver.protocol.transitions import ClaimLost, Settled, Settlement
from tests.simulation.search import Search
from tests.simulation.setups import ALL, SETUPS, WAIVED

if TYPE_CHECKING:
    from collections.abc import Callable

    from idempotent_receiver.batch.items import Item, Work

UNCLAIMED = [name for name, setup in SETUPS.items() if setup.unclaimed == ALL]


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
    complete = settlements.Settlements._complete

    def alone(self: settlements.Settlements, item: Item) -> None:
        item.actions = ()
        complete(self, item)

    monkeypatch.setattr(settlements.Settlements, "_complete", alone)


def reads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was delivered before is taken to be new."""
    made = progress._item

    def unread(index: int, work: Work) -> items.Item:
        return made(index, work._replace(seen_before=False))

    monkeypatch.setattr(progress, "_item", unread)


def takes_silence_for_success(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that nobody has answered counts as done."""
    of_completion, uncommitted = outcome.of_completion, outcome.uncommitted

    def confident(answer: Any, *rest: Any) -> Any:
        return outcome.Completed(Record("m0", "COMPLETED")) if _silent(answer) else of_completion(answer, *rest)

    def trusting(answer: Any, *rest: Any, **options: Any) -> Any:
        return None if _silent(answer) else uncommitted(answer, *rest, **options)

    monkeypatch.setattr(outcome, "of_completion", confident)
    monkeypatch.setattr(outcome, "uncommitted", trusting)


def _silent(answer: object) -> bool:
    return isinstance(answer, Unavailable)


def sends_what_it_has_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure for good is dead-lettered whatever the record says."""
    failed = settlements.Settlements._failed

    def regardless(self: settlements.Settlements, item: Item, answer: Any) -> None:
        failed(self, item, Settled(item.claimed.record) if isinstance(answer, ClaimLost) else answer)

    monkeypatch.setattr(settlements.Settlements, "_failed", regardless)


def goes_on_behind_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's next message runs whatever became of the one before."""
    everything = outcome.Outcome
    monkeypatch.setattr(progress, "SUCCEEDED", everything)


@pytest.mark.parametrize(
    ("plant", "setup", "faults", "rule"),
    [
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

    found = Search(SETUPS[setup], faults, seconds=60).run()

    assert found.violation is not None
    assert found.violation.rule == rule, found.violation


@pytest.mark.parametrize("rule", WAIVED)
@pytest.mark.parametrize("setup", UNCLAIMED)
def test_a_waived_rule_does_not_hold(setup: str, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it need not be waived."""
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
