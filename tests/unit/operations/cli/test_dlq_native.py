"""`receiver dlq redrive --native`: SQS's own move, and its danger."""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from botocore.stub import Stubber

from idempotent_receiver.operations.cli import terminal
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.dead_letters import queue
from tests.unit.operations.cli.stack import NOT_SAID, REGION, Receiver, Stack, advised, one_session

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def move_tasks(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """A client of SQS that answers what it is stubbed to: moto has no move tasks, and no emulator has."""
    monkeypatch.setattr(queue, "POLL_SECONDS", 0)
    client = one_session().client("sqs")
    found = Deployment.client
    monkeypatch.setattr(
        Deployment, "client", lambda self, service: client if service == "sqs" else found(self, service)
    )
    with Stubber(client) as stubber:
        policy = json.dumps({"deadLetterTargetArn": stack.dead_arn})
        for url, told in (
            (stack.queue, {"QueueArn": stack.arn, "RedrivePolicy": policy}),
            (stack.dead, {"QueueArn": stack.dead_arn}),
        ):
            asked = {"QueueUrl": url, "AttributeNames": ["QueueArn", "RedrivePolicy"]}
            stubber.add_response("get_queue_attributes", {"Attributes": told}, asked)
        yield stubber


def stub_a_task(stubber: Stubber, stack: Stack, *tasks: dict[str, Any], **pace: int) -> None:
    stubber.add_response("list_dead_letter_source_queues", {"queueUrls": [stack.queue]}, {"QueueUrl": stack.dead})
    stubber.add_response("get_queue_attributes", {"Attributes": {"ApproximateNumberOfMessages": "7"}})
    started = {"SourceArn": stack.dead_arn, "DestinationArn": stack.arn, **pace}
    stubber.add_response("start_message_move_task", {"TaskHandle": "handle-1"}, started)
    for task in tasks:
        listed = {"SourceArn": stack.dead_arn, "MaxResults": 1}
        stubber.add_response("list_message_move_tasks", {"Results": [task]}, listed)


def running(moved: int) -> dict[str, Any]:
    return {
        "Status": "RUNNING",
        "ApproximateNumberOfMessagesMoved": moved,
        "ApproximateNumberOfMessagesToMove": 7,
        "TaskHandle": "handle-1",
    }


def test_a_native_redrive_is_watched_to_its_end_and_warns_where_the_key_is_the_message_id(
    receiver: Receiver, stack: Stack, move_tasks: Stubber
) -> None:
    over = {"Status": "COMPLETED", "ApproximateNumberOfMessagesMoved": 7}
    stub_a_task(move_tasks, stack, running(2), running(5), over, MaxNumberOfMessagesPerSecond=20)
    ran = receiver("dlq", "redrive", "--native", "--rate", "20", "--stack", "transfers", "--yes", "--json")
    assert (ran.code, ran.json["status"], ran.json["moved"]) == (0, "COMPLETED", 7)
    assert "what was done runs again" in ran.err
    move_tasks.assert_no_pending_responses()


def test_what_ends_a_native_redrive_is_for_the_same_account(
    receiver: Receiver, stack: Stack, move_tasks: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_POLLS", 0)
    stub_a_task(move_tasks, stack, running(2))
    ran = receiver("dlq", "redrive", "--native", "--region", REGION, "--stack", "transfers", "--yes")
    ending = ["aws", "sqs", "cancel-message-move-task", "--task-handle", "handle-1", "--region", REGION]
    assert (ran.code, advised(ran.err)) == (terminal.Exit.STOPPED, [ending])


def test_a_native_redrive_asks_first_and_names_the_danger(
    receiver: Receiver, stack: Stack, move_tasks: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    stub_a_task(move_tasks, stack)
    ran = receiver("dlq", "redrive", "--native", "--stack", "transfers")
    assert ran.code == 1
    assert re.search(r"what was done runs again\..*about 7 dead letters\? \[y/N\]", ran.err, re.DOTALL)
    assert ran.err.count("what was done runs again") == 1


def test_a_native_redrive_does_not_warn_where_the_key_is_of_the_business(
    receiver: Receiver, stack: Stack, move_tasks: Stubber
) -> None:
    stub_a_task(move_tasks, stack, {"Status": "COMPLETED"})
    flags = ("--key-strategy", "body_field:transfer_id", "--stack", "transfers", "--yes")
    ran = receiver("dlq", "redrive", "--native", *flags)
    assert (ran.code, ran.err) == (0, "")


def test_a_native_redrive_that_fails_says_why(receiver: Receiver, stack: Stack, move_tasks: Stubber) -> None:
    stub_a_task(move_tasks, stack, {"Status": "FAILED", "FailureReason": "AccessDenied"})
    ran = receiver("dlq", "redrive", "--native", "--stack", "transfers", "--yes")
    assert (ran.code, "FAILED" in ran.out, "AccessDenied" in ran.out) == (3, True, True)


def test_a_native_redrive_of_a_shared_queue_is_refused(receiver: Receiver, stack: Stack, move_tasks: Stubber) -> None:
    both = {"queueUrls": [stack.queue, "https://sqs.us-east-1.amazonaws.com/123456789012/others"]}
    move_tasks.add_response("list_dead_letter_source_queues", both, {"QueueUrl": stack.dead})
    ran = receiver("dlq", "redrive", "--native", "--stack", "transfers", "--yes")
    assert (ran.code, "others" in ran.err) == (2, True)


def test_a_native_redrive_says_so_where_sqs_does_not_say_whose_queue_it_is(
    receiver: Receiver, stack: Stack, move_tasks: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    move_tasks.add_client_error("list_dead_letter_source_queues", "AccessDenied")
    move_tasks.add_response("get_queue_attributes", {"Attributes": {"ApproximateNumberOfMessages": "7"}})
    ran = receiver("dlq", "redrive", "--native", "--stack", "transfers")
    assert ran.code == 1
    assert "SQS moves dead letters of other queues too, if any come here." in ran.err
    assert NOT_SAID in " ".join(ran.err.split())


@pytest.mark.parametrize("given", [("--reason", "x"), ("--until", "2h"), ("--limit", "1"), ("--plan", "plan.json")])
def test_a_native_redrive_takes_no_filter(receiver: Receiver, given: tuple[str, ...]) -> None:
    ran = receiver("dlq", "redrive", "--native", *given, "--stack", "transfers", "--yes")
    assert (ran.code, f"--native moves everything: it takes no {given[0]}" in ran.err) == (2, True)
