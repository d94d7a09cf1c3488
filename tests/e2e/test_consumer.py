"""The deployed consumer of a standard queue: from SQS by Lambda to DynamoDB, every message once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.deployed import eventually

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed


@pytest.fixture(scope="module")
def stubborn(deployed: Deploy) -> Deployed:
    """The same consumer, whose ledger fails as a transfer's id says."""
    return deployed("stubborn", stubborn=True)


@pytest.mark.slow
def test_a_transfer_goes_from_the_queue_to_the_ledger_once(bank: Deployed) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    transfer = bank.transfer(payer, payee, 30)

    (id,) = bank.send(transfer)

    record = bank.settled(id)
    bank.drained()
    assert bank.entries(transfer) == {payer: -30, payee: +30}
    assert (bank.balance(payer), bank.balance(payee)) == (70, 30)
    assert json.loads(record["data"]) == {"posted": transfer["transfer_id"]}
    assert record["attempts"] == 1


@pytest.mark.slow
def test_with_dead_letters_at_once_what_fails_for_good_lies_there_after_one_run_with_its_reason(
    at_once: Deployed,
) -> None:
    bank = at_once
    payer, payee = bank.new_account(10), bank.new_account(0)
    overdrawn = bank.transfer(payer, payee, 11)
    unknown = bank.transfer(payer, "nobody", 1)
    fraction = {**bank.transfer(payer, payee, 1), "amount": "0.5"}
    good = bank.transfer(payer, payee, 1)
    bodies = [json.dumps(overdrawn), json.dumps(unknown), json.dumps(fraction), "{not JSON", json.dumps(good)]

    ids = bank.send(*bodies)

    letters = [bank.dead_letter(id) for id in ids[:4]]
    bank.drained()
    assert [letter.message["Body"] for letter in letters] == bodies[:4]
    assert [letter.stamp["reason"] for letter in letters] == [
        f"account {payer} is unknown or cannot pay 11 USD",
        "account nobody is unknown or not in USD",
        "the body is not a Transfer: amount: int_type",
        "the body is not a Transfer: body: json_invalid",
    ]
    assert [letter.stamp["error_type"] for letter in letters] == ["PermanentError"] * 2 + ["InvalidBody"] * 2
    for id, letter in zip(ids, letters, strict=False):
        assert letter.stamp["key"] == letter.stamp["original_id"] == id
        assert letter.stamp["function"] == bank.stack.outputs["ConsumerName"]
        record = bank.settled(id, "FAILED")
        assert json.loads(record["error"])["text"] == letter.stamp["reason"]
    # The good one beside them went through, and is the only one that did.
    assert bank.settled(ids[4])["attempts"] == 1
    assert (bank.balance(payer), bank.balance(payee)) == (9, 1)
    assert [bank.entries(each) for each in (overdrawn, unknown, fraction)] == [{}, {}, {}]


@pytest.mark.slow
def test_a_failure_that_may_pass_comes_again_after_its_backoff(stubborn: Deployed) -> None:
    payer, payee = stubborn.new_account(100), stubborn.new_account(0)
    transfer = stubborn.transfer(payer, payee, 30, kind="fails1")

    (id,) = stubborn.send(transfer)

    failed = stubborn.settled(id, "FAILED")
    assert json.loads(failed["error"])["type"] == "ConnectionError"
    assert "away" not in failed["error"], "only a PermanentError's text is kept"
    # The queue alone would have hidden it for four minutes; the first backoff ends within four seconds.
    record = stubborn.settled(id, seconds=15)
    stubborn.drained()
    assert record["attempts"] == 2
    assert stubborn.entries(transfer) == {payer: -30, payee: +30}
    assert stubborn.dead_letters() == []


def test_it_runs_behind_a_queue_of_ones_own(deployed: Deploy, aws: Any) -> None:
    sqs = aws.client("sqs")
    dead = sqs.create_queue(QueueName="own-dead-letters")["QueueUrl"]
    policy = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 2}
    settings = {"VisibilityTimeout": "120", "RedrivePolicy": json.dumps(policy)}
    own = sqs.create_queue(QueueName="own-queue", Attributes=settings)["QueueUrl"]
    given = {"QueueArn": arn_of(sqs, own), "DeadLetterQueueArn": arn_of(sqs, dead)}
    bank = deployed("guest", edits=["A queue that you already have"], **given)
    assert not {"Queue", "DeadLetterQueue"} & bank.stack.resources.keys()
    payer, payee = bank.new_account(100), bank.new_account(0)

    good, bad = bank.send(bank.transfer(payer, payee, 30), bank.transfer(payer, payee, 1000))

    bank.settled(good)
    look = {"QueueUrl": dead, "WaitTimeSeconds": 1}
    (letter,) = eventually(lambda: sqs.receive_message(**look).get("Messages", []), what="SQS has moved it")
    assert letter["MessageId"] == bad
    assert "cannot pay" in bank.settled(bad, "FAILED")["error"]
    assert (bank.balance(payer), bank.balance(payee)) == (70, 30)


def arn_of(sqs: Any, url: str) -> str:
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
    return str(found["QueueArn"])
