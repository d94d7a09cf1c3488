"""`receiver dlq redrive --native`: SQS's own move, and its danger."""

from __future__ import annotations

import json
from contextlib import nullcontext
from signal import SIGINT, raise_signal
from typing import TYPE_CHECKING, Any

import pytest
from botocore.stub import ANY, Stubber

from idempotent_receiver.operations.cli import terminal
from idempotent_receiver.operations.cli.deployment import Deployment
from idempotent_receiver.operations.dead_letters import queue
from tests.unit.operations.cli.stack import REGION, Receiver, Stack, advised, one_session

if TYPE_CHECKING:
    from collections.abc import Iterator

NATIVE = "dlq redrive --native"
ENDED = {"native": True, "confirmed": True, "handle": "handle-1", "moved": 0, "failure": None}
DANGER = "what was done runs again"


@pytest.fixture
def sqs(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """A client of SQS that answers what it is stubbed to: moto has no move tasks, and no emulator has."""
    monkeypatch.setattr(queue, "POLL_SECONDS", 0)
    client, found = one_session().client("sqs"), Deployment.client
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


def stub_the_count(stubber: Stubber, stack: Stack) -> None:
    asked = {"QueueUrl": stack.dead, "AttributeNames": ANY}
    stubber.add_response("get_queue_attributes", {"Attributes": {"ApproximateNumberOfMessages": "7"}}, asked)


def stub_a_task(stubber: Stubber, stack: Stack, *tasks: dict[str, Any], **pace: int) -> None:
    stubber.add_response("list_dead_letter_source_queues", {"queueUrls": [stack.queue]}, {"QueueUrl": stack.dead})
    stub_the_count(stubber, stack)
    started = {"SourceArn": stack.dead_arn, "DestinationArn": stack.arn, **pace}
    stubber.add_response("start_message_move_task", {"TaskHandle": "handle-1"}, started)
    for task in tasks:
        listed = {"SourceArn": stack.dead_arn, "MaxResults": 1}
        stubber.add_response("list_message_move_tasks", {"Results": [task] if task else []}, listed)


def running(moved: int) -> dict[str, Any]:
    counts = {"ApproximateNumberOfMessagesMoved": moved, "ApproximateNumberOfMessagesToMove": 7}
    return {"Status": "RUNNING", "TaskHandle": "handle-1", **counts}


def test_a_native_redrive_is_watched_to_its_end_and_warns_where_the_key_is_the_message_id(
    receiver: Receiver, stack: Stack, sqs: Stubber, bars: list[Any]
) -> None:
    stub_a_task(sqs, stack, running(2), running(5), {"Status": "COMPLETED"}, MaxNumberOfMessagesPerSecond=20)
    ran = receiver.on(f"{NATIVE} --rate 20 --yes --json")
    assert (ran.code, ran.json, DANGER in ran.err) == (0, {**ENDED, "status": "COMPLETED"}, True)
    assert bars == [["moving", None, (2, 7), (5, 7), (0, None)]]
    sqs.assert_no_pending_responses()


def test_a_native_redrive_that_is_stopped_is_left_to_sqs(
    receiver: Receiver, stack: Stack, sqs: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub_a_task(sqs, stack, running(2))
    monkeypatch.setattr(terminal.Terminal, "progress", lambda *_: nullcontext(lambda *_: raise_signal(SIGINT)))
    ran = receiver.on(f"{NATIVE} --yes --json")
    assert (ran.code, ran.json) == (terminal.Exit.STOPPED, {**ENDED, "status": "RUNNING", "moved": 2})


def test_a_native_redrive_does_not_warn_where_the_key_is_of_the_business(
    receiver: Receiver, stack: Stack, sqs: Stubber
) -> None:
    stub_a_task(sqs, stack, {"Status": "COMPLETED"})
    ran = receiver.on(f"{NATIVE} --consumer transfers.json --yes")
    assert (ran.code, ran.err, ran.out) == (0, "", "COMPLETED: about 0 moved.\n")


def test_what_ends_a_native_redrive_is_for_the_same_account(
    receiver: Receiver, stack: Stack, sqs: Stubber, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "MAX_POLLS", 0)
    stub_a_task(sqs, stack, running(2))
    ran = receiver.on(f"{NATIVE} --region {REGION} --yes")
    ending = ["aws", "sqs", "cancel-message-move-task", "--task-handle", "handle-1", "--region", REGION]
    assert (ran.code, advised(ran.err)) == (terminal.Exit.STOPPED, [ending])


def test_a_native_redrive_asks_first_and_names_the_danger(receiver: Receiver, stack: Stack, sqs: Stubber) -> None:
    stub_a_task(sqs, stack)
    ran = receiver.on(f"{NATIVE} --json")
    _, _, question = ran.err.partition(DANGER)
    assert (ran.code, "about 7 dead letters? [y/N]" in question, DANGER in question) == (1, True, False)
    assert ran.json == {"native": True, "confirmed": False}


FAILED = {"Status": "FAILED", "FailureReason": "AccessDenied"}


@pytest.mark.parametrize(
    "case",
    [
        (FAILED, "", "FAILED: about 0 moved. AccessDenied\n"),
        (FAILED, "--json", {**ENDED, "status": "FAILED", "failure": "AccessDenied"}),
        ({}, "", "UNKNOWN: about 0 moved.\n"),
    ],
)
def test_a_native_redrive_that_fails_says_why(
    receiver: Receiver, stack: Stack, sqs: Stubber, case: tuple[dict[str, str], str, Any]
) -> None:
    task, form, told = case
    stub_a_task(sqs, stack, task)
    ran = receiver.on(f"{NATIVE} --yes {form}")
    assert (ran.code, ran.json if form else ran.out) == (3, told)


def test_a_native_redrive_of_a_shared_queue_is_refused(receiver: Receiver, stack: Stack, sqs: Stubber) -> None:
    others = [f"https://sqs.us-east-1.amazonaws.com/123456789012/{name}" for name in ("others", "refunds")]
    sqs.add_response("list_dead_letter_source_queues", {"queueUrls": [stack.queue, *others]}, {"QueueUrl": stack.dead})
    ran = receiver.on(f"{NATIVE} --yes")
    assert (ran.code, f"dead letters of {', '.join(others)} too" in ran.said) == (2, True)


def test_a_native_redrive_says_so_where_sqs_does_not_say_whose_queue_it_is(
    receiver: Receiver, stack: Stack, sqs: Stubber
) -> None:
    sqs.add_client_error("list_dead_letter_source_queues", "AccessDenied")
    stub_the_count(sqs, stack)
    ran = receiver.on(NATIVE)
    assert (ran.code, "moved" in ran.out) == (1, True)
    assert "SQS moves dead letters of other queues too, if any come here." in ran.err
    assert "allow sqs:ListDeadLetterSourceQueues on it" in ran.said
