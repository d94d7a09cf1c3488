"""Pause and resume: Lambda stops reading a queue and reads it again, and the operator is told what that means."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from idempotent_receiver.operations.cli import pause
from idempotent_receiver.operations.cli.terminal import Exit
from idempotent_receiver.operations.mappings import DISABLED, ENABLED
from tests.unit.operations.cli.stack import Receiver, Stack, client, denied


def states(stack: Stack) -> dict[str, str]:
    """The state of each mapping of the queue, by its function."""
    found = client("lambda").list_event_source_mappings(EventSourceArn=stack.arn)["EventSourceMappings"]
    return {each["FunctionArn"].partition(":function:")[2]: each["State"] for each in found}


@pytest.mark.parametrize("pointed", ["--stack transfers", "--queue transfers"])
def test_it_resumes_and_pauses_by_stack_and_by_queue(receiver: Receiver, stack: Stack, pointed: str) -> None:
    for command, state in (("resume", ENABLED), ("pause", DISABLED)):
        ran = receiver(f"{command} {pointed} --yes --json")
        assert (ran.code, ran.json["confirmed"]) == (0, True)
        assert [(each["function"], each["state"]) for each in ran.json["mappings"]] == [("transfers", state)]
        assert states(stack) == {"transfers": state}


def test_nothing_is_paused_before_it_is_confirmed(receiver: Receiver, stack: Stack) -> None:
    for body in ("a", "b", "c"):
        stack.sqs.send_message(QueueUrl=stack.queue, MessageBody=body)
    stack.sqs.receive_message(QueueUrl=stack.queue)
    receiver.on("resume --yes")
    ran = receiver.on("pause")
    assert (ran.code, states(stack)) == (Exit.LEFT, {"transfers": ENABLED})
    told = receiver.on("pause --json").json
    assert (told["waiting"], told["in_flight"]) == (2, 1)


def test_what_is_paused_already_needs_no_confirmation(receiver: Receiver) -> None:
    assert (receiver.on("pause").code, receiver.on("pause --json").json["confirmed"]) == (Exit.OK, True)


def test_both_are_in_the_history_with_who_and_why(receiver: Receiver, stack: Stack) -> None:
    receiver.on("resume --yes --because 'the gateway is back'")
    receiver.on("pause --yes")
    acts = receiver.on(f"dlq history --key {stack.arn} --json").json["acts"]
    assert [(each["verb"], each["why"], each["outcome"]) for each in acts] == [
        ("resumed", "the gateway is back", "done"),
        ("paused", "", "done"),
    ]
    for each in acts:
        assert (each["key"], each["queue"], each["message_id"]) == (stack.arn, stack.arn, None)
        assert each["operator"].startswith("arn:aws:sts::123456789012:")
    assert "the gateway is back" in receiver.on("dlq history --verb resumed").out


def test_what_was_refused_or_takes_its_time_is_in_the_history_as_such(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    with denied("UpdateEventSourceMapping"):
        assert receiver.on("resume --yes").code == Exit.AWS
    monkeypatch.setattr(pause, "switch", lambda functions, mappings, **_: {each.id: "Enabling" for each in mappings})
    receiver.on("resume --yes")
    told = receiver.on("dlq history --json").json
    assert [(each["outcome"], each["code"]) for each in told["acts"]] == [
        ("refused", "AccessDeniedException"),
        ("unconfirmed", None),
    ]
    assert told["not_confirmed"] == 1


def test_a_history_that_cannot_be_written_keeps_nobody_from_pausing(receiver: Receiver, stack: Stack) -> None:
    with denied("BatchWriteItem"):
        ran = receiver.on("resume --yes")
    assert (ran.code, states(stack)) == (0, {"transfers": ENABLED})
    assert receiver("pause --queue transfers --yes").err == "", "nothing is said where no history is kept"


def test_of_several_functions_that_read_a_queue_one_has_to_be_named(receiver: Receiver, stack: Stack) -> None:
    stack.map("refunds")
    ran = receiver("resume --queue transfers --yes")
    assert (ran.code, ran.out) == (2, "")
    ran = receiver("resume --queue transfers --function refunds --yes")
    assert (ran.code, states(stack)) == (0, {"refunds": ENABLED, "transfers": DISABLED})


def test_with_a_stack_only_its_own_function_is_switched_and_others_are_named(receiver: Receiver, stack: Stack) -> None:
    stack.map("refunds")
    stack.outputs["ConsumerName"] = "transfers"
    ran = receiver.on("resume --yes")
    assert (ran.code, states(stack)) == (0, {"refunds": DISABLED, "transfers": ENABLED})


@pytest.mark.parametrize(
    ("interrupted", "code", "says"),
    [
        (False, Exit.LEFT, "Run the same command again."),
        (True, Exit.STOPPED, "Lambda takes up to two minutes"),
    ],
)
def test_what_has_not_got_there_is_said_with_what_to_do(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, interrupted: bool, code: Exit, says: str
) -> None:
    def switch(functions: Any, mappings: list[Any], **_: Any) -> dict[str, str]:
        if interrupted:
            signal.raise_signal(signal.SIGINT)
        return {each.id: "Enabling" for each in mappings}

    monkeypatch.setattr(pause, "switch", switch)
    ran = receiver.on("resume --yes")
    assert (ran.code, says in ran.err, "Not resumed yet: transfers (mapping " in ran.out) == (code, True, True)
    assert receiver.on("resume --yes --json").json["mappings"][0]["state"] == "Enabling"
