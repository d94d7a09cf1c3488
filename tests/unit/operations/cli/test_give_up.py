"""`receiver stuck --send KEY --give-up N`: the end of a message that can never be sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from idempotent_receiver.clock import SystemClock
from idempotent_receiver.operations.cli import terminal
from idempotent_receiver.protocol.record import idempotency_key
from idempotent_receiver.transaction.outbox import Outgoing, to_text
from tests.unit.operations.cli.stack import ARN, LONG_AGO_MS, Receiver, Stack, answered, denied

KEY = "order-1"
GONE = "https://sqs.us-east-1.amazonaws.com/123456789012/gone"
SENT = '[null,{"QueueUrl":"https://example.com/q","MessageBody":"a"}]'
BECAUSE = "the queue was deleted, INC-7"
OPERATOR = "arn:aws:sts::123456789012:user/moto"


def unsent(stack: Stack, **attributes: Any) -> str:
    """A dead letter whose function took effect: its first message is for a queue that is gone, its second for another.
    Returns the other one.
    """
    (queue, _) = stack.queues("shipments")
    outbox = to_text([Outgoing(url, {"MessageBody": f"secret {url[-4:]}"}) for url in (GONE, queue)])
    lapsed = {"in_progress_expiration": LONG_AGO_MS, "owner": "w"}
    stack.record(KEY, **{"status": "SENDING", "outbox": outbox, **lapsed, **attributes})
    stack.bury(KEY)
    return queue


def give_up(receiver: Receiver, number: int = 1, *more: str) -> Any:
    return receiver.on(f"stuck --send {KEY} --give-up {number}", "--because", BECAUSE, "--yes", *more)


def item(stack: Stack) -> dict[str, Any]:
    found = stack.dynamodb.get_item(TableName="records", Key={"id": {"S": KEY}})["Item"]
    return {name: next(iter(value.values())) for name, value in found.items()}


def test_what_a_queue_that_is_gone_holds_up_comes_to_an_end(receiver: Receiver, stack: Stack) -> None:
    """From the letter that redrives again and again, to an empty dead-letter queue."""
    queue = unsent(stack)
    assert receiver.on(f"stuck --send {KEY} --yes").code == terminal.Exit.LEFT

    ran = give_up(receiver)

    assert ran.code == terminal.Exit.OK
    assert [each["Body"] for each in stack.received(queue)] == ["secret ents"]
    assert item(stack)["status"] == "COMPLETED"
    dropped = receiver.on(f"dlq redrive --key {KEY} --yes --json").json
    assert (dropped["plan"], dropped["dropped"]) == ({"DONE": 1}, 1)


def test_record_history_and_trace_keep_who_why_and_what_was_given_up(receiver: Receiver, stack: Stack) -> None:
    unsent(stack)
    assert give_up(receiver).code == 0

    gone = {"queue_url": GONE, "operator": OPERATOR, "why": BECAUSE}
    assert json.loads(item(stack)["outbox"]) == [{"GivenUp": gone}], "and no body"
    (act,) = receiver.on(f"dlq history --key {KEY} --json").json["acts"]
    told = (act["verb"], act["outcome"], act["operator"], act["why"], act["message_id"])
    what = f"message 1 to {GONE}"
    assert told == ("given-up", "done", OPERATOR, f"{what}: {BECAUSE}", f"{idempotency_key(KEY)}-1")
    assert act["queue"] == f"{ARN}:transfers"
    traced = receiver.on(f"trace {KEY} --json").json
    assert traced["record"]["given_up"] == [{"message": 1, **gone}]
    texts = [each["text"] for each in traced["events"]]
    assert f"{what} is never sent: {OPERATOR} gave it up: {BECAUSE}" in texts
    assert any(text.startswith(f"message {act['message_id']} given-up by {OPERATOR}: {what}") for text in texts)


def test_the_last_message_to_be_given_up_ends_the_record_and_nothing_is_sent(receiver: Receiver, stack: Stack) -> None:
    queue = unsent(stack)
    with denied("SendMessageBatch"):
        assert give_up(receiver, 1).code == terminal.Exit.LEFT
        ran = give_up(receiver, 2)
    assert ran.code == terminal.Exit.OK
    assert (item(stack)["status"], stack.received(queue)) == ("COMPLETED", [])
    assert [each["message"] for each in receiver.on(f"trace {KEY} --json").json["record"]["given_up"]] == [1, 2]


def test_what_is_left_beside_it_stays_to_be_sent(receiver: Receiver, stack: Stack) -> None:
    unsent(stack)
    with denied("SendMessageBatch"):
        ran = give_up(receiver, 1, "--json")
    assert (ran.code, ran.json["gave_up"], ran.json["sent"]) == (terminal.Exit.LEFT, 1, False)
    assert "message 2: " in ran.json["why"]
    assert item(stack)["status"] == "SENDING"
    assert receiver.on(f"stuck --send {KEY} --yes").code == 0, "without the one that was given up"


@pytest.mark.parametrize(
    ("number", "attributes", "why"),
    [
        (3, {}, "message 3 is not left to send (left: 1, 2)"),
        (1, {"in_progress_expiration": LONG_AGO_MS + 10**13}, "a worker holds its claim until"),
        (1, {"status": "COMPLETED"}, "its messages have already been sent"),
        (1, {"outbox": SENT}, "message 1 is not left to send"),
    ],
)
def test_what_is_not_left_to_send_or_is_being_sent_is_not_given_up(
    receiver: Receiver, stack: Stack, number: int, attributes: dict[str, Any], why: str
) -> None:
    """A worker whose lease is live may be sending it at this moment."""
    unsent(stack, **attributes)
    before = item(stack)
    ran = give_up(receiver, number)
    assert (ran.code, why in ran.out) == (terminal.Exit.LEFT, True)
    assert (item(stack), stack.acts) == (before, []), "nothing was begun"


def test_a_worker_that_takes_the_record_over_first_keeps_it(receiver: Receiver, stack: Stack) -> None:
    unsent(stack)
    live = SystemClock().epoch_ms() + 3_600_000

    def take_over(operation: str, arguments: dict[str, Any]) -> None:
        if operation == "BatchWriteItem" and "history" in arguments["RequestItems"]:
            stack.record(KEY, "SENDING", version="theirs", in_progress_expiration=live, outbox=item(stack)["outbox"])

    with answered(take_over):
        ran = give_up(receiver)
    assert (ran.code, "a worker holds its claim until" in ran.out) == (terminal.Exit.LEFT, True)
    assert "GivenUp" not in item(stack)["outbox"]
    assert [act["outcome"] for act in stack.acts] == ["refused"]


def test_without_a_history_that_can_be_written_nothing_is_given_up(receiver: Receiver, stack: Stack) -> None:
    unsent(stack)
    before = item(stack)
    with denied("BatchWriteItem"):
        assert give_up(receiver).code == terminal.Exit.AWS
    assert item(stack) == before


@pytest.mark.parametrize(
    "line",
    [
        f"stuck --send {KEY} --give-up 1",
        f"stuck --send {KEY} --because why",
        f"stuck --send {KEY} --give-up 1 --because ' '",
        "stuck --give-up 1 --because why",
        f"stuck --send {KEY} --give-up 0 --because why",
    ],
)
def test_giving_up_needs_a_key_a_number_and_a_reason(receiver: Receiver, stack: Stack, line: str) -> None:
    unsent(stack)
    assert receiver.on(f"{line} --yes").code == terminal.Exit.USAGE
    assert stack.acts == []


def test_giving_up_asks_first_and_names_the_queue(receiver: Receiver, stack: Stack, typed: Any) -> None:
    unsent(stack)
    typed("n\n")
    ran = receiver.on(f"stuck --send {KEY} --give-up 1", "--because", BECAUSE)
    assert (ran.code, stack.acts) == (terminal.Exit.LEFT, [])
