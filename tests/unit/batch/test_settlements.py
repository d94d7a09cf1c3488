"""What shares a request with what, and what waits for its turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import Transaction
from idempotent_receiver.batch.settlements import LINGER_SECONDS, SettleLine
from idempotent_receiver.protocol.exchange import Operation
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.protocol.transitions import Settlement
from idempotent_receiver.transaction.action import Items

if TYPE_CHECKING:
    from collections.abc import Sequence


def operation(name: str, actions: int = 0) -> Operation[Any]:
    tx = Transaction()
    for number in range(actions):
        tx.put(TableName="T", Item={"id": f"{name}-{number}"})
    return Operation(Settlement(Record(name, ""), {}, 0, None), None, actions=tx.actions)


class Flushed:
    """A line whose requests are recorded by the names of their operations."""

    def __init__(self, most: int) -> None:
        self.requests: list[list[str]] = []
        self.line = SettleLine[Any](most, self._leave)

    def _leave(self, operations: Sequence[Operation[Any]]) -> None:
        self.requests.append([one.transition.id for one in operations])

    def add(self, *operations: Operation[Any]) -> None:
        for one in operations:
            self.line.add(one)


# Lines.


def test_a_request_leaves_when_it_is_full() -> None:
    """By its writes: a record's, and a handler's."""
    flushed = Flushed(most=6)
    flushed.add(operation("a", 1), operation("b", 1), operation("c", 2), operation("d"))

    flushed.line.flush(0.0, hurry=False)

    assert flushed.requests == [["a", "b"]]
    assert flushed.line.due_seconds == LINGER_SECONDS


def test_what_waits_leaves_two_milliseconds_after_the_oldest() -> None:
    flushed = Flushed(most=6)
    flushed.add(operation("a", 1))
    flushed.line.flush(1.0, hurry=False)
    flushed.add(operation("b", 1))

    flushed.line.flush(1.001, hurry=False)
    assert flushed.requests == []
    flushed.line.flush(1.002, hurry=False)

    assert flushed.requests == [["a", "b"]]
    assert flushed.line.due_seconds is None


def test_in_a_hurry_everything_leaves() -> None:
    flushed = Flushed(most=2)
    flushed.add(*(operation(name) for name in "abc"))

    flushed.line.flush(0.0, hurry=True)

    assert flushed.requests == [["a", "b"], ["c"]]


def test_one_that_is_larger_than_a_request_goes_alone() -> None:
    """DynamoDB decides what becomes of it."""
    flushed = Flushed(most=4)
    flushed.add(operation("small", 1), operation("large", 9), operation("last"))

    flushed.line.flush(0.0, hurry=True)

    assert flushed.requests == [["small"], ["large"], ["last"]]


# Items.


def action(kind: str, table: str = "T", **source: Any) -> Any:
    tx = Transaction()
    if kind == "put":
        tx.put(TableName=table, Item=source)
    else:
        tx.delete(TableName=table, Key=source)
    return tx.actions[0]


@pytest.mark.parametrize("table", ["T", "arn:aws:dynamodb:us-east-1:123456789012:table/T"])
def test_an_item_is_its_table_and_key_however_they_are_written(table: str) -> None:
    """A table may be named by its ARN, and a number in several ways."""
    one, other = Items().of([action("delete", id=1, line="a"), action("delete", table, line="a", id=1)])

    assert one == other


def test_a_put_is_on_an_item_once_the_tables_key_is_known() -> None:
    """An action that names a key tells it, earlier or later."""
    items = Items()

    assert items.of([action("put", id="1", amount=5)]) == [None]
    put, delete = items.of([action("put", id="1", amount=5), action("delete", id="1")])

    assert put == delete
    assert items.of([action("put", id="1", amount=7)]) == [put]
    assert items.of([action("put", amount=7)]) == [None]


def test_a_malformed_key_misplaces_no_other_action() -> None:
    """DynamoDB refuses its message alone, so its neighbours must go on as if it were not there."""
    items = Items()
    items.of([action("delete", id="1", typo="x")])
    reader = Transaction(lambda table, key: {**key, "n": 1})
    reader.get(TableName="T", Key={"id": "1"}, attributes=["n"])
    (delete,) = items.of([action("delete", id="1")])

    assert delete is not None
    assert items.of(reader.seal()) == [delete]
    assert items.of([action("put", id="1", amount=5)]) == [delete], "a read has told the key's name"
    items.of([action("delete", id="1", typo="x")])
    assert items.of([action("put", id="1", amount=5)]) == [delete]
