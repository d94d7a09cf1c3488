"""Dead letters that had no end: of queues that are gone, and with messages that never go."""

from __future__ import annotations

import json

import pytest

from idempotent_receiver.operations.cli.terminal import Exit
from tests.unit.operations.cli.stack import ARN, FLAKY, LASTING, LONG_AGO_MS, Receiver, Stack, denied


def from_queue(stack: Stack, arn: str) -> str:
    """A dead letter that its stamp says came from this queue; returns its messageId."""
    stamp = json.dumps({"key": arn, "original_id": arn, "queue": arn})
    attributes = {"idempotent-receiver": {"DataType": "String", "StringValue": stamp}}
    sent = stack.sqs.send_message(QueueUrl=stack.dead, MessageBody="b", MessageAttributes=attributes)
    return str(sent["MessageId"])


@pytest.mark.parametrize("verb", ["archive", "delete"])
@pytest.mark.parametrize("name", ["gone", "gone.fifo"])
def test_what_came_from_a_queue_that_is_gone_ends_by_its_id_or_its_groups_name(
    receiver: Receiver, stack: Stack, verb: str, name: str
) -> None:
    stack.queues("others")
    gone, there = from_queue(stack, f"{ARN}:{name}"), from_queue(stack, f"{ARN}:others")
    line = f"dlq {verb} --because test --yes --json"
    unnamed = receiver.on(line.replace("delete", "delete --all"), "--since", "1h").json if verb == "archive" else None
    if unnamed is not None:
        (why,) = (each["why"] for each in unnamed["left"] if each["message_id"] == gone)
        assert "select it with --message-id or --group other-queue" in why

    by_group = receiver.on(f"{line} --group other-queue").json

    done = "archived" if verb == "archive" else "deleted"
    assert (by_group[done], [each["message_id"] for each in by_group["left"]]) == (1, [there])
    assert "once that queue is gone" in by_group["left"][0]["why"]
    again = from_queue(stack, f"{ARN}:{name}")
    assert receiver.on(f"{line} --message-id {again}").json[done] == 1
    assert receiver.on(f"{line} --message-id {there}").code == Exit.LEFT


def test_a_plan_tells_what_goes_of_a_verdict_from_what_stays(receiver: Receiver, stack: Stack) -> None:
    stack.queues("others")
    for name in ("gone", "others"):
        from_queue(stack, f"{ARN}:{name}")
    shown = receiver.on("dlq delete --group other-queue --because test").said
    assert "1 OTHER_QUEUE deleted permanently" in shown
    assert "1 OTHER_QUEUE stays: it came from another queue" in shown


@pytest.mark.parametrize(
    ("source", "gone"),
    [
        ("no queue at all", True),
        (f"{ARN}:{'n' * 81}", True),
        ("arn:aws:sqs:us-east-1:210987654321:gone", False),
        ("arn:aws:sqs:eu-west-1:123456789012:gone", False),
    ],
)
def test_only_a_queue_beside_this_one_can_be_known_to_be_gone(
    receiver: Receiver, stack: Stack, source: str, *, gone: bool
) -> None:
    """And a text that names no queue, which anyone can write into a message."""
    id = from_queue(stack, source)
    ran = receiver.on(f"dlq delete --message-id {id} --because test --yes --json").json
    assert ran["deleted"] == gone


def test_a_queue_that_may_not_be_looked_up_is_not_gone(receiver: Receiver, stack: Stack) -> None:
    id = from_queue(stack, f"{ARN}:gone")
    with denied("GetQueueUrl"):
        assert receiver.on(f"dlq delete --message-id {id} --because test --yes --json").json["deleted"] == 0


def test_delete_leaves_a_dead_letter_whose_messages_are_not_all_sent_and_says_what_ends_it(
    receiver: Receiver, stack: Stack
) -> None:
    ended = {"in_progress_expiration": LONG_AGO_MS, "expiration": LASTING}
    stack.record(FLAKY, "SENDING", "flaky", outbox='[{"QueueUrl":"https://example.com/q","MessageBody":"a"}]', **ended)

    assert receiver.on(f"dlq delete --key {FLAKY} --because test --yes").code == Exit.LEFT
    assert FLAKY in stack.keys_in(stack.dead)
