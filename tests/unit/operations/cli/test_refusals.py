"""What cannot be meant is refused, and nothing is done; the transcripts have most of it, with the option to correct."""

from __future__ import annotations

import importlib
import os
import re
import sys
from typing import TYPE_CHECKING

import boto3
import pytest

from idempotent_receiver.operations import account
from idempotent_receiver.operations.cli import terminal
from tests.unit.operations.cli.stack import DEAD, FLAKY, Receiver, Stack, denied

if TYPE_CHECKING:
    from pathlib import Path

KEYS = "--queue transfers --table records --consumer ids.json"
BODIES: dict[str, tuple[bytes | None, str]] = {
    "a folder": (None, "Is a directory"),
    "empty": (b"", "is empty"),
    "only a byte order mark": (b"\xef\xbb\xbf", "is empty"),
    "2 MiB": (b"x" * 2 * 1024 * 1024, "exceeds SQS's limit of 1 MiB"),
    "binary": (b"\x89PNG\r\n", "is not UTF-8 text"),
    "UTF-16": ("{}".encode("utf-16"), "is not UTF-8 text"),
    "a control character": (b'{"a":\n "\x00"\n}', "has the character U+0000 in line 2"),
}


@pytest.mark.parametrize("line", ["dlq list --limit 0", "dlq nothing"])
def test_what_is_no_command_or_no_number_is_refused(receiver: Receiver, stack: Stack, line: str) -> None:
    """In the words of the parser's version."""
    ran = receiver(f"{line} --stack transfers")
    assert (ran.code, ran.out, stack.untouched()) == (terminal.Exit.USAGE, "", True)


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_sqs_does_not_take_is_refused(receiver: Receiver, stack: Stack, tmp_path: Path, kind: str) -> None:
    written, says = BODIES[kind]
    file = tmp_path / "new"
    file.mkdir() if written is None else file.write_bytes(written)
    ran = receiver.on(f"dlq resend --key {FLAKY} --body new --yes")
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert "--body new" in ran.err
    assert says in ran.err
    assert stack.untouched()


def test_a_dead_letter_queue_that_only_the_redrive_policy_names_is_not_blamed_on_the_queue(
    receiver: Receiver, stack: Stack
) -> None:
    stack.sqs.delete_queue(QueueUrl=stack.dead)
    ran = receiver(f"dlq list {KEYS}")
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert f"there is no queue {stack.dead_arn} in" in ran.said
    assert f"the redrive policy of {stack.queue} names it: correct the policy or give --dlq" in ran.said


@pytest.mark.parametrize("line", ["doctor --function consumer", "dlq list --queue transfers-dead"])
def test_a_stack_that_only_the_variable_selects_is_said_to_be(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    monkeypatch.setenv("RECEIVER_STACK", "transfers")
    ran = receiver(line)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert f"give --stack (RECEIVER_STACK is set) or {line.split()[-2]}, not both" in ran.said


def test_no_region_is_said_with_its_remedy(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(account, "boto3", boto3)
    ran = receiver("trace k --table records")
    assert (ran.code, ran.out, "--region or set AWS_DEFAULT_REGION" in ran.err) == (terminal.Exit.USAGE, "", True)


@pytest.mark.parametrize("unsaid", [False, True], ids=["", "though SQS does not say whose any queue is"])
def test_what_is_no_dead_letter_queue_of_the_consumer_keeps_its_messages(
    receiver: Receiver, stack: Stack, unsaid: bool
) -> None:
    live = stack.sqs.create_queue(QueueName="orders")["QueueUrl"]
    stack.sqs.send_message(QueueUrl=live, MessageBody="live")
    for command in ("dlq list", "dlq redrive --yes"):
        for given, says in (
            ("orders", f"orders may hold live messages: SQS lists no queue.*it names {stack.dead_arn}"),
            (stack.arn, "is the consumer's queue itself"),
        ):
            with denied("ListDeadLetterSourceQueues" if unsaid else "none"):
                ran = receiver.on(f"{command} --dlq {given}")
            assert ran.code == terminal.Exit.USAGE
            assert re.search(says, ran.said)
            assert ran.said.endswith("correct --dlq")
    (message,) = stack.received(live, AttributeNames=["All"])
    assert message["Attributes"]["ApproximateReceiveCount"] == "1", "nobody has received it before"
    assert stack.keys_in(stack.dead) == DEAD


def test_without_its_extra_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "idempotent_receiver.operations.cli.receiver")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("idempotent_receiver.operations.cli.receiver")
    assert ended.value.code == terminal.Exit.USAGE
    assert "pip install '.[cli]'" in capsys.readouterr().err
