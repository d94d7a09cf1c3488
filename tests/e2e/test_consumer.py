"""The deployed consumer of a standard queue: from SQS by Lambda to DynamoDB, every message once."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.deployed import EVENTS, eventually

if TYPE_CHECKING:
    from tests.e2e.conftest import Deploy
    from tests.e2e.deployed import Deployed


@pytest.fixture(scope="module")
def stubborn(deployed: Deploy) -> Deployed:
    """The same consumer, whose ledger fails as a transfer's id says."""
    return deployed("stubborn", stubborn=True)


@pytest.fixture
def given(bank: Deployed) -> Deployed:
    """The bank, with the accounts that events/ presupposes as they are in the beginning."""
    for account in json.loads((EVENTS / "given" / "accounts.json").read_text()):
        bank.open_account(account["account_id"], account["balance"], account["currency"])
    return bank


def balances(bank: Deployed) -> dict[str, int]:
    return {name: bank.balance(name) for name in ("alice", "bob", "carol", "dora")}


def record_of(id: str, transfer: dict[str, Any], queue_arn: str, *, receives: int = 1) -> dict[str, Any]:
    """A message as Lambda hands it over."""
    return {
        "messageId": id,
        "receiptHandle": f"handle-{id}",
        "body": json.dumps(transfer),
        "attributes": {"ApproximateReceiveCount": str(receives), "SentTimestamp": "1800000000000"},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": queue_arn,
        "awsRegion": "us-east-1",
    }


@pytest.mark.slow
def test_a_transfer_goes_from_the_queue_to_the_ledger_once(bank: Deployed) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    transfer = bank.transfer(payer, payee, 30)

    (id,) = bank.send(transfer)

    record = bank.completed(id)
    bank.drained()
    assert bank.entries(transfer) == {payer: -30, payee: +30}
    assert (bank.balance(payer), bank.balance(payee)) == (70, 30)
    assert json.loads(record["data"]) == {"posted": transfer["transfer_id"]}
    assert record["attempts"] == 1


def test_a_message_delivered_again_after_it_was_done_is_acknowledged_and_posts_nothing(given: Deployed) -> None:
    first = given.invoke(given.recorded("fresh"))
    after_first = balances(given)

    again = given.invoke(given.recorded("fresh"))
    redelivered = given.invoke(given.recorded("redelivered"))

    assert (first.failed, again.failed, redelivered.failed) == ([], [], [])
    assert '"duplicates":3' in redelivered.log
    assert balances(given) == after_first == {"alice": 98825, "bob": 50950, "carol": 25225, "dora": 25000}


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
    assert [letter.body for letter in letters] == bodies[:4]
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
    assert bank.completed(ids[4])["attempts"] == 1
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
    # The queue alone would have hidden it for two minutes; the first backoff ends within four seconds.
    record = stubborn.completed(id, seconds=15)
    stubborn.drained()
    assert record["attempts"] == 2
    assert stubborn.entries(transfer) == {payer: -30, payee: +30}
    assert stubborn.dead_letters() == []


def test_a_message_whose_claim_is_live_waits_for_the_lease_and_is_then_taken_over(bank: Deployed) -> None:
    payer, payee = bank.new_account(100), bank.new_account(0)
    transfer = bank.transfer(payer, payee, 30)
    bank.pause()
    try:
        (id,) = bank.send(transfer)
        lease_ends = time.time() + 4  # a worker that claimed the message, and was never heard of again
        bank.put(
            "Records",
            {
                "id": id,
                "status": "INPROGRESS",
                "version": "the version of a worker that died",
                "attempts": 1,
                "expiration": int(lease_ends) + 86_400,
                "in_progress_expiration": int(lease_ends * 1000),
            },
        )
    finally:
        bank.resume()

    record = eventually(
        lambda: (time.time(), bank.record(id) or {}),
        lambda seen: seen[1]["status"] == "COMPLETED",
        what="the message is taken over",
    )

    assert record[0] >= lease_ends, "it ran inside another's live lease"
    assert record[1]["attempts"] == 2
    bank.drained()
    assert bank.entries(transfer) == {payer: -30, payee: +30}


def test_it_runs_behind_a_queue_of_ones_own(deployed: Deploy, aws: Any) -> None:
    sqs = aws.client("sqs")
    arns = []
    for name in ("own-queue", "own-dead-letters"):
        url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "120"})["QueueUrl"]
        arns.append(sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])
    bank = deployed("guest", QueueArn=arns[0], DeadLetterQueueArn=arns[1], DeadLetterAtOnce="true")
    assert "Queue" not in bank.stack.resources
    payer, payee = bank.new_account(100), bank.new_account(0)

    good, bad = bank.send(bank.transfer(payer, payee, 30), bank.transfer(payer, payee, 1000))

    bank.completed(good)
    assert "cannot pay" in bank.dead_letter(bad).stamp["reason"]
    assert (bank.balance(payer), bank.balance(payee)) == (70, 30)
