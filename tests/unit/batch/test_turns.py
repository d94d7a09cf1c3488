"""Who has its turn at an item, who waits, and how long those that wait may take."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.batch.turns import FIRST_SECONDS, MOST_UNCOMMITTED, Turns
from idempotent_receiver.clock import Deadline
from idempotent_receiver.protocol.store import WRITES_A_COMMIT
from tests.manual_clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.transaction.action import Action


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
        self.enter_with(name, tx.actions)

    def check(self, name: str, item: str, value: int = 1) -> None:
        tx = Transaction()
        condition = {"ConditionExpression": "n = :n", "ExpressionAttributeValues": {":n": value}}
        tx.check(TableName="T", Key={"id": item}, **condition)
        self.enter_with(name, tx.actions)

    def read_and_write(self, name: str, *items: str, since: int = 0) -> None:
        """A run that began after so many writes, and has read what it writes."""
        tx = Transaction(lambda table, key: {**key, "n": 1})
        for item in items:
            place: dict[str, Any] = {"TableName": "T", "Key": {"id": item}}
            tx.get(**place, attributes=["n"])
            tx.update(**place, UpdateExpression="SET n = :n", ExpressionAttributeValues={":n": 2})
        self.enter_with(name, tx.seal(), since)

    def enter_with(self, name: str, actions: Sequence[Action], since: int = 0) -> None:
        def begin(stale: int | None) -> None:
            self.names.append(name if stale is None else f"{name} is stale at {stale}")

        self.turns.ran(hash(name))
        self.turns.enter(hash(name), actions, begin, since)

    def leave(self, name: str, *, applied: bool = True) -> None:
        self.turns.leave(hash(name), applied=applied)


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
        entered.enter_with(name, tx.actions)

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


def test_those_that_check_one_item_under_one_condition_share_it_until_their_request_leaves() -> None:
    entered = Entered()
    for name in ("first", "second"):
        entered.check(name, "x")
    entered.check("of another value", "x", value=2)
    entered.check("behind it", "x")
    assert entered.names == ["first", "second"]

    entered.leave("first")
    assert entered.names == ["first", "second"], "the second still uses it"
    entered.leave("second")
    assert entered.names[2:] == ["of another value"]
    entered.leave("of another value")
    assert entered.names[3:] == ["behind it"]

    entered.turns.close()
    entered.check("too late", "x")
    assert entered.names[4:] == []
    entered.leave("behind it")
    assert entered.names[4:] == ["too late"]


def test_those_that_waited_for_a_writer_share_the_item_together() -> None:
    entered = Entered()
    entered.enter("writer", "x")
    for number in range(WRITES_A_COMMIT):
        entered.check(str(number), "x")

    entered.turns.close()
    entered.leave("writer")

    assert entered.names[1:] == [str(number) for number in range(WRITES_A_COMMIT - 1)], "as many as a request holds"


def test_a_turn_tells_which_read_an_earlier_commit_has_changed() -> None:
    entered = Entered()
    entered.read_and_write("first", "x")
    entered.read_and_write("second", "y", "x")
    entered.read_and_write("third", "x")
    entered.leave("first", applied=False)
    entered.leave("second")

    assert entered.names == ["first", "second", "third is stale at 0"]

    entered.read_and_write("third", "x", since=entered.turns.writes)
    entered.read_and_write("fourth", "y", since=entered.turns.writes)
    assert entered.names[3:] == ["third", "fourth"], "they began after it"


def test_a_run_again_keeps_its_turn_unless_it_needs_another_item() -> None:
    entered = Entered()
    entered.read_and_write("first", "x")
    entered.read_and_write("behind", "x", since=1)
    entered.read_and_write("first", "x")
    assert entered.names == ["first", "first"]

    entered.read_and_write("first", "x", "y")
    assert entered.names == ["first", "first", "behind"]
    entered.leave("behind", applied=False)
    assert entered.names[3:] == ["first"]
    entered.read_and_write("on y", "y")
    entered.leave("first")
    assert entered.names[4:] == ["on y is stale at 0"]
    assert entered.turns.wait_seconds == 0


def test_a_shared_check_that_becomes_a_write_waits_for_those_that_share_it() -> None:
    """Within one turn they would only make each other run again."""
    entered = Entered()
    for name in ("first", "second", "third"):
        entered.check(name, "x")
    entered.read_and_write("first", "x")
    entered.check("second", "x")
    assert entered.names == ["first", "second", "third", "second"], "the second still checks it, and the first waits"

    entered.read_and_write("second", "x")
    assert entered.names[4:] == []
    entered.leave("third")
    assert entered.names[4:] == ["first"]
    entered.read_and_write("first", "x")
    assert entered.names[5:] == ["first"], "alone, it keeps its turn"
    entered.leave("first")
    assert entered.names[6:] == ["second is stale at 0"]


def test_nobody_shares_a_check_that_has_become_a_write() -> None:
    entered = Entered()
    entered.check("first", "x")
    entered.read_and_write("first", "x")
    entered.check("second", "x")
    assert entered.names == ["first", "first"]
    entered.leave("first")
    entered.check("third", "x")
    assert entered.names[2:] == ["second", "third"]


@pytest.mark.parametrize(
    ("write", "stale"),
    [
        ({"UpdateExpression": "SET seen = :v", "ExpressionAttributeValues": {":v": 1}}, False),
        ({"UpdateExpression": "ADD #seen :v", "ExpressionAttributeNames": {"#seen": "n"}}, True),
        ({"UpdateExpression": "SET log.n = :v REMOVE n[1]"}, True),
        ({"Item": {"id": "x"}}, True),
        ({}, True),
    ],
)
def test_a_read_of_some_attributes_is_stale_after_a_write_of_those(write: dict[str, Any], stale: bool) -> None:
    """Others may change: DynamoDB checks that in the end. A later write of another makes it no fresher."""
    entered, tx, other = Entered(), Transaction(), Transaction()
    method = tx.put if "Item" in write else tx.update if write else tx.delete
    method(TableName="T", **({} if "Item" in write else {"Key": {"id": "x"}}), **write)
    entered.enter("keyed", "y")
    entered.enter_with("writer", tx.actions)
    other.update(TableName="T", Key={"id": "x"}, UpdateExpression="REMOVE seen")
    entered.enter_with("another", other.actions)
    reader = Transaction(lambda table, key: {**key, "n": 1, "seen": 0})
    reader.get(TableName="T", Key={"id": "x"}, attributes=["n"])
    entered.enter_with("reader", reader.seal())
    entered.leave("writer")
    entered.leave("another")
    assert entered.names[3:] == ["reader is stale at 0" if stale else "reader"]

    absent = Transaction(lambda table, key: None)
    absent.get(TableName="T", Key={"id": "x"}, attributes=["n"])
    entered.enter_with("of none", absent.seal())
    entered.leave("reader", applied=False)
    assert entered.names[4:] == ["of none is stale at 0"], "a write of any attribute makes the item"


def test_a_write_to_no_known_item_makes_no_read_stale() -> None:
    entered, tx = Entered(), Transaction()
    tx.put(TableName="unknown", Item={"id": "x"})
    entered.enter_with("writer", tx.actions)
    entered.leave("writer")
    reader = Transaction(lambda table, key: {**key, "n": 1})
    reader.get(TableName="T", Key={"id": "x"}, attributes=["n"])
    entered.enter_with("reader", reader.seal())
    assert entered.names == ["writer", "reader"]
