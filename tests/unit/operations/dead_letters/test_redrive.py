"""Dead letters come back safely: what may be moved, and what is kept of a message."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from idempotent_receiver import body_field, message_id
from idempotent_receiver.operations.dead_letters.triage import Verdict
from idempotent_receiver.transaction.outbox import STAMP
from tests.unit.operations.dead_letters.bank import (
    ALL_DEAD,
    START,
    Bank,
    both_kinds,
    completed_and_dead,
    in_balance,
    leftovers,
)

if TYPE_CHECKING:
    from idempotent_receiver.sqs.keys import KeyStrategy


def test_a_plan_that_is_carried_out_keeps_no_dead_letter() -> None:
    """A body may be 1 MiB, and the next plan is read while whoever began still has the first one."""
    bank = leftovers()
    with bank.session() as session:
        run = bank.run(session)
        plan = run.plan()
        assert plan.acting
        assert plan.staying

        run.carry_out(plan)

    assert (plan.decisions, plan.acting, plan.staying) == ([], [], [])


@both_kinds
def test_what_can_succeed_comes_back_and_what_was_done_is_dropped(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)
    assert bank.bodies(bank.dead) == Counter(dict.fromkeys(ALL_DEAD, 1))

    summary = bank.redrive(rules={"include_permanent": True})

    assert (summary.done["moved"], summary.done["dropped"]) == (6, 1)
    assert [left.verdict for left in summary.left] == [Verdict.CONFLICT]
    bank.deliver()
    in_balance(bank)


@both_kinds
def test_what_failed_for_good_stays_unless_it_is_included(fifo: bool) -> None:
    bank = leftovers(fifo=fifo)

    summary = bank.redrive()

    assert (summary.done["moved"], summary.done["dropped"]) == (4, 1)
    assert Counter(left.verdict for left in summary.left) == {Verdict.CONFLICT: 1, Verdict.PERMANENT: 2}
    assert bank.bodies(bank.dead) == Counter(["garbage", "conflict", "permanent"])


@both_kinds
@pytest.mark.parametrize("key", [message_id, body_field("name")], ids=["messageId", "a key of the business"])
def test_of_what_sqs_itself_has_moved_the_record_tells_the_reason_and_that_it_failed_for_good(
    fifo: bool, key: KeyStrategy
) -> None:
    """No letter says anything: the consumer sent none."""
    bank = Bank(fifo=fifo, key=key, at_once=False)
    bank.send("permanent")
    bank.send("flaky")
    bank.send("good")
    bank.deliver()

    assert bank.bodies(bank.dead) == Counter(["permanent", "flaky"])
    assert not any(kept.sent["MessageAttributes"] for kept in bank.dead.messages)
    session = bank.session()
    found = {json.loads(each.dead_letter.message.raw_body)["name"]: each for each in session.take()}
    session.source.release()
    died_of = {name: (each.verdict, each.reason.partition(" at ")[0], each.error_type) for name, each in found.items()}
    assert died_of == {
        "permanent": (Verdict.PERMANENT, "permanent cannot be posted", "PermanentError"),
        "flaky": (Verdict.MOVE, "ConnectionError", "ConnectionError"),
    }

    bank.mended = True
    assert [left.verdict for left in bank.redrive().left] == [Verdict.PERMANENT]
    assert bank.redrive(rules={"include_permanent": True}).done["moved"] == 1
    bank.deliver()
    assert bank.done == Counter(["permanent", "flaky", "good"])


def test_a_body_that_does_not_validate_and_that_sqs_has_moved_tells_its_reason_from_its_record() -> None:
    bank = Bank(at_once=False)
    bank.sqs.send_message(QueueUrl=bank.queue.url, MessageBody="{not JSON")
    bank.deliver()

    (judged,) = bank.session().take()

    assert (judged.verdict, judged.error_type) == (Verdict.PERMANENT, "InvalidBody")
    assert "json_invalid" in judged.reason


def test_what_was_received_behind_a_permanent_failure_of_its_group_is_moved_with_it_and_comes_back() -> None:
    """The price of leaving it to SQS on a FIFO queue: it was received as often, though it never ran."""
    bank = Bank(fifo=True, at_once=False)
    for name in ("permanent", "behind", "behind it"):
        bank.send(name, group="one")
    bank.send("beside", group="other")
    bank.deliver()

    assert (bank.done, bank.bodies(bank.dead)) == (
        Counter(["beside"]),
        Counter(["permanent", "behind", "behind it"]),
    )
    bank.redrive()
    bank.deliver()
    assert bank.done == Counter(["beside", "behind", "behind it"])
    assert bank.bodies(bank.dead) == Counter(["permanent"])


def test_a_native_redrive_reproduced_as_documented_runs_what_was_done_a_second_time() -> None:
    """The reason for this redriver: new messageIds, where the messageId was the key."""
    bank = completed_and_dead()
    bank.sqs.move_natively(bank.dead, bank.queue)
    bank.deliver()
    assert bank.done == Counter({"paid": 2})


def test_ours_drops_what_was_done_and_it_runs_no_second_time() -> None:
    bank = completed_and_dead()
    summary = bank.redrive()
    bank.deliver()
    assert (summary.done["dropped"], summary.done["moved"], summary.left) == (1, 0, [])
    assert bank.done == Counter(["paid"])
    assert bank.dead.messages == []


def test_a_business_key_survives_a_native_redrive() -> None:
    bank = completed_and_dead(key=body_field("name"))
    bank.sqs.move_natively(bank.dead, bank.queue)
    bank.deliver()
    assert bank.done == Counter(["paid"])


def test_two_copies_of_one_dead_letter_run_once() -> None:
    bank = Bank()
    bank.send("flaky")
    bank.kill_by_receives(handle=True)
    bank.mended = True
    bank.sqs.undeletable.add(bank.dead.url)
    bank.redrive()
    bank.sqs.undeletable.clear()
    bank.redrive()
    assert bank.bodies(bank.queue) == Counter({"flaky": 2})
    bank.deliver()
    assert bank.done == Counter(["flaky"])


@pytest.mark.parametrize("fifo", [True, False])
def test_body_attributes_group_and_trace_are_kept_and_the_key_is_stamped(fifo: bool) -> None:
    """The group of a standard queue, too, where it names a tenant."""
    bank = Bank(fifo=fifo)
    attributes = {
        "tenant": {"DataType": "String.name", "StringValue": "t"},
        "amount": {"DataType": "Number", "StringValue": "1.50"},
        "raw": {"DataType": "Binary.bytes", "BinaryValue": b"\x00\xff"},
    }
    body = '{ "name":"flaky", "n": 1e2 }'
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1"}}
    sent = {"MessageBody": body, "MessageAttributes": attributes, "MessageSystemAttributes": trace}
    sent |= {"MessageGroupId": "g"} | ({"MessageDeduplicationId": "d"} if fifo else {})
    bank.sqs.send_message(QueueUrl=bank.dead.url, **sent)
    letter = bank.dead.messages[0]
    letter.source = bank.queue.arn

    bank.redrive()

    (moved,) = bank.queue.messages
    stamp = json.loads(moved.sent["MessageAttributes"].pop(STAMP)["StringValue"])
    assert moved.sent["MessageAttributes"] == attributes
    assert moved.sent["MessageBody"] == body
    assert moved.sent.get("MessageGroupId") == "g"
    assert moved.sent.get("MessageDeduplicationId") == (f"redrive-{letter.id}" if fifo else None)
    assert moved.sent["MessageSystemAttributes"] == trace
    assert stamp == {"key": letter.id, "original_id": letter.id, "first_received": START, "queue": bank.queue.arn}


def test_the_first_id_and_the_first_time_are_kept_over_many_deaths() -> None:
    bank = Bank()
    id = bank.send("flaky")
    for _ in range(3):
        bank.kill_by_receives(handle=True)
        bank.redrive()
    (moved,) = bank.queue.messages
    stamp = json.loads(moved.sent["MessageAttributes"][STAMP]["StringValue"])
    assert moved.id != id
    assert (stamp["key"], stamp["original_id"], stamp["first_received"]) == (id, id, START)
