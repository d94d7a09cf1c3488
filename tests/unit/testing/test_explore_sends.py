"""`explore` of a handler that sends: its messages are effects, compared like what it writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver import DynamoDBStore, MemoryStore, Transaction, sqs_consumer
from idempotent_receiver.batch import sends
from idempotent_receiver.batch.items import Event
from idempotent_receiver.protocol.record import Status
from idempotent_receiver.protocol.store import Applied
from idempotent_receiver.testing import explore
from tests.unit.sqs.test_sends import SHIPMENTS, Sqs, both_modes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from idempotent_receiver.batch.items import Item
    from idempotent_receiver.batch.sends import Sends
    from idempotent_receiver.protocol.record import Change
    from idempotent_receiver.protocol.store import Written

ORDER = {"n": 1}


def post(body: dict, tx: Transaction) -> None:
    tx.put(TableName="orders", Item={"order": body["n"]})
    tx.send(QueueUrl=SHIPMENTS, MessageBody={"order": body["n"]})


def consumer(effects: str) -> Any:
    return sqs_consumer(DynamoDBStore("records"), sqs=Sqs(), effects=effects)(post)  # type: ignore[arg-type]  # the part of it that is used


@both_modes
def test_no_schedule_loses_a_message_or_sends_it_under_two_keys(effects: str) -> None:
    result = explore(consumer(effects), ORDER)
    assert "messages sent: 1 items" in str(result)
    sends = {what for kind, what in result.played if kind == "send"}
    assert sends == {"crash-before", "crash-after", "lost", "refused", "slow"}


@both_modes
def test_a_message_that_is_lost_with_its_worker_is_found(effects: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if whoever finds the record after a crash took it for sent."""
    add = sends.Sends.add

    def forgets(self: Sends, item: Item) -> None:
        if item.runs:
            add(self, item)
        else:
            self._progress.happens(item, Event.CONFIRMED)

    monkeypatch.setattr(sends.Sends, "add", forgets)
    with pytest.raises(AssertionError, match="messages sent"):
        explore(consumer(effects), ORDER)


class LosingMarks(MemoryStore):
    """A store that loses each mark that the messages of a record are sent."""

    def replace(self, changes: Sequence[Change]) -> Sequence[Written]:
        marks = [change.seen is not None and change.seen.status == Status.SENDING for change in changes]
        return [Applied() for _ in changes] if all(marks) else super().replace(changes)


@both_modes
def test_an_acknowledgement_while_the_record_has_messages_to_send_is_found(effects: str) -> None:
    result = explore(consumer(effects), ORDER, store=LosingMarks, check=False)
    assert "message-1 was acknowledged although its record is not COMPLETED" in str(result)


@both_modes
def test_a_message_with_a_new_key_for_each_send_is_found(effects: str, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = iter(range(10**6))
    monkeypatch.setattr(sends, "idempotency_key", lambda record: f"{record}-{next(keys)}")
    with pytest.raises(AssertionError, match="messages sent"):
        explore(consumer(effects), ORDER)
