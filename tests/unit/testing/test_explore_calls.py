"""`explore` of a handler that calls through its transaction: its calls are effects, compared like what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import DynamoDBStore, MemoryStore, Transaction, sqs_consumer
from idempotent_receiver.batch import calling
from idempotent_receiver.protocol.record import Status
from idempotent_receiver.protocol.store import Applied
from idempotent_receiver.testing import Table, explore
from tests.unit.sqs.test_sends import SHIPMENTS, Sqs, both_modes
from tests.unit.testing.test_explore_notifies import take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.batch.calling import Callings
    from idempotent_receiver.batch.items import Item
    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import Written

ORDER = {"n": 1}
kinds = pytest.mark.parametrize("asynchronous", [False, True])


def notify(order: int, *, idempotency_key: str) -> None: ...


async def notify_async(order: int) -> None: ...


def write(body: dict, tx: Transaction) -> None:
    tx.put(TableName="orders", Item={"order": body["n"]})
    tx.call(notify, order=body["n"])


async def write_async(body: dict, tx: Transaction) -> None:
    tx.put(TableName="orders", Item={"order": body["n"]})
    tx.call(notify_async, order=body["n"])


def consumer(effects: str, *, asynchronous: bool = False, function: Any = write) -> Any:
    calls: list[Any] = [notify, notify_async]
    sqs: Any = Sqs()
    store = DynamoDBStore("records")
    return sqs_consumer(store, sqs=sqs, effects=effects, calls=calls)(write_async if asynchronous else function)


@both_modes
@kinds
def test_no_schedule_loses_a_call_or_makes_it_under_two_keys(effects: str, asynchronous: bool) -> None:
    result = explore(consumer(effects, asynchronous=asynchronous), ORDER)
    assert "calls made: 1 items" in str(result)
    calls = {what for kind, what in result.played if kind == "tx.call"}
    assert calls >= {"crash-before", "crash-after", "lost", "refused"}


@both_modes
def test_calls_and_messages_of_one_transaction(effects: str) -> None:
    def both(body: dict, tx: Transaction) -> None:
        tx.send(QueueUrl=SHIPMENTS, MessageBody="a")
        write(body, tx)

    result = explore(consumer(effects, function=both), ORDER, faults=1)
    assert "calls made: 1 items" in str(result)
    assert "messages sent: 1 items" in str(result)


@both_modes
def test_a_refused_order_notifies_nobody(effects: str) -> None:
    stock = Table("item", {"item": "a", "n": 0})
    result = explore(consumer(effects, function=take(notify, order="n")), ORDER, tables={"stock": stock}, faults=1)
    assert "calls made" not in str(result)


@both_modes
def test_a_call_that_is_lost_with_its_worker_is_found(effects: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if whoever finds the record after a crash took its calls for made."""
    add = calling.Callings.add

    def forgets(self: Callings, item: Item) -> None:
        if not item.runs:
            item.outbox = '[{"QueueUrl":"https://example.com/q","MessageBody":"a"}]'
        add(self, item)

    monkeypatch.setattr(calling.Callings, "add", forgets)
    monkeypatch.setattr(calling.Callings, "_line_up", _ends_without_calls(calling.Callings._line_up))
    with pytest.raises(AssertionError, match="calls made"):
        explore(consumer(effects), ORDER)


def _ends_without_calls(line_up: Any) -> Any:
    def lines_up(self: Callings, calling: Any, **more: Any) -> None:
        line_up(self, calling, **more)
        self.ended(calling)

    return lines_up


class LosingMarks(MemoryStore):
    """A store that loses each mark that the calls of a record are made."""

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        marks = [change.seen is not None and change.seen.status == Status.SENDING for change in changes]
        return [Applied() for _ in changes] if all(marks) else super().replace(changes)


@both_modes
def test_an_acknowledgement_while_the_record_has_calls_to_make_is_found(effects: str) -> None:
    result = explore(consumer(effects), ORDER, store=LosingMarks, check=False)
    assert "message-1 was acknowledged although its record is not COMPLETED" in str(result)


@both_modes
def test_a_call_with_a_new_key_each_time_is_found(effects: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter(range(10**6))
    monkeypatch.setattr(calling, "idempotency_key", lambda record: f"{record}-{next(keys)}")
    with pytest.raises(AssertionError, match="calls made"):
        explore(consumer(effects), ORDER)
