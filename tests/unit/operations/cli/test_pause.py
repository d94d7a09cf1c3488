"""Pause and resume: Lambda stops reading a queue and reads it again, and the operator is told what that means."""

from __future__ import annotations

import io
import signal
from typing import Any, NoReturn

import pytest
from botocore.exceptions import ClientError

from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.operations.mappings import DISABLED, ENABLED, Mapping
from tests.unit.operations.cli.stack import Receiver, Stack, client

READ = ("--stack", "transfers", "--yes")


@pytest.fixture(autouse=True)
def nobody_agrees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is asked is refused."""
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))


def states(stack: Stack) -> dict[str, str]:
    """The state of each mapping of the queue, by its function."""
    found = client("lambda").list_event_source_mappings(EventSourceArn=stack.arn)["EventSourceMappings"]
    return {each["FunctionArn"].partition(":function:")[2]: each["State"] for each in found}


@pytest.mark.parametrize("pointed", [("--stack", "transfers"), ("--queue", "transfers")], ids=" ".join)
def test_it_resumes_and_pauses_by_stack_and_by_queue(
    receiver: Receiver, stack: Stack, pointed: tuple[str, str]
) -> None:
    for command, state in (("resume", ENABLED), ("pause", DISABLED)):
        ran = receiver(command, *pointed, "--yes", "--json")
        assert (ran.code, ran.json["confirmed"]) == (0, True)
        assert [(each["function"], each["state"]) for each in ran.json["mappings"]] == [("transfers", state)]
        assert states(stack) == {"transfers": state}


def test_it_says_what_becomes_of_the_messages_before_it_asks(receiver: Receiver, stack: Stack) -> None:
    receiver("resume", *READ)
    ran = receiver("pause", "--stack", "transfers")
    assert (ran.code, states(stack)) == (Exit.LEFT, {"transfers": ENABLED})
    assert "Pause? [y/N]" in ran.err
    assert "comes back after its visibility timeout, 30 s at most" in ran.out
    assert "SQS deletes a message 4 days after it was sent" in ran.out
    assert "Nothing was changed." in ran.out


def test_it_counts_what_waits_and_what_is_in_flight(receiver: Receiver, stack: Stack) -> None:
    for body in ("a", "b", "c"):
        stack.sqs.send_message(QueueUrl=stack.queue, MessageBody=body)
    stack.sqs.receive_message(QueueUrl=stack.queue)
    ran = receiver("pause", "--stack", "transfers")
    assert "About 2 messages waiting, 1 in flight." in ran.out
    told = receiver("pause", "--stack", "transfers", "--json").json
    assert (told["waiting"], told["in_flight"]) == (2, 1)


def test_what_is_paused_already_is_a_success_that_says_so(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("pause", "--stack", "transfers")
    assert (ran.code, ran.err) == (0, ""), "it does not ask either"
    assert ran.out.startswith("Already paused: transfers (mapping ")
    assert receiver("resume", *READ).code == 0
    assert receiver("resume", "--stack", "transfers").out.startswith("Already resumed: ")


def test_the_way_back_means_the_same_queue(receiver: Receiver) -> None:
    receiver("resume", *READ)
    ran = receiver("pause", "--queue", "transfers", "--function", "transfers", "--region", "us-east-1", "--yes")
    assert "receiver resume --queue transfers --function transfers --region us-east-1" in " ".join(ran.out.split())


def test_of_several_functions_that_read_a_queue_one_has_to_be_named(receiver: Receiver, stack: Stack) -> None:
    stack.map("refunds")
    ran = receiver("resume", "--queue", "transfers", "--yes")
    assert (ran.code, ran.out) == (2, "")
    told = " ".join(ran.err.split())
    assert "queue transfers is read by refunds (mapping " in told
    assert "give --function refunds or --function transfers" in told
    ran = receiver("resume", "--queue", "transfers", "--function", "refunds", "--yes")
    assert (ran.code, states(stack)) == (0, {"refunds": ENABLED, "transfers": DISABLED})
    assert "also read by transfers (mapping " in ran.err


def test_with_a_stack_only_its_own_function_is_switched_and_others_are_named(receiver: Receiver, stack: Stack) -> None:
    stack.map("refunds")
    stack.outputs["ConsumerName"] = "transfers"
    ran = receiver("resume", *READ)
    assert (ran.code, states(stack)) == (0, {"refunds": DISABLED, "transfers": ENABLED})
    assert "also read by refunds (mapping " in ran.err


def test_a_function_that_does_not_read_the_queue_is_refused(receiver: Receiver) -> None:
    ran = receiver("pause", "--queue", "transfers", "--function", "refunds")
    assert (ran.code, ran.out) == (2, "")
    assert "function refunds does not read queue transfers: it is read by transfers (mapping " in ran.err


def test_a_queue_that_only_containers_read_gets_a_clear_answer(receiver: Receiver, stack: Stack) -> None:
    """Nobody can see whether containers read it, so the answer says what to do if they do."""
    ran = receiver("pause", "--queue", stack.dead, "--yes")
    assert ran.code == Exit.LEFT
    assert "No event source mapping reads queue transfers-dead." in ran.out
    assert "If containers read the queue" in ran.out
    assert receiver("pause", "--queue", stack.dead, "--json").json["mappings"] == []


def test_without_a_stack_or_a_queue_it_says_what_to_give(receiver: Receiver) -> None:
    ran = receiver("pause")
    assert (ran.code, ran.err) == (2, "receiver: give --stack or --queue\n")


def test_what_has_not_got_there_is_said_with_what_to_do(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "idempotent_receiver.operations.cli.pause.switch",
        lambda functions, mappings, **_: {each.id: "Enabling" for each in mappings},
    )
    ran = receiver("resume", *READ)
    assert ran.code == Exit.LEFT
    assert "Not resumed yet: transfers (mapping " in ran.out
    assert "The same command waits for it again." in ran.err
    assert receiver("resume", *READ, "--json").json["mappings"][0]["state"] == "Enabling"


def test_a_ctrl_c_is_said_to_leave_the_change_to_lambda(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(functions: Any, mappings: list[Mapping], **_: Any) -> dict[str, str]:
        signal.raise_signal(signal.SIGINT)
        return {each.id: "Enabling" for each in mappings}

    monkeypatch.setattr("idempotent_receiver.operations.cli.pause.switch", interrupted)
    ran = receiver("resume", *READ)
    assert (ran.code, "Not resumed yet" in ran.out) == (Exit.STOPPED, True)
    assert "Lambda goes on with it" in ran.err


def test_what_the_operator_may_not_do_is_said_in_a_line(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> NoReturn:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "ListEventSourceMappings")

    monkeypatch.setattr("idempotent_receiver.operations.cli.pause.mappings_of", denied)
    ran = receiver("pause", *READ)
    assert (ran.code, ran.out) == (Exit.AWS, "")
    assert "ListEventSourceMappings operation: no (see " in ran.err
    assert "Traceback" not in ran.err
