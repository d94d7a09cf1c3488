"""Who has its turn at an item, who waits, and how long those that wait may take."""

from __future__ import annotations

from functools import partial
from math import inf

from idempotent_receiver import Transaction
from idempotent_receiver.batch.turns import FIRST_SECONDS, MOST_UNCOMMITTED, Turns
from idempotent_receiver.clock import Deadline
from tests.manual_clock import ManualClock


class Entered:
    """Turns that record who has entered."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.clock = ManualClock()
        self.turns = Turns(Deadline.after(self.clock, 30_000))

    def enter(self, name: str, *items: str) -> None:
        tx = Transaction()
        for item in items:
            tx.delete(TableName="T", Key={"id": item})
        self.turns.ran(hash(name))
        self.turns.enter(hash(name), tx.actions, partial(self.names.append, name))

    def leave(self, name: str) -> None:
        self.turns.leave(hash(name))


def test_on_one_item_they_take_turns_in_order_and_others_pass() -> None:
    entered = Entered()
    for name in ("first", "second", "third"):
        entered.enter(name, "x")
    entered.enter("other", "y")
    assert entered.names == ["first", "other"]

    entered.leave("first")
    assert entered.names == ["first", "other", "second"]
    entered.leave("second")

    assert entered.names == ["first", "other", "second", "third"]


def test_one_on_several_items_waits_for_all_and_holds_none_before() -> None:
    """So that nobody waits in a circle."""
    entered = Entered()
    entered.enter("on x", "x")
    entered.enter("on y", "y")
    entered.enter("on both", "x", "y")
    entered.enter("on y and z", "y", "z")
    assert entered.names == ["on x", "on y"]

    entered.leave("on x")
    entered.enter("on x again", "x")
    assert entered.names == ["on x", "on y", "on x again"]

    entered.leave("on y")
    assert entered.names[3:] == ["on y and z"]
    entered.leave("on y and z")
    entered.leave("on x again")
    assert entered.names[4:] == ["on both"]
    entered.leave("on both")
    assert entered.turns.wait_seconds == 0


def test_what_is_on_no_known_item_waits_for_nobody() -> None:
    """A put does not say what its table's key is."""
    entered, tx = Entered(), Transaction()
    tx.put(TableName="T", Item={"id": "x"})
    for name in "ab":
        entered.turns.ran(hash(name))
        entered.turns.enter(hash(name), tx.actions, partial(entered.names.append, name))

    assert entered.names == ["a", "b"]
    assert entered.turns.wait_seconds == 0


def test_what_has_run_waits_until_its_turn_begins_for_the_longest_turn_lately_each() -> None:
    """Also what the batch's thread has not heard of yet. A long turn is forgotten little by little."""
    entered, names = Entered(), ("a", "b", "c")
    for name in names:
        entered.turns.ran(hash(name))
    assert entered.turns.wait_seconds == 3 * FIRST_SECONDS

    for name, seconds in zip(names, (0.4, 0.2, 0.2), strict=True):
        entered.enter(name, "x")
        entered.clock.sleep(seconds)
        entered.leave(name)
    entered.turns.ran(3)

    assert entered.turns.wait_seconds == 0.4 * 3 / 4 * 3 / 4


def test_two_hundred_may_be_uncommitted() -> None:
    entered = Entered()
    for index in range(MOST_UNCOMMITTED):
        assert entered.turns.wait_seconds < inf
        entered.turns.ran(hash(str(index)))
    assert entered.turns.wait_seconds == inf

    entered.enter("0", "x")
    entered.leave("0")
    assert entered.turns.wait_seconds < inf
