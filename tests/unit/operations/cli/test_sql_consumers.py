"""The commands on a consumer whose records are in a relational database: its store reads them, by --consumer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.operations.records import EARLY
from idempotent_receiver.protocol.record import Record
from idempotent_receiver.transaction.outbox import outgoing, to_text
from tests.unit.operations.cli.stack import LASTING, LONG_AGO_MS, TRANSIENT, Receiver, Stack
from tests.unit.sql.bank import deliver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from idempotent_receiver.sql import SQLStore

ON = "--consumer sql_code:handler"
CODE = """
from sqlalchemy import create_engine
from sqlalchemy.orm import Session

from idempotent_receiver import body_field, sqs_consumer
from idempotent_receiver.sql import SQLStore

store = SQLStore(create_engine("sqlite:///bank.db"), "bank")

@sqs_consumer(store, key=body_field("id"))
def handler(body: dict, session: Session) -> None:
    if body["id"] == "failed":
        raise ValueError
"""


@pytest.fixture
def store(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLStore]:
    """The store of the consumer in the current folder; `receiver` has made that folder."""
    monkeypatch.setattr(sys, "path", [str(Path.cwd()), *sys.path])
    Path("sql_code.py").write_text(CODE)
    import sql_code  # type: ignore[import-not-found]  # noqa: PLC0415  # it has just been written

    sql_code.store.create()
    yield sql_code.store
    sql_code.store.engine.dispose()
    del sys.modules["sql_code"]


def put(store: SQLStore, key: str, status: str, **attributes: Any) -> Record:
    record = Record(**{"id": f"bank#{key}", "status": status, "version": "v", "expiration": LASTING, **attributes})
    store.insert([record])
    return record


def unsent(store: SQLStore, stack: Stack) -> None:
    outbox = to_text([outgoing(stack.queue, "a shipment", {})])
    put(store, "order-3", "SENDING", in_progress_expiration=LONG_AGO_MS, attempts=1, outbox=outbox)


def test_trace_reads_a_record_by_the_consumers_own_store(receiver: Receiver, store: SQLStore) -> None:
    put(store, "order-1", "FAILED", error=TRANSIENT, attempts=2)
    told = receiver(f"trace order-1 {ON} --json")
    assert (told.code, told.json["status"], told.json["id"]) == (Exit.OK, "FAILED", "bank#order-1")
    assert told.json["events"][0]["text"].startswith("FAILED at attempt 2, and may be tried again: ConnectionError")


def test_trace_and_stuck_say_that_a_placeholder_that_outlived_its_run_was_committed_early(
    receiver: Receiver, store: SQLStore
) -> None:
    put(store, "order-1", "FAILED", attempts=1)
    told = receiver(f"trace order-1 {ON} --json").json
    assert [EARLY in each["text"] for each in told["events"]] == [True, False]
    (listed,) = receiver(f"stuck {ON} --json").json["failing"]
    assert (listed["key"], listed["error"]) == ("order-1", EARLY)
    assert EARLY in receiver(f"stuck {ON}").said


def test_trace_says_where_no_record_is(receiver: Receiver, store: SQLStore) -> None:
    told = receiver(f"trace order-1 {ON}")
    assert told.code == Exit.LEFT
    assert "no record with the id bank#order-1 in the database of --consumer" in told.said


def test_stuck_lists_what_waits_without_a_question_or_a_region(
    receiver: Receiver, store: SQLStore, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    now_ms = SystemClock().epoch_ms()
    put(store, "done", "COMPLETED", attempts=1)
    put(store, "order-1", "FAILED", error=TRANSIENT, attempts=2)
    put(store, "gone", "FAILED", error=TRANSIENT, attempts=2, expiration=LONG_AGO_MS // 1000)
    put(store, "sends", "SENDING", in_progress_expiration=now_ms + 60_000, attempts=1)
    unsent(store, stack)
    told = receiver(f"stuck {ON} --json")
    assert told.code == Exit.OK
    kinds = ("unsettled", "unsent", "failing", "permanent", "workflow", "resending", "unreadable")
    listed = {kind: [each["key"] for each in told.json[kind]] for kind in kinds if told.json[kind]}
    assert listed == {"unsent": ["order-3"], "failing": ["order-1"]}
    assert (told.json["confirmed"], told.json["complete"]) == (True, True)


def test_stuck_finds_nothing_of_another_consumer_in_the_table(receiver: Receiver, store: SQLStore) -> None:
    store.insert([Record(id="bank.other#x", status="FAILED", version="v", expiration=LASTING)])
    told = receiver(f"stuck {ON}")
    assert (told.code, told.err.count("misspelled")) == (Exit.OK, 0)
    assert told.out.startswith("0 of 0 records are in the namespace bank: ")


def test_stuck_lists_the_oldest_of_many(receiver: Receiver, store: SQLStore) -> None:
    store.insert([Record(id=f"bank#{n:03}", status="FAILED", version="v", attempts=n + 1) for n in range(250)])
    told = receiver(f"stuck {ON} --top 2 --json").json
    assert (told["failing_count"], [each["key"] for each in told["failing"]]) == (250, ["249", "248"])


def test_stuck_sends_what_a_record_has_left_and_completes_it(receiver: Receiver, store: SQLStore, stack: Stack) -> None:
    unsent(store, stack)
    told = receiver(f"stuck --send order-3 {ON} --yes")
    assert (told.code, told.out) == (Exit.OK, "Sent the messages for order-3.\n")
    assert [each["Body"] for each in stack.received(stack.queue)] == ["a shipment"]
    (record,) = store.read(["bank#order-3"])
    assert isinstance(record, Record)
    assert record.status == "COMPLETED"


def test_a_table_that_cannot_be_read_is_named_with_the_remedy(receiver: Receiver, store: SQLStore) -> None:
    store.table.drop(store.engine)
    told = receiver(f"stuck {ON}")
    assert told.code == Exit.USAGE
    assert "the table idempotent_receiver cannot be read: the database answered OperationalError" in told.said
    assert "check the engine of --consumer" in told.said
    told = receiver(f"trace order-1 {ON}")
    assert (told.code, "Not read: record: the database answered OperationalError" in told.said) == (Exit.AWS, True)


def test_who_names_no_table_learns_how_records_in_a_database_are_found(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["RecordsTable"]
    for told in (receiver("stuck"), receiver.on("trace order-1"), receiver.on("dlq list")):
        assert told.code == Exit.USAGE
        assert "--table; for records in a relational database, give --consumer module:handler" in told.said


def test_a_table_of_dynamodb_is_refused_for_such_a_consumer(receiver: Receiver, store: SQLStore) -> None:
    told = receiver(f"trace order-1 {ON} --table records")
    assert told.code == Exit.USAGE
    assert "its records are in a relational database" in told.said
    told = receiver(f"doctor {ON} --queue transfers")
    assert told.code == Exit.USAGE
    assert "its records are in a relational database" in told.said


def test_redrive_moves_dead_letters_under_their_keys_and_drops_what_its_records_call_done(
    receiver: Receiver, store: SQLStore, stack: Stack
) -> None:
    stack.sqs.purge_queue(QueueUrl=stack.dead)
    for key in ("done", "failed", "new"):
        stack.bury(key, f'{{"id": "{key}"}}')
    assert deliver(sys.modules["sql_code"].handler, {"id": "done"}, {"id": "failed"}) == ["message-2"]
    told = receiver(f"dlq redrive {ON} --queue transfers --yes")
    assert told.code == Exit.OK
    assert stack.keys_in(stack.queue) == {"failed", "new"}
    assert stack.received(stack.dead) == []


def test_a_resend_is_refused_with_the_key_and_the_remedy(receiver: Receiver, store: SQLStore, stack: Stack) -> None:
    stack.sqs.purge_queue(QueueUrl=stack.dead)
    stack.bury("failed", '{"id": "failed"}')
    Path("body.json").write_text('{"id": "corrected"}')
    told = receiver(f"dlq resend {ON} --queue transfers --key failed --body body.json --yes")
    assert told.code == Exit.USAGE
    assert "the record of failed is in a relational database, where no resend is kept" in told.said
    assert "have the producer send the corrected message, and use `dlq delete`" in told.said
    assert (stack.keys_in(stack.queue), store.read(["bank#failed"])) == (set(), [None])
