"""Which consumer is meant, and what is refused by the name of its option."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from idempotent_receiver.operations import account
from idempotent_receiver.operations.cli import terminal
from idempotent_receiver.payload import EVERYTHING, Document
from tests.template import rendering
from tests.unit.operations.cli.stack import DONE, Receiver, Stack


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["show", "k"], 2, "give --stack or --table"),
        (["show", "k", "--stack", "unknown"], 2, "there is no stack unknown"),
        (["show", "k", "--table", "arn:aws:dynamodb"], 2, "not a DynamoDB table's name"),
        (["show", "k", "--table", "missing"], 2, "there is no table missing"),
        (["show", "k", "--table", "records", "--namespace", "a#b"], 2, "--namespace: namespace 'a#b' has a '#'"),
        (["stuck", "--table", "missing", "--yes"], 2, "there is no table missing"),
        (["dlq", "list", "--queue", "transfers", "--table", "records"], 2, "--key-strategy, which is message_id"),
        (["dlq", "list", "--queue", "nowhere", "--table", "records"], 2, "there is no queue nowhere"),
        (["dlq", "list", "--queue", "transfers-dead", "--table", "records"], 2, "name it with --dlq"),
        (["dlq", "list", "--stack", "transfers", "--key-strategy", "guess"], 2, "guess is not known here"),
        (["show", "m-1", "--table", "records", "--key-strategy", "guess"], 2, "guess is not known here"),
        (["dlq", "list", "--stack", "transfers", "--key-strategy", "body_field:a-b c"], 2, "JMESPath"),
        (["dlq", "list", "--stack", "transfers", "--key-strategy", "body_field:id"], 2, "needs a namespace"),
        (["dlq", "list", "--stack", "transfers", "--envelope", "[["], 2, "--envelope"),
        (["dlq", "list", "--stack", "transfers", "--endpoint-url", "nonsense"], 2, "--endpoint-url nonsense"),
        (
            ["dlq", "list", "--stack", "transfers", "--profile", "nobody"],
            2,
            "(nobody) could not be found: correct --profile",
        ),
        (["dlq", "list", "--limit", "0"], 2, "--limit"),
        (["dlq", "nothing"], 2, "No such command"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line_and_without_a_traceback(
    receiver: Receiver, arguments: list[str], code: int, says: str
) -> None:
    ran = receiver(*arguments)
    assert (ran.code, ran.out) == (code, "")
    assert says in ran.err
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ("show", "k"),
        ("stuck", "--yes"),
        ("doctor", "--function", "consumer"),
        ("dlq", "list", "--stack", "transfers"),
        ("dlq", "redrive", "--stack", "transfers", "--yes"),
    ],
    ids=" ".join,
)
def test_a_table_that_does_not_exist_is_said_up_front_and_alike(receiver: Receiver, command: tuple[str, ...]) -> None:
    ran = receiver(*command, "--table", "nosuch")
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert ran.err == (
        "receiver: there is no table nosuch in this account and region: correct --table, or create it "
        "(see --region, --profile)\n"
    )


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--dlq", "transfers-dead"),
        ("--namespace", "bank"),
        ("--envelope", "detail"),
        ("--key-strategy", "message_id"),
    ],
)
def test_doctor_refuses_what_it_does_not_use(receiver: Receiver, option: str, value: str) -> None:
    ran = receiver("doctor", "--function", "consumer", option, value)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert f"doctor takes no {option}:" in ran.err


@pytest.mark.parametrize("other", [("--function", "consumer"), ("--stack", "transfers")])
def test_doctor_looks_at_one_consumer(receiver: Receiver, other: tuple[str, str]) -> None:
    ran = receiver("doctor", "--queue", "transfers", *other)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert f"give {other[0]} or --queue, not both" in ran.err


def test_doctor_takes_a_stack_or_a_function_and_not_both(receiver: Receiver) -> None:
    ran = receiver("doctor", "--stack", "transfers", "--function", "consumer")
    assert (ran.code, "give --stack or --function, not both" in ran.err) == (terminal.Exit.USAGE, True)


EMPTY = ("stack", "queue", "dlq", "table", "namespace", "key-strategy", "envelope", "region", "profile", "endpoint-url")


@pytest.mark.parametrize("option", EMPTY)
@pytest.mark.parametrize(
    "command", [("show", "k"), ("stuck", "--yes"), ("dlq", "list"), ("dlq", "redrive"), ("doctor",)]
)
def test_an_empty_value_is_refused_by_the_name_of_its_option(
    receiver: Receiver, command: tuple[str, ...], option: str
) -> None:
    """An unset variable of the shell comes as one, and would be taken for nothing said."""
    ran = receiver(*command, f"--{option}", "")
    said = f"receiver: --{option} is empty: give it a value, or leave it out\n"
    assert (ran.code, ran.out, ran.err) == (terminal.Exit.USAGE, "", said)


@pytest.mark.parametrize("days", ["-5", "0", "nan", "inf"])
def test_records_last_a_positive_number_of_days(receiver: Receiver, days: str) -> None:
    ran = receiver("show", DONE, "--table", "records", "--retention-days", days)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert f"--retention-days {days}: it has to be a positive number" in ran.err


def test_no_region_is_said_with_its_remedy(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(account, "boto3", boto3)
    ran = receiver("show", DONE, "--table", "records")
    said = "receiver: no AWS region: give --region, or set AWS_DEFAULT_REGION\n"
    assert (ran.code, ran.out, ran.err) == (terminal.Exit.USAGE, "", said)


@pytest.mark.parametrize(
    ("command", "option"),
    [
        (("show", "k", "--stack", "nosuch"), "--stack"),
        (("dlq", "list", "--stack", "transfers", "--queue", "nosuch"), "--queue"),
        (("dlq", "list", "--stack", "transfers", "--dlq", "nosuch"), "--dlq"),
        (("doctor", "--stack", "nosuch"), "--stack"),
        (("doctor", "--function", "nosuch"), "--function"),
    ],
)
def test_what_is_not_there_is_named_with_its_option(receiver: Receiver, command: tuple[str, ...], option: str) -> None:
    ran = receiver(*command)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert f"nosuch in this account and region: correct {option} (see --region, --profile)" in ran.err


NOWHERE = "https://sqs.us-east-1.amazonaws.com/123456789012/nosuch"


@pytest.mark.parametrize("option", ["--queue", "--dlq"])
@pytest.mark.parametrize("command", ["list", "redrive"])
def test_a_url_of_no_queue_is_named_with_its_option_too(receiver: Receiver, command: str, option: str) -> None:
    ran = receiver("dlq", command, "--stack", "transfers", option, NOWHERE)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert ran.err == (
        f"receiver: there is no queue {NOWHERE} in this account and region: correct {option} "
        "(see --region, --profile)\n"
    )


@pytest.mark.parametrize(("output", "option"), [("QueueUrl", "--queue"), ("DeadLetterQueueUrl", "--dlq")])
def test_a_queue_that_only_the_stack_names_is_no_options_fault(
    receiver: Receiver, stack: Stack, output: str, option: str
) -> None:
    stack.outputs[output] = NOWHERE
    ran = receiver("dlq", "list", "--stack", "transfers")
    assert ran.code == terminal.Exit.USAGE
    assert f"stack transfers names it: correct the stack, or give {option} (see" in ran.err


def test_a_dead_letter_queue_that_only_the_redrive_policy_names_is_not_blamed_on_the_queue(
    receiver: Receiver, stack: Stack
) -> None:
    stack.sqs.delete_queue(QueueUrl=stack.dead)
    flags = ("--queue", "transfers", "--table", "records", "--key-strategy", "message_id")
    ran = receiver("dlq", "list", *flags)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    said = " ".join(ran.err.split())
    assert f"there is no queue {stack.dead_arn} in" in said
    assert f"the redrive policy of {stack.queue} names it: correct that, or give --dlq" in said


def test_a_stack_that_does_not_name_its_key_strategy_is_not_guessed_at(receiver: Receiver, stack: Stack) -> None:
    del stack.outputs["KeyStrategy"]
    ran = receiver("dlq", "list", "--stack", "transfers")
    assert (ran.code, "has no output KeyStrategy: give --key-strategy" in ran.err) == (2, True)
    assert receiver("dlq", "list", "--stack", "transfers", "--key-strategy", "message_id").code == 0


@pytest.fixture
def nested(stack: Stack) -> Stack:
    """The same, as two consumers nested in the stack, and a nested stack that is none."""
    consumer = {**stack.outputs, "ConsumerName": "transfers"}
    stack.nested = {
        "Receiver": consumer,
        "Network": {"Vpc": "vpc-1"},
        "RefundsReceiver": {**consumer, "Namespace": "bank"},
    }
    stack.outputs = {"QueueUrl": stack.queue}
    return stack


def test_the_one_consumer_that_is_nested_in_a_stack_is_meant_by_its_name(receiver: Receiver, nested: Stack) -> None:
    del nested.nested["RefundsReceiver"]
    assert receiver("show", DONE, "--stack", "transfers").code == 0
    assert receiver("dlq", "list", "--stack", "transfers").code == 0


def test_of_several_consumers_in_a_stack_one_has_to_be_named(receiver: Receiver, nested: Stack) -> None:
    ran = receiver("show", DONE, "--stack", "transfers")
    assert (ran.code, ran.out) == (2, "")
    assert "2 consumers: give --stack transfers/Receiver or --stack transfers/RefundsReceiver" in ran.err
    assert receiver("show", DONE, "--stack", "transfers/Receiver").code == 0
    nested.record("bank#r-1", "COMPLETED", "x")
    assert receiver("show", "r-1", "--stack", "transfers/RefundsReceiver").code == 0


@pytest.mark.parametrize("name", ["Refunds", "Network", "Totals"])
def test_a_consumer_that_is_not_nested_in_the_stack_is_refused(receiver: Receiver, nested: Stack, name: str) -> None:
    ran = receiver("show", DONE, "--stack", f"transfers/{name}")
    assert (ran.code, ran.out) == (2, "")
    assert f"no consumer {name}: it has Receiver, RefundsReceiver" in ran.err


def test_the_shipped_template_names_what_the_command_looks_up() -> None:
    """And what it names is what the shipped consumer does."""
    outputs = rendering().rendered()["Outputs"]
    assert {"QueueUrl", "DeadLetterQueueUrl", "RecordsTable", "KeyStrategy"} <= set(outputs)
    source = Path("src/app/consumer.py").read_text()
    assert outputs["KeyStrategy"]["Value"] == "message_id"
    assert " key=" not in source
    assert "namespace=" not in source


def test_a_business_key_is_read_from_body_and_namespace(receiver: Receiver, stack: Stack) -> None:
    body = '{"transfer_id": "t-9"}'
    stack.record("bank#t-9", "COMPLETED", "x", validation=EVERYTHING.fingerprint(Document.of_text(body)))
    stack.bury("whatever", body)
    flags = ("--stack", "transfers", "--key-strategy", "body_field:transfer_id", "--namespace", "bank")
    told = receiver("dlq", "redrive", *flags, "--yes", "--key", "t-9", "--json").json
    assert (told["plan"], told["dropped"]) == ({"DONE": 1}, 1)


def test_without_its_extra_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "idempotent_receiver.operations.cli.receiver")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("idempotent_receiver.operations.cli.receiver")
    assert ended.value.code == terminal.Exit.USAGE
    assert "pip install '.[cli]'" in capsys.readouterr().err


def test_it_is_a_module_to_run() -> None:
    command = [sys.executable, "-m", "idempotent_receiver", "dlq", "redrive", "--help"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Usage: receiver dlq redrive" in ran.stdout
