"""What cannot be meant is refused in a line, with the option to correct, and nothing is done."""

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
from tests.unit.operations.cli.stack import COMMANDS, DEAD, DONE, FLAKY, Receiver, Stack, denied

if TYPE_CHECKING:
    from pathlib import Path

NOWHERE = "https://sqs.us-east-1.amazonaws.com/123456789012/nosuch"
BOTH = "--queue transfers --table records"
SWITCHES = ("--dlq transfers-dead", "--table records", "--consumer ids.json")
KEYS = f"{BOTH} --consumer ids.json"
CHOICES: dict[str, str] = {
    "--since yesterday": "--since yesterday is not a time",
    "--until 2026-13-01": "--until 2026-13-01 is not a time",
    "--until 0001-01-01T00:00+02:00": "--until 0001-01-01T00:00+02:00 is not a time",
    "--since -2h": "--since -2h is not a time",
    "--since '2 h'": "--since 2 h is not a time",
    "--since 999999d": "--since 999999d is not a time",
    "--until 5": "--until 5 is not a time",
    "--since 1h --until 2h": "--until 2h is before --since 1h",
    "--group ''": "--group is empty",
    "--key k --key ''": "--key is empty",
    "--matching ''": "--matching is empty",
    "--since ''": "--since is empty",
}
EMPTY = ("stack", "queue", "dlq", "table", "consumer", "region", "profile", "endpoint-url")
BODIES: dict[str, tuple[bytes | None, str]] = {
    "a folder": (None, "Is a directory"),
    "empty": (b"", "is empty"),
    "only a byte order mark": (b"\xef\xbb\xbf", "is empty"),
    "2 MiB": (b"x" * 2 * 1024 * 1024, "exceeds SQS's limit of 1 MiB"),
    "binary": (b"\x89PNG\r\n", "is not UTF-8 text"),
    "UTF-16": ("{}".encode("utf-16"), "is not UTF-8 text"),
    "a control character": (b'{"a":\n "\x00"\n}', "has the character U+0000 in line 2"),
}
DELETES: dict[str, str] = {
    "--all": "--because is missing",
    "--all --because ''": "--because is empty",
    "--all --because ' \t\n'": "--because is empty",
    "--because test": "no dead letters are selected",
    "--because test --limit 1": "no dead letters are selected",
    "--because test --all --group done": "--all means every dead letter: it takes no filter",
    "--because test --all --plan plan.json": "--all means every dead letter: it takes no filter",
    "--because test --group ''": "--group is empty",
}
REFUSED: list[tuple[str, str]] = [
    # Which consumer.
    ("trace k", "give --stack or --table"),
    ("trace k --stack nosuch", "there is no stack nosuch in this account and region: correct --stack"),
    ("trace k --table arn:aws:dynamodb", "not a DynamoDB table name"),
    (f"dlq list {BOTH}", "give --stack or --consumer"),
    (f"dlq list --queue transfers-dead {BOTH[18:]}", "name the dead-letter queue with --dlq"),
    ("dlq list --stack transfers --endpoint-url nonsense", "--endpoint-url nonsense"),
    ("dlq list --stack transfers --profile nobody", "(nobody) could not be found: correct --profile"),
    ("dlq list --limit 0", "--limit"),
    ("dlq nothing", "No such command"),
    ("pause", "give --stack or --queue"),
    ("pause --queue transfers --function refunds", "function refunds does not read queue transfers"),
    *(
        (f"{command} --table nosuch", "there is no table nosuch in this account and region: correct --table")
        for command in ("trace k", "stuck --yes", "doctor --function f", "dlq redrive --stack transfers --yes")
    ),
    *(
        (
            f"dlq {command} --stack transfers {option} {url}",
            f"there is no queue {url} in this account and region: {how}",
        )
        for command in ("list", "redrive")
        for option in ("--queue", "--dlq")
        for url, how in ((NOWHERE, f"correct {option}"), ("nosuch", f"correct {option}"))
    ),
    ("doctor --stack nosuch", "there is no stack nosuch in this account and region: correct --stack"),
    ("doctor --function nosuch", "nosuch in this account and region: correct --function"),
    ("doctor --function consumer --dlq dead", "doctor takes no --dlq:"),
    ("doctor --queue transfers --function consumer", "give --function or --queue, not both"),
    ("doctor --queue transfers --stack transfers", "give --stack or --queue, not both"),
    ("doctor --stack transfers --function consumer", "give --stack or --function, not both"),
    ("doctor", "no consumer is selected: give --stack, --function, or --queue and --table"),
    *((f"dlq list --{option} ''", f"--{option} is empty") for option in EMPTY),
    *((f"{command} --stack ''", "--stack is empty") for command in ("trace k", "stuck --yes", "dlq redrive", "doctor")),
    ("trace '' --stack transfers", "KEY is empty"),
    ("dlq history --key '' --stack transfers", "--key is empty"),
    ("pause --function '' --stack transfers --yes", "--function is empty"),
    *(
        (f"{command} --stack transfers --queue transfers-dead --yes", "transfers-dead is not the queue of stack")
        for command in ("pause", "dlq redrive --dlq transfers-dead")
    ),
    # Which dead letters.
    *((f"dlq list --stack transfers {given}", says) for given, says in CHOICES.items()),
    ("dlq redrive --stack transfers --yes --since yesterday", "--since yesterday is not a time"),
    ("dlq history --stack transfers --since yesterday", "--since"),
    ("dlq history --stack transfers --since 1h --until 2h", "--until"),
    *(
        (f"dlq {line} --plan p --stack transfers --yes {given}", f"omit {given.partition(' ')[0]}")
        for line, options in {
            "redrive": ("--group g", "--limit 1", "--include-permanent", "--force", "--since 2h", "--save-plan x"),
            "redrive --because why": ("--from-archive", "--to-dlq", "--message-id m", "--matching m"),
            "resend": ("--key k", "--force"),
            "archive": ("--until 2h", "--error-type E"),
            "delete --because why": ("--key k",),
        }.items()
        for given in options
    ),
    *(
        (f"dlq redrive --stack transfers --yes {given}", "--to-dlq needs --from-archive and excludes --wait")
        for given in ("--to-dlq", "--from-archive --to-dlq --wait", "--from-archive --to-dlq --wait=5")
    ),
    (f"dlq resend --key {FLAKY} --stack transfers --yes", "give --body FILE with the complete new body"),
    ("dlq resend --body body.json --stack transfers --yes", "4 dead letters match, but resend takes one"),
    ("dlq redrive --plan nowhere --stack transfers --yes", "nowhere: No such file or directory"),
    *(
        (f"dlq list --stack transfers --out {name}", f"--out {name}{says}")
        for name, says in {
            "nosuch/page.html": ": No such file or directory",
            "letters.csv": ": the name must end in .html for a page, or .jsonl for JSON lines",
            "letters": ": the name must end in .html",
            ".jsonl": ": the name must end in .html",
        }.items()
    ),
    *(
        (f"dlq {command} --stack transfers --archive nosuch --yes", "there is no bucket nosuch in this account")
        for command in ("archive", "redrive --from-archive")
    ),
    # What a trace reads beside.
    *(
        (f"trace {DONE} --stack transfers --hook '{hook}'", f"--hook {hook}")
        for hook in ("nosuch:entries", "json:nosuch", "json", "json:decoder", ":", "")
    ),
]


def refused(receiver: Receiver, stack: Stack, line: str, says: str) -> None:
    ran = receiver(line)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert says in ran.said
    assert "Traceback" not in ran.err
    assert stack.untouched()


@pytest.mark.parametrize(("given", "says"), DELETES.items())
def test_a_delete_without_a_reason_and_a_selection_deletes_nothing(
    receiver: Receiver, stack: Stack, given: str, says: str
) -> None:
    refused(receiver, stack, f"dlq delete --stack transfers --yes {given}", says)


@pytest.mark.parametrize(("line", "says"), REFUSED, ids=[line for line, _ in REFUSED])
def test_what_cannot_be_done_is_refused_by_its_option_and_nothing_is_done(
    receiver: Receiver, stack: Stack, line: str, says: str
) -> None:
    """An empty value comes of an unset variable of the shell, and would be taken for nothing said."""
    refused(receiver, stack, line, says)


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


@pytest.mark.parametrize(
    ("output", "line", "says"),
    [
        ("ConsumerDescription", "dlq list", "has no output ConsumerDescription: give --consumer"),
        ("ArchiveBucket", "dlq archive --yes", "has no output ArchiveBucket: give --archive"),
        ("ArchiveBucket", "dlq redrive --from-archive --yes", "has no output ArchiveBucket: give --archive"),
        ("HistoryTable", "dlq history", "has no output HistoryTable: give --history"),
        ("QueueUrl=nosuch", "dlq list", "stack transfers names it: correct the stack or give --queue"),
        ("DeadLetterQueueUrl=nosuch", "dlq list", "stack transfers names it: correct the stack or give --dlq"),
    ],
)
def test_what_a_stack_does_not_say_or_says_wrongly_is_no_options_fault(
    receiver: Receiver, stack: Stack, output: str, line: str, says: str
) -> None:
    name, _, wrong = output.partition("=")
    del stack.outputs[name]
    stack.outputs |= {name: NOWHERE} if wrong else {}
    ran = receiver.on(line)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert says in ran.said


def test_a_dead_letter_queue_that_only_the_redrive_policy_names_is_not_blamed_on_the_queue(
    receiver: Receiver, stack: Stack
) -> None:
    stack.sqs.delete_queue(QueueUrl=stack.dead)
    ran = receiver(f"dlq list {KEYS}")
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert f"there is no queue {stack.dead_arn} in" in ran.said
    assert f"the redrive policy of {stack.queue} names it: correct the policy or give --dlq" in ran.said


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


WITH_ARCHIVE = re.compile("archive|pause|resume")
UNUSED = [
    *((line, "--archive archive") for line in COMMANDS if not WITH_ARCHIVE.search(line)),
    *((line, "--history history") for line in ("dlq list", "dlq list --out some.jsonl")),
    *((f"{verb} --yes", option) for verb in ("pause", "resume") for option in (*SWITCHES, "--archive archive")),
    *(("doctor", option) for option in ("--dlq transfers-dead", "--archive archive", "--history history")),
]


@pytest.mark.parametrize(("line", "option"), UNUSED)
def test_an_option_that_a_command_would_ignore_is_refused(
    receiver: Receiver, stack: Stack, line: str, option: str
) -> None:
    """Whoever gives it expects it to count."""
    ran = receiver.on(f"{line} {option}")
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert f" takes no {option.split(maxsplit=1)[0]}: " in ran.said
    assert stack.untouched()


def test_trace_takes_no_dead_letter_queue_without_a_queue(receiver: Receiver) -> None:
    ran = receiver(f"trace {FLAKY} --table records --dlq transfers-dead")
    assert (ran.code, "takes no --dlq: give --queue or --stack as well" in ran.said) == (terminal.Exit.USAGE, True)


def test_without_its_extra_the_command_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "typer", None)
    monkeypatch.delitem(sys.modules, "idempotent_receiver.operations.cli.receiver")
    with pytest.raises(SystemExit) as ended:
        importlib.import_module("idempotent_receiver.operations.cli.receiver")
    assert ended.value.code == terminal.Exit.USAGE
    assert "pip install '.[cli]'" in capsys.readouterr().err
