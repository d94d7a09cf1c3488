"""The definition that is shipped, on moto's engine: how a transfer may go, and what is left when it is over."""

from __future__ import annotations

import json
import os
import threading
from importlib import import_module
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto.dynamodb.models import DynamoDBBackend

from app.transfers import Transfer
from harness.cloud import ROOT
from idempotent_receiver import DynamoDBStore, errors
from idempotent_receiver.sqs.dead_letter import stamp_of
from tests.contexts import Context
from tests.workflow.conftest import FINGERPRINT, MOVED, STEPS, TRANSFER, UNMOVED
from tests.workflow.machine import Killed, definition

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.workflow.conftest import Bank

CONTEXT = Context()
TO_NOBODY = {**TRANSFER, "to_account": "nobody"}


def failing(passing: list[BaseException], then: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A function that raises these, and then does its work."""

    def handle(event: Any, context: Any) -> Any:
        if passing:
            raise passing.pop()
        return then(event, context)

    return handle


def always(error: BaseException) -> Callable[[Any, Any], Any]:
    def handle(event: Any, context: Any) -> Any:
        raise error

    return handle


def test_a_transfer_that_goes_well_is_written_as_a_settlement_would_write_it(bank: Bank) -> None:
    """A fresh version, no lease and no input any more; whose it was, and how often it was tried, stays."""
    ended = bank.run()
    assert ended.states == ["version", "debit", "credit", "receipt", "completed", "was_sent", "done"]
    assert (ended.status, ended.error) == ("SUCCEEDED", None)
    assert bank.balances() == MOVED
    (message,) = bank.messages()
    record = bank.record()
    assert record.pop("version") != "v1"
    assert record.pop("execution").endswith(":execution:transfers:1")
    assert json.loads(record.pop("data")) == ended.output == {"transfer_id": "t1", "message_id": message["MessageId"]}
    assert record == {
        "id": "workflow#1",
        "status": "COMPLETED",
        "validation": FINGERPRINT,
        "expiration": 2_000_000_000,
        "attempts": 1,
        "owner": "starter",
    }


def test_the_receipt_counts_under_the_transfer_and_moves_nothing(bank: Bank) -> None:
    bank.run()
    (message,) = bank.messages()
    attributes = {name: {"stringValue": value["StringValue"]} for name, value in message["MessageAttributes"].items()}
    stamp = stamp_of(attributes)
    assert stamp is not None
    assert stamp.key == "t1"
    receipt = Transfer.model_validate({**TRANSFER, "receipt": True})
    assert Transfer.model_validate_json(message["Body"]) == receipt
    message_of = import_module("app.steps.receipt").message_of
    in_order = {"MessageGroupId": "bob", "MessageDeduplicationId": "t1"}
    assert message_of(receipt, fifo=True) == {**message_of(receipt, fifo=False), **in_order}


def test_a_payer_who_cannot_pay_is_told_so_and_nothing_moves(bank: Bank) -> None:
    ended = bank.run({**TRANSFER, "amount": 101})
    assert (ended.status, ended.error) == ("FAILED", "TransferFailed")
    assert ended.states == ["version", "debit", "refused", "refusal", "was_debited", "failed", "transfer_failed"]
    told = "account alice is unknown or cannot pay 101 USD"
    assert bank.failure() == {"type": "PermanentError", "text": told, "permanent": True, "status": 422}
    assert (bank.balances(), bank.entries()) == (UNMOVED, {})


def test_a_payee_who_cannot_be_credited_gives_the_payer_the_money_back(bank: Bank) -> None:
    ended = bank.run(TO_NOBODY)
    assert (ended.status, ended.error) == ("FAILED", "TransferFailed")
    assert ended.states[2:] == [
        *("credit", "refused", "refusal", "was_debited", "refund", "has_arrived", "failed", "transfer_failed"),
    ]
    assert bank.failure()["text"] == "account nobody is unknown or not in USD"
    assert bank.balances() == UNMOVED
    assert bank.entries() == {"t1#1": ("alice", -30), "t1#2": ("alice", 30)}
    assert bank.messages() == []


@pytest.mark.parametrize("step", STEPS)
def test_a_step_is_tried_again_after_what_passes(bank: Bank, sleeps: list[float], step: str) -> None:
    passing = [errors.StoreUnavailable("t1", "throttled", ran=False), errors.InProgress("t1", 1), Killed()]
    bank.handlers[step] = failing(passing, then=bank.handlers[step])
    refunds = step == "refund"
    ended = bank.run(TO_NOBODY if refunds else TRANSFER)
    assert ended.status == ("FAILED" if refunds else "SUCCEEDED")
    assert bank.balances() == (UNMOVED if refunds else MOVED)
    assert bank.functions.calls.count(step) == 4
    assert len(sleeps) == 3


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_function_that_dies_around_its_commit_takes_effect_once(bank: Bank, step: str, moment: str) -> None:
    """Its claim outlives it: the next tries find it in progress, until the lease is over."""
    died: list[str] = []

    def dying(name: str) -> Callable[..., Any]:
        write = getattr(DynamoDBStore, name)

        def written(store: DynamoDBStore, *args: Any) -> Any:
            settles = name == "commit" or args[0][0].new.status == "COMPLETED"
            if not settles or died or store.namespace != f"steps.{step}":
                return write(store, *args)
            died.append(step)
            if moment == "after":
                write(store, *args)
            raise Killed

        return written

    with pytest.MonkeyPatch.context() as patch:
        for name in ("commit", "replace"):
            patch.setattr(DynamoDBStore, name, dying(name))
        refunds = step == "refund"
        bank.run(TO_NOBODY if refunds else TRANSFER)
    assert died == [step]
    assert bank.balances() == (UNMOVED if refunds else MOVED)
    assert bank.record()["status"] == ("FAILED" if refunds else "COMPLETED")
    assert len({message["Body"] for message in bank.messages()}) == (0 if refunds else 1)


@pytest.mark.parametrize("step", ["debit", "credit"])
def test_what_nobody_knows_is_not_tried_again_but_undone(bank: Bank, sleeps: list[float], step: str) -> None:
    bank.handlers[step] = always(KeyError("a mistake in the code"))
    ended = bank.run()
    assert (ended.status, ended.error) == ("FAILED", "TransferFailed")
    assert bank.failure() == {"type": "KeyError", "status": 500}
    assert (bank.functions.calls.count(step), sleeps) == (1, [])
    assert bank.balances() == UNMOVED


ANOTHERS = [
    {**TRANSFER, "from_account": "dave", "amount": 20},
    {**TRANSFER, "to_account": "carol"},
    {**TRANSFER, "amount": 29},
]


def test_who_uses_anothers_id_is_not_told_what_that_was(bank: Bank) -> None:
    """A fingerprint can be guessed at by trying; and it is the id that has to be another."""
    bank.functions.invoke("debit", TRANSFER)
    ended = bank.run({**TRANSFER, "amount": 29})
    assert ended.states[1:4] == ["debit", "anothers", "was_debited"]
    text = "the transfer's id was used for another transfer: take a new one"
    assert bank.failure() == {"type": "FingerprintMismatch", "text": text, "permanent": True, "status": 422}


def posted_by_a_message(bank: Bank) -> None:
    """The books as after a message of the queue: both legs, and no step has a record."""
    for step in ("debit", "credit"):
        bank.functions.invoke(step, TRANSFER)
    for item in bank.table("steps").scan()["Items"]:
        bank.table("steps").delete_item(Key={"id": item["id"]})


@pytest.mark.parametrize("other", ANOTHERS, ids=["payer", "payee", "amount"])
@pytest.mark.parametrize("in_doubt", [False, True])
def test_an_id_that_another_transfer_has_moves_nothing(bank: Bank, other: dict[str, Any], in_doubt: bool) -> None:
    """It is refused; and where its debit is in doubt, the refund gives back only what this transfer took."""
    bank.open_account("dave", 50)
    posted_by_a_message(bank)
    before = bank.balances()
    if in_doubt:
        bank.handlers["debit"] = always(KeyError("a mistake in the code"))
    ended = bank.run(other)
    assert ended.status == "FAILED"
    if in_doubt:
        assert "refund" in ended.states
        assert bank.failure()["status"] == 500
    else:
        assert bank.failure()["text"] == "transfer t1 was posted before, by another message"
    assert bank.balances() == before


def test_a_debit_that_only_the_ledger_knows_of_is_given_back(bank: Bank) -> None:
    """Its record is gone, so the step runs again, and the ledger refuses a second debit: the first one stands."""
    bank.functions.invoke("debit", TRANSFER)
    bank.table("steps").delete_item(Key={"id": "steps.debit#t1"})
    assert bank.balances() != UNMOVED
    ended = bank.run()
    assert (ended.status, ended.error) == ("FAILED", "TransferFailed")
    assert ended.states[1:6] == ["debit", "refused", "refusal", "was_debited", "refund"]
    assert bank.failure()["text"] == "transfer t1 was posted before, by another message"
    assert bank.balances() == UNMOVED


def test_a_transfer_that_a_message_has_posted_is_done(bank: Bank) -> None:
    """Its money has arrived, once: the ledger says so, whoever has posted it."""
    posted_by_a_message(bank)
    before = bank.balances()
    assert bank.run().status == "SUCCEEDED"
    assert (bank.balances(), bank.record()["status"]) == (before, "COMPLETED")


@pytest.mark.parametrize("step", ["debit", "credit"])
def test_a_step_that_comes_after_the_transfer_was_given_up_moves_nothing(bank: Bank, step: str) -> None:
    """A debit meets an entry of nothing, and a credit the refund."""
    late, bank.handlers[step] = bank.handlers[step], always(TimeoutError())
    bank.run()
    if step == "debit":
        assert bank.entries() == {"t1#1": ("alice", 0)}
    bank.handlers[step] = late
    answer, failed = bank.functions.invoke(step, TRANSFER)
    assert (failed, answer["errorType"]) == (True, "PermanentError")
    assert bank.balances() == UNMOVED


def test_a_credit_that_arrived_unnoticed_is_not_undone(bank: Bank) -> None:
    credit = bank.handlers["credit"]

    def unnoticed(event: Any, context: Any) -> Any:
        credit(event, context)
        raise RuntimeError("after all was done")

    bank.handlers["credit"] = unnoticed
    ended = bank.run()
    assert ended.states[2:7] == ["credit", "in_doubt", "refund", "has_arrived", "receipt"]
    assert ended.status == "SUCCEEDED"
    assert bank.balances() == MOVED
    assert bank.record()["status"] == "COMPLETED"


def test_a_refund_that_fails_for_long_needs_a_person(bank: Bank, sleeps: list[float]) -> None:
    bank.handlers["refund"] = always(errors.StoreUnavailable("t1", "throttled", ran=False))
    ended = bank.run(TO_NOBODY)
    assert ended.states[-3:] == ["refund", "needs_a_person", "person_needed"]
    assert (ended.status, ended.error) == ("FAILED", "NeedsAPerson")
    assert bank.failure()["type"] == "NeedsAPerson"
    assert len(sleeps) == 20
    assert sum(sleeps) > 900


def test_a_receipt_that_cannot_be_sent_undoes_nothing_and_is_not_passed_over(bank: Bank) -> None:
    boto3.client("sqs").delete_queue(QueueUrl=os.environ["QUEUE_URL"])
    with pytest.raises(import_module("app.steps.wiring").Unavailable, match=r"^AWS answered \S*NonExistentQueue$"):
        bank.handlers["receipt"](TRANSFER, CONTEXT)
    ended = bank.run()
    assert (ended.status, ended.error) == ("FAILED", "ReceiptMissing")
    assert bank.balances() == MOVED
    record = bank.record()
    assert (record["status"], json.loads(record["data"])) == ("COMPLETED", {"transfer_id": "t1", "message_id": ""})


def test_an_outcome_comes_before_the_hand_over_does(bank: Bank) -> None:
    """The name is made of the key, so a record that was not handed to anybody yet is this execution's too."""
    bank.hand_over()
    machine = bank.create()
    ended = bank.ended(bank.start(machine))
    assert ended.status == "SUCCEEDED"
    assert bank.record()["execution"] == machine.replace(":stateMachine:", ":execution:") + ":1"


@pytest.mark.parametrize(
    "attributes",
    [
        {"execution": "arn:aws:states:us-east-1:123456789012:execution:transfers:another"},
        {"status": "FAILED", "error": '{"type": "TIMED_OUT"}'},
        {"status": "COMPLETED", "data": '"by another"'},
        {"validation": "another payload's"},
    ],
    ids=lambda attributes: next(iter(attributes)),
)
@pytest.mark.parametrize("transfer", [TRANSFER, TO_NOBODY], ids=["completes", "fails"])
def test_a_late_outcome_overwrites_nothing(bank: Bank, attributes: dict[str, str], transfer: dict[str, Any]) -> None:
    bank.hand_over(**attributes)
    before = bank.record()
    ended = bank.ended(bank.start(bank.create(), transfer))
    assert ended.states[-1] == "outcome_refused"
    assert (ended.status, ended.error) == ("FAILED", "OutcomeRefused")
    assert bank.record() == before


def test_an_outcome_never_makes_a_record(bank: Bank) -> None:
    ended = bank.ended(bank.start(bank.create()))
    assert ended.error == "OutcomeRefused"
    assert bank.table("workflows").scan()["Items"] == []


def test_an_outcome_whose_answer_was_lost_is_recognised(bank: Bank, monkeypatch: pytest.MonkeyPatch) -> None:
    update, lost = DynamoDBBackend.update_item, []

    def update_item(self: Any, table_name: str, *args: Any, **kwargs: Any) -> Any:
        item = update(self, table_name, *args, **kwargs)
        if table_name == "workflows" and not lost:
            lost.append(1)
            raise ConnectionError("the answer was lost")
        return item

    monkeypatch.setattr(DynamoDBBackend, "update_item", update_item)
    assert bank.run().status == "SUCCEEDED"
    assert lost
    assert bank.record()["status"] == "COMPLETED"


def test_a_machine_that_takes_too_long_is_ended_and_leaves_the_record_as_it_is(bank: Bank) -> None:
    go_on = threading.Event()
    bank.handlers["credit"] = lambda event, context: go_on.wait(20)
    machine = bank.create(TimeoutSeconds=1)
    bank.hand_over()
    ended = bank.ended(bank.start(machine))
    go_on.set()
    assert ended.status == "TIMED_OUT"
    assert bank.record()["status"] == "INPROGRESS"
    assert bank.balances() == {"alice": 70, "bob": 0}


# The definition as a text.


def test_each_function_of_the_machine_has_the_file_of_its_name() -> None:
    files = {path.stem for path in (ROOT / "src/app/steps").glob("*.py")} - {"__init__", "wiring"}
    functions = {
        name for name, state in definition()["States"].items() if state.get("Resource", "").endswith("lambda:invoke")
    }
    assert files == functions == set(STEPS)


def test_the_machine_outlasts_everything_that_it_tries_again() -> None:
    """Else its own time-out would come before it can say that it needs a person."""
    machine = definition()

    def longest(name: str) -> float:
        state = machine["States"][name]
        (again,) = state["Retry"]
        waits, wait = 0.0, float(again["IntervalSeconds"])
        for _ in range(again["MaxAttempts"]):
            waits += min(wait, again["MaxDelaySeconds"])
            wait *= again["BackoffRate"]
        return waits

    # Functions that fail at once; one that always runs into its time-out has the machine's as its bound.
    worst = sum(longest(name) for name in ("debit", "credit", "refund", "needs_a_person"))
    assert worst < machine["TimeoutSeconds"]
