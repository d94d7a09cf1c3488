"""A batch with a store that runs its messages: sends, groups, duplicates, and what is left in the table."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import Session

from idempotent_receiver import Message, Transaction, message_attribute
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.sql import SQLStore
from idempotent_receiver.sql.store import EXPIRED_A_DELETION, RUNS_A_DELETION
from tests.unit.sql.bank import deliver

if TYPE_CHECKING:
    from tests.unit.sql.bank import Bank

QUEUE = "https://sqs.us-east-1.amazonaws.com/123456789012/shipments"


class SQS:
    """A client that confirms what it is sent, or does not answer."""

    def __init__(self) -> None:
        real = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
        self.meta = real.client("sqs", config=Config(proxies={})).meta
        self.sent: list[dict[str, Any]] = []
        self.answers = True

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803
        if not self.answers:
            raise ConnectionError
        self.sent += [{"QueueUrl": QueueUrl, **entry} for entry in Entries]
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries], "Failed": []}

    def send_message(self, **given: Any) -> dict[str, Any]:
        self.sent.append(given)
        return {"MessageId": "dead"}

    def change_message_visibility_batch(self, **given: Any) -> dict[str, Any]:
        return {}


def test_a_message_is_sent_once_the_effects_are_committed(bank: Bank) -> None:
    """The record is SENDING with the commit, and COMPLETED once SQS has confirmed; a failed run sends nothing."""
    sqs, statuses = SQS(), list[str]()

    def handle(body: dict[str, Any], session: Session, tx: Transaction) -> None:
        session.execute(bank.note(body["n"]))
        tx.send(QueueUrl=QUEUE, MessageBody={"order": body["n"]})
        if body["n"] == 2:
            raise ValueError

    confirm = sqs.send_message_batch
    sqs.send_message_batch = lambda **given: (statuses.append(_status(bank, "a")), confirm(**given))[1]  # type: ignore[method-assign]
    consumer = bank.consumer(handle, sqs=sqs)

    assert deliver(consumer, {"n": 1}, {"n": 2}, ids=["a", "b"]) == ["b"]

    assert statuses == ["SENDING"]
    assert [json.loads(one["MessageBody"]) for one in sqs.sent] == [{"order": 1}]
    assert _status(bank, "a") == "COMPLETED"
    assert _status(bank, "b") == "FAILED"
    assert bank.noted == ["1"]


def test_a_call_is_made_once_the_effects_are_committed(bank: Bank) -> None:
    """If and only if they are, and the record is COMPLETED after it."""
    called: list[tuple[str, str]] = []

    def notify(order: str) -> None:
        called.append((order, _status(bank, "a")))

    def handle(body: dict[str, Any], session: Session, tx: Transaction) -> None:
        session.execute(bank.note(body["n"]))
        tx.call(notify, order=str(body["n"]))
        if body["n"] == 2:
            raise ValueError

    consumer = bank.consumer(handle, calls=[notify])
    assert deliver(consumer, {"n": 1}, {"n": 2}, ids=["a", "b"]) == ["b"]

    assert called == [("1", "SENDING")]
    assert _status(bank, "a") == "COMPLETED"
    assert bank.noted == ["1"]


def test_a_message_may_fail_as_often_as_it_is_allowed(bank: Bank) -> None:
    """The last of its own failures is recorded, and sends it to the dead-letter queue; contention costs nothing."""
    sqs, runs = SQS(), list[int]()

    def handle(body: dict[str, Any], session: Session) -> None:
        runs.append(1)
        session.execute(bank.note())
        raise ValueError

    consumer = bank.consumer(handle, sqs=sqs, dead_letter_queue=QUEUE, max_attempts=2)
    assert deliver(consumer) == ["message-1"]
    assert sqs.sent == []
    assert deliver(consumer, receive_count=2) == []
    assert len(sqs.sent) == 1
    assert len(runs) == 2
    assert _status(bank, "message-1") == "FAILED"
    assert bank.noted == []


def _status(bank: Bank, id: str) -> str:
    record = bank.record(id)
    assert record is not None
    return record.status


@pytest.mark.parametrize("pooled", [False, True], ids=["a usual pool", "a pool of one"])
def test_what_was_not_sent_is_taken_over_by_a_redelivery(bank: Bank, *, pooled: bool) -> None:
    """It sends what the record holds, without running the handler; even where the pool has one connection."""
    if pooled:
        bank = bank.by(create_engine(bank.engine.url, pool_size=1, max_overflow=0))
    sqs, runs = SQS(), list[int]()
    sqs.answers = False

    def handle(body: dict[str, Any], session: Session, tx: Transaction) -> None:
        runs.append(1)
        session.execute(bank.note())
        tx.send(QueueUrl=QUEUE, MessageBody="text")

    consumer = bank.consumer(handle, sqs=sqs)
    assert deliver(consumer) == ["message-1"]
    assert _status(bank, "message-1") == "SENDING"

    sqs.answers = True
    assert deliver(consumer, {}, {"other": 1}, ids=["message-1", "message-2"], receive_count=2) == []

    assert len(runs) == 2
    assert [one["MessageBody"] for one in sqs.sent] == ["text"] * 2
    assert [_status(bank, f"message-{n}") for n in (1, 2)] == ["COMPLETED"] * 2
    assert bank.noted == ["x", "x"]
    bank.engine.dispose()


def test_a_call_is_made_once_the_effects_are_committed_and_again_after_it_raised(bank: Bank) -> None:
    """With its own key, while the record is SENDING; a failed run calls nothing."""
    called: list[tuple[int, str, str]] = []

    def notify(order: int, *, idempotency_key: str) -> None:
        called.append((order, idempotency_key[-2:], _status(bank, "a")))
        if len(called) == 1:
            raise ValueError

    def handle(body: dict[str, Any], session: Session, tx: Transaction) -> None:
        session.execute(bank.note(body["n"]))
        tx.call(notify, order=body["n"])
        if body["n"] == 2:
            raise ValueError

    consumer = bank.consumer(handle, calls=[notify])
    assert deliver(consumer, {"n": 1}, {"n": 2}, ids=["a", "b"]) == ["a", "b"]
    assert (_status(bank, "a"), _status(bank, "b"), bank.noted) == ("SENDING", "FAILED", ["1"])
    assert deliver(consumer, {"n": 1}, ids=["a"], receive_count=2) == []
    assert called == [(1, "-1", "SENDING")] * 2
    assert (_status(bank, "a"), bank.noted) == ("COMPLETED", ["1"])


def test_another_workers_messages_are_left_to_it_while_its_lease_lives(bank: Bank) -> None:
    now = 4_000_000_000_000
    outbox = json.dumps([{"QueueUrl": QUEUE, "MessageBody": "text"}])
    sending = Record(
        "message-1", "SENDING", version="v", outbox=outbox, expiration=now // 1000, in_progress_expiration=now
    )
    bank.store.insert([sending])
    runs: list[int] = []

    def handle(body: dict[str, Any], session: Session, tx: Transaction) -> None:
        runs.append(1)

    assert deliver(bank.consumer(handle, sqs=SQS())) == ["message-1"]
    assert runs == []
    assert bank.record() == sending


def test_a_fifo_group_stops_behind_a_failure(bank: Bank) -> None:
    def handle(body: dict[str, Any], message: Message, session: Session) -> None:
        session.execute(bank.note(message.id))
        if body.get("fails"):
            raise ValueError

    bodies, ids, groups = [{}, {"fails": True}, {}, {}], ["a", "b", "c", "d"], ["g", "g", "g", "other"]
    assert deliver(bank.consumer(handle), *bodies, fifo=True, ids=ids, groups=groups) == ["b", "c"]
    assert bank.noted == ["a", "d"]
    assert bank.record("c") is None


def test_two_messages_under_one_key_run_once(bank: Bank) -> None:
    """In one batch the second waits for the first, and shares its success; with another payload it fails for good."""
    store, runs = SQLStore(bank.engine, "orders", table=bank.records), list[int]()

    def handle(body: dict[str, Any], session: Session) -> None:
        runs.append(1)
        session.execute(bank.note())

    consumer = bank.consumer(handle, store=store, key=message_attribute("order"))
    bodies = [{"n": 1}, {"n": 1}, {"n": 2}]
    assert deliver(consumer, *bodies, attributes={"order": "7"}) == ["message-3"]
    assert len(runs) == 1
    assert bank.noted == ["x"]


def test_what_has_expired_is_deleted_a_little_at_a_time(bank: Bank) -> None:
    """After some runs, and no live record with it."""
    kept = Record("kept", "COMPLETED", version="v", expiration=4_000_000_000)
    old = [Record(f"old-{n}", "COMPLETED", version="v", expiration=n + 1) for n in range(EXPIRED_A_DELETION + 20)]
    bank.store.insert([kept, *old])

    def handle(body: dict[str, Any]) -> None: ...

    consumer = bank.consumer(handle)
    left = len(old)
    for deliveries, deleted in ((RUNS_A_DELETION - 1, 0), (1, EXPIRED_A_DELETION), (RUNS_A_DELETION, 20)):
        assert deliver(consumer, *[{}] * deliveries, ids=[f"{left}-{n}" for n in range(deliveries)]) == []
        left -= deleted
        with bank.engine.connect() as at:
            ids = select(func.count()).where(bank.records.c.expiration < 2_000)
            assert at.execute(ids).scalar_one() == left
    assert bank.record("kept") == kept


def test_a_deletion_does_not_wait_for_what_another_transaction_has_locked(
    on_postgresql: Bank, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idempotent_receiver.sql.store.RUNS_A_DELETION", 1)
    engine = create_engine(on_postgresql.engine.url, connect_args={"options": "-c lock_timeout=300ms"})
    bank = on_postgresql.by(engine)
    bank.store.insert([Record(id, "COMPLETED", version="v", expiration=1) for id in ("locked", "free")])

    def handle(body: dict[str, Any]) -> None: ...

    with on_postgresql.engine.begin() as other:
        other.execute(select(bank.records).where(bank.records.c.id == "locked").with_for_update())
        assert deliver(bank.consumer(handle)) == []
    assert [bank.record(id) is None for id in ("locked", "free")] == [False, True]
    engine.dispose()


def test_no_time_no_run(bank: Bank) -> None:
    """Nothing is in the table of a message that did not start."""
    runs: list[int] = []

    def handle(body: dict[str, Any], session: Session) -> None:
        runs.append(1)

    assert deliver(bank.consumer(handle), seconds=0.5) == ["message-1"]
    assert runs == []
    assert bank.record() is None
