"""The operator's command: every one has help, an example that runs, and an answer for people and for scripts."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import pty
import re
import select
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from moto import mock_aws
from rich.console import Console

from idempotent_receiver import MemoryStore, Message, PermanentError, Transaction, message_id, sqs_consumer
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations import account
from idempotent_receiver.operations.cli import dlq, dlq_report, documentation, records, terminal
from idempotent_receiver.operations.cli import receiver as command_line
from idempotent_receiver.operations.cli.deployment import Deployment, Options
from idempotent_receiver.operations.dead_letters import following, queue
from idempotent_receiver.operations.dead_letters.dead_letter import Reader
from idempotent_receiver.operations.dead_letters.triage import Rules, Verdict, triage
from idempotent_receiver.operations.scan import pages as pages_of
from idempotent_receiver.payload import EVERYTHING, Document
from idempotent_receiver.protocol.record import DEFAULT_RETENTION_SECONDS, from_attributes
from idempotent_receiver.sqs.dead_letter import STAMP, Stamp, stamp_of
from idempotent_receiver.testing import sqs_event
from tests.contexts import Context
from tests.manual_clock import ManualClock
from tests.template import rendering

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "us-east-1"
LASTING = 4_000_000_000
LONG_AGO_MS = 1_700_000_000_000
DONE, FLAKY, CLOSED, CONFLICT, STUCK = (f"5f2c1d64-000{n}-4000-8000-000000000001" for n in range(1, 6))

# One for all: reading AWS's service models is most of the time that a client takes to make.
SESSION = boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION)
OUTPUTS = {
    "RecordsTable": "records",
    "KeyStrategy": "message_id",
    "HistoryTable": "history",
    "ArchiveBucket": "archive",
}


@dataclass(frozen=True)
class Ran:
    """What came of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its answer: one document and nothing else."""
        return json.loads(self.out)


class CloudFormation:
    """One stack, `transfers`, and what is nested in it.

    moto's CloudFormation wants more than this project has installed.
    """

    def __init__(self, outputs: dict[str, str], nested: dict[str, dict[str, str]]) -> None:
        self.stacks = {"transfers": outputs, **{f"arn:aws:{id}": told for id, told in nested.items()}}

    def describe_stacks(self, *, StackName: str) -> Any:  # noqa: N803  # boto3's name
        if StackName not in self.stacks:
            error = {"Code": "ValidationError", "Message": f"Stack with id {StackName} does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")
        outputs = [{"OutputKey": name, "OutputValue": value} for name, value in self.stacks[StackName].items()]
        return {"Stacks": [{"StackName": StackName, "Outputs": outputs}]}

    def describe_stack_resources(self, *, StackName: str) -> Any:  # noqa: N803  # boto3's name
        assert StackName == "transfers"
        kind, arns = "AWS::CloudFormation::Stack", [arn for arn in self.stacks if arn.startswith("arn:")]
        made = [
            {"LogicalResourceId": arn.split(":")[-1], "PhysicalResourceId": arn, "ResourceType": kind} for arn in arns
        ]
        table = {"LogicalResourceId": "Totals", "PhysicalResourceId": "totals", "ResourceType": "AWS::DynamoDB::Table"}
        return {"StackResources": [table, *made]}


@cache
def client(service: str) -> Any:
    """A client for all tests to look round with; what is tested makes its own."""
    return SESSION.client(service)


class Stack:
    """A stack named `transfers`, and what lies in its queues and its table."""

    def __init__(self) -> None:
        self.sqs, self.dynamodb = client("sqs"), client("dynamodb")
        self.dead = self.sqs.create_queue(QueueName="transfers-dead")["QueueUrl"]
        self.dead_arn = f"arn:aws:sqs:{REGION}:123456789012:transfers-dead"
        policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": self.dead_arn, "maxReceiveCount": 5})}
        self.queue = self.sqs.create_queue(QueueName="transfers", Attributes=policy)["QueueUrl"]
        self.arn = f"arn:aws:sqs:{REGION}:123456789012:transfers"
        self.dynamodb.create_table(
            TableName="records",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        )
        self.dynamodb.create_table(
            TableName="history",
            BillingMode="PAY_PER_REQUEST",
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("key", "act")],
            KeySchema=[{"AttributeName": "key", "KeyType": "HASH"}, {"AttributeName": "act", "KeyType": "RANGE"}],
        )
        client("s3").create_bucket(Bucket="archive")
        self.map("transfers")
        self.outputs = {**OUTPUTS, "QueueUrl": self.queue, "DeadLetterQueueUrl": self.dead}
        self.nested: dict[str, dict[str, str]] = {}

    def map(self, function: str) -> str:
        """A function, and the mapping by which it reads the queue once that is enabled; the mapping's id."""
        functions, name = client("lambda"), function.partition(":")[0]
        archive = io.BytesIO()
        zipfile.ZipFile(archive, "w").writestr("handler.py", "")
        functions.create_function(
            FunctionName=name,
            Role=client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"],
            Runtime="python3.13",
            Handler="handler.lambda_handler",
            Code={"ZipFile": archive.getvalue()},
        )
        made = functions.create_event_source_mapping(FunctionName=name, EventSourceArn=self.arn, Enabled=False)
        return str(made["UUID"])

    def bury(self, key: str, body: str, *, url: str = "", **stamped: str) -> None:
        fifo = url.endswith(".fifo")
        arn = f"arn:aws:sqs:{REGION}:123456789012:t.fifo" if fifo else self.arn
        stamp = Stamp(key=key, original_id=key, queue=arn, **stamped).to_json()
        attributes = {STAMP: {"DataType": "String", "StringValue": stamp}}
        group: Any = {"MessageGroupId": "g", "MessageDeduplicationId": key} if fifo else {}
        self.sqs.send_message(QueueUrl=url or self.dead, MessageBody=body, MessageAttributes=attributes, **group)

    def fifo(self) -> str:
        """A FIFO queue `t.fifo`; the URL of its dead-letter queue."""
        attributes = {"FifoQueue": "true"}
        url = self.sqs.create_queue(QueueName="t-dead.fifo", Attributes=attributes)["QueueUrl"]
        target = f"arn:aws:sqs:{REGION}:123456789012:t-dead.fifo"
        policy = json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": 5})
        self.sqs.create_queue(QueueName="t.fifo", Attributes={**attributes, "RedrivePolicy": policy})
        return str(url)

    def record(self, key: str, status: str, body: str, **attributes: Any) -> None:
        fingerprint = sha256(body.encode()).hexdigest()
        item = {"id": key, "status": status, "version": "v", "validation": fingerprint, "attempts": 1}
        item |= {"expiration": LASTING, **attributes}
        typed = {name: {"N": str(held)} if isinstance(held, int) else {"S": held} for name, held in item.items()}
        self.dynamodb.put_item(TableName="records", Item=typed)

    def keys_in(self, url: str) -> set[str]:
        """The keys of what can be received, which stays where it is."""
        found = set()
        while received := self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=600, MessageAttributeNames=["All"]
        ).get("Messages"):
            found |= {json.loads(each["MessageAttributes"][STAMP]["StringValue"])["key"] for each in received}
        return found


def session(*, profile_name: str | None, **given: Any) -> boto3.Session:
    return SESSION if profile_name is None else boto3.Session(profile_name=profile_name, **given)


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stack]:
    """The stack that the examples in the help speak of, with a dead letter of each kind and something stuck."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.setenv("COLUMNS", "200")  # sentences in one piece, whatever terminal the tests run in
    monkeypatch.setattr(queue, "WAIT_SECONDS", 0)
    monkeypatch.setattr(dlq, "FOLLOW_SECONDS", 0)
    with mock_aws(config={"lambda": {"use_docker": False}}):
        made = Stack()
        found = Deployment.client
        monkeypatch.setattr(account, "boto3", SimpleNamespace(Session=session))
        monkeypatch.setattr(
            Deployment,
            "client",
            lambda self, service: (
                CloudFormation(made.outputs, made.nested) if service == "cloudformation" else found(self, service)
            ),
        )
        flaky = Failure(type="ConnectionError", at="app.ledger:7").to_json()
        closed = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
        made.record(DONE, "COMPLETED", "done", data='{"posted": "t-1"}')
        made.record(FLAKY, "FAILED", "flaky", error=flaky, attempts=5)
        made.record(CLOSED, "FAILED", "closed", error=closed)
        made.record(CONFLICT, "COMPLETED", "something else")
        made.record(STUCK, "INPROGRESS", "stuck", in_progress_expiration=LONG_AGO_MS, owner="request-1", attempts=2)
        for key, body in ((DONE, "done"), (FLAKY, "flaky"), (CONFLICT, "conflict")):
            made.bury(key, body)
        made.bury(CLOSED, "closed", reason="account closed", error_type="PermanentError")
        yield made


class Receiver:
    """Runs the command, as a shell would."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main(arguments)
        out, err = self._capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)


@pytest.fixture
def receiver(
    stack: Stack, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Receiver:
    monkeypatch.chdir(tmp_path)
    Path("body.json").write_text('{"transfer_id": "edited"}', "utf-8")
    return Receiver(capsys)


# Help and examples.

GROUPS: tuple[tuple[str, ...], ...] = ((), ("dlq",))
ACTING = (("dlq", "redrive"), ("dlq", "archive"), ("dlq", "restore"), ("dlq", "delete"), ("dlq", "resend"))
SHOWING = (("show",), ("stuck",), ("trace",), ("dlq", "list"), ("dlq", "history"))
WRITING = (("dlq", "export"), ("dlq", "report"))
COMMANDS = (*SHOWING, *WRITING, ("pause",), ("resume",), *ACTING)

ARGUMENTS = {
    "show": [FLAKY],
    "trace": [FLAKY],
    "list": [],
    "history": [],
    "export": ["letters.jsonl"],
    "report": ["letters.html"],
    "delete": ["--reason", "a test", "--all", "--yes"],
    "resend": ["--key", FLAKY, "--body", "body.json", "--yes"],
}
"""What a command needs besides a deployment; for all others it is the agreement."""


def examples(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("receiver ")]


@pytest.mark.parametrize("command", GROUPS, ids=" ".join)
def test_no_commands_summary_is_cut_off_in_eighty_columns(
    receiver: Receiver, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    summaries = receiver(*command, "--help").out.partition("Commands:\n")[2].partition("\n\n")[0]
    assert summaries
    assert "..." not in summaries
    assert all(line.endswith(".") for line in summaries.splitlines()), "each is a sentence, in one line"


def test_it_tells_its_version(receiver: Receiver) -> None:
    ran = receiver("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"receiver {version('idempotent-receiver')}\n", "")


def test_without_an_address_its_help_names_no_documentation(receiver: Receiver) -> None:
    """A checkout has the pages beside it."""
    assert "Documentation:" not in receiver("--help").out


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_every_command_has_help(receiver: Receiver, command: tuple[str, ...]) -> None:
    ran = receiver(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    assert "Usage: receiver" in ran.out


def test_the_exit_codes_are_documented(receiver: Receiver) -> None:
    said = re.search(r"Exit codes:.*?stopped\.", receiver("--help").out, re.DOTALL)
    assert said is not None
    assert [int(number) for number in re.findall(r"\b\d+\b", said[0])] == [each.value for each in terminal.Exit]


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_every_example_in_the_help_runs(receiver: Receiver, command: tuple[str, ...]) -> None:
    lines = examples(receiver(*command, "--help").out)
    assert lines
    for line in lines:
        ran = receiver(*shlex.split(line)[1:])
        assert ran.code in (terminal.Exit.OK, terminal.Exit.LEFT), ran.err
        assert ran.out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_answers_scripts_with_one_json_document(receiver: Receiver, command: tuple[str, ...]) -> None:
    argument = ARGUMENTS.get(command[-1], ["--yes"])
    assert isinstance(receiver(*command, *argument, "--stack", "transfers", "--json").json, dict)


LONG = "arn%3Aaws%3Aiam%3A%3A123456789012%3Auser%2Fclient-with-a-name/order-1"


def copied(told: Any) -> Iterator[str]:
    """What a person may want to copy from an answer: keys, ids and times."""
    for name, held in told.items() if isinstance(told, dict) else enumerate(told):
        if isinstance(held, dict | list):
            yield from copied(held)
        elif name in ("key", "message_id", "lease_until", "written_about", "since", "first_seen", "last_seen") and held:
            yield held


@pytest.fixture
def narrow(receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """In a terminal of eighty columns; a long key has failed, and died, of a long reason."""
    monkeypatch.setenv("COLUMNS", "80")
    text = "a reason of many words " * 5
    failure = Failure(type="PermanentError", text=text, permanent=True)
    stack.record(LONG, "FAILED", "long", error=failure.to_json(), attempts=3)
    stack.bury(LONG, "long", reason=text, error_type="PermanentError")
    return receiver


@pytest.mark.parametrize(
    "command",
    [
        ("show", LONG),
        ("trace", LONG),
        ("stuck", "--yes"),
        ("dlq", "list", "--group", "PermanentError"),
        ("dlq", "list", "--key", LONG),
    ],
    ids=" ".join,
)
def test_nothing_that_is_copied_is_broken_in_eighty_columns(narrow: Receiver, command: tuple[str, ...]) -> None:
    shown = narrow(*command, "--stack", "transfers").out
    parts = list(copied(narrow(*command, "--stack", "transfers", "--json").json))
    assert LONG in parts
    assert [part for part in parts if part not in shown] == []
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize("command", [*GROUPS, *COMMANDS], ids=" ".join)
def test_eighty_columns_are_enough_for_every_command_and_its_help(narrow: Receiver, command: tuple[str, ...]) -> None:
    argument = {**ARGUMENTS, "show": [LONG], "trace": [LONG]}.get(command[-1] if command else "", ["--yes"])
    asked = [] if command in GROUPS else [narrow(*command, *argument, "--stack", "transfers").out]
    for shown in [narrow(*command, "--help").out, *asked]:
        assert shown
        assert max(map(len, shown.splitlines())) <= 80


def test_the_keys_of_what_stays_are_not_broken_either(narrow: Receiver) -> None:
    shown = narrow("dlq", "redrive", "--yes", "--stack", "transfers").out
    assert {CONFLICT, CLOSED, LONG} <= set(shown.split())
    assert max(len(line) for line in shown.splitlines()) <= 80


@pytest.mark.parametrize(
    "command", [("stuck", "--yes"), ("dlq", "list", "--group", "ConnectionError@app.ledger")], ids=" ".join
)
def test_the_header_stands_above_its_columns_however_long_a_key_is(
    receiver: Receiver, stack: Stack, command: tuple[str, ...]
) -> None:
    digest = "5b5f4ee8" * 8
    stack.record(digest, "FAILED", "b", error=Failure(type="ConnectionError", at="app.ledger:7").to_json())
    stack.bury(digest, "b")
    lines = receiver(*command, "--stack", "transfers").out.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith(digest))
    header = next(line for line in reversed(lines[:place]) if line.startswith("key "))
    starts = [found.start() for found in re.finditer(r"\S+( \S+)*", header)]
    rows = [line for line in lines[place - 4 : place + 4] if line.startswith((digest, FLAKY))]
    assert len(rows) == 2
    for line in rows:
        assert [found.start() for found in re.finditer(r"\S+", line)] == starts[: len(line.split())]


# show.


def test_show_tells_what_a_record_says(receiver: Receiver) -> None:
    shown = receiver("show", FLAKY, "--table", "records").out
    for part in (FLAKY, "FAILED", "5", "ConnectionError at app.ledger:7"):
        assert part in shown
    told = receiver("show", DONE, "--table", "records", "--json").json
    assert (told["status"], told["result"], told["attempts"]) == ("COMPLETED", {"posted": "t-1"}, 1)


def test_show_tells_how_much_of_a_lease_is_left(receiver: Receiver, stack: Stack) -> None:
    until = SystemClock().epoch_ms() + 90_000
    stack.record("held", "INPROGRESS", "b", in_progress_expiration=until, owner="request-2")
    told = receiver("show", "held", "--table", "records", "--json").json
    assert 80 <= told["lease_left_seconds"] <= 90
    assert re.search(r"(?m)^lease +0:01:\d\d left, until ", receiver("show", "held", "--table", "records").out)


def test_a_lease_that_is_over_has_nothing_left(receiver: Receiver) -> None:
    shown = receiver("show", STUCK, "--table", "records").out
    assert re.search(r"(?m)^lease +over since 2023-11-14T22:13:20Z *$", shown)
    assert "left" not in shown


def test_the_verdicts_of_dead_letters_are_headed_as_such(receiver: Receiver) -> None:
    shown = receiver("dlq", "list", "--group", "done", "--stack", "transfers").out
    assert re.search(r"(?m)^key +since +verdict$", shown)


def test_when_a_record_was_written_is_not_said_to_be_in_the_future(receiver: Receiver, stack: Stack) -> None:
    """Where records last longer than is known, their end says nothing of their beginning."""
    written = datetime.now(UTC) - timedelta(days=1)
    closed = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
    stack.record(CLOSED, "FAILED", "b", error=closed, expiration=int(written.timestamp()) + 90 * 86_400)
    for key in (FLAKY, STUCK):
        stack.dynamodb.delete_item(TableName="records", Key={"id": {"S": key}})
    for command in (("show", CLOSED), ("stuck", "--yes")):
        assert '"written_about": null' in receiver(*command, "--table", "records", "--json").out
        assert re.search(f"written about:? +{records.UNDATED}", receiver(*command, "--table", "records").out)
        known = receiver(*command, "--table", "records", "--retention-days", "90").out
        assert records.UNDATED not in known
        assert f"{written:%Y-%m-%dT%H:%M:%SZ}" in known


def test_show_calls_expired_what_counts_as_absent(receiver: Receiver, stack: Stack) -> None:
    stack.record("old", "COMPLETED", "b", expiration=1_700_000_000)
    assert receiver("show", "old", "--table", "records", "--json").json["status"] == "EXPIRED"
    assert "EXPIRED (it was COMPLETED" in receiver("show", "old", "--table", "records").out


def test_show_knows_the_namespace(receiver: Receiver, stack: Stack) -> None:
    stack.record("bank#o-1", "COMPLETED", "b")
    assert receiver("show", "o-1", "--table", "records", "--namespace", "bank", "--json").json["id"] == "bank#o-1"
    ran = receiver("show", "o-1", "--table", "records", "--namespace", "shop")
    assert (ran.code, "There is no record shop#o-1" in ran.out) == (1, True)


def records_left(effects: str) -> dict[str, dict[str, Any]]:
    """What `show` says of the records of four messages, handled at one moment by one invocation."""
    clock, store = ManualClock(), MemoryStore(tables={"done": "id"})
    orphan = {
        "id": "orphaned",
        "status": "INPROGRESS",
        "version": "v",
        "attempts": 1,
        "owner": "dead",
        "expiration": LASTING,
    }
    store.items["orphaned"] = {**orphan, "in_progress_expiration": clock.epoch_ms() - 1}

    @sqs_consumer(store, effects=effects, clock=clock)
    def handle(body: dict, message: Message, tx: Transaction) -> str:
        tx.put(TableName="done", Item={"id": message.id})
        match message.id:
            case "flaky":
                raise ConnectionError
            case "closed":
                raise PermanentError("account closed")
        return message.id

    fresh = sqs_event({}, {}, {}, ids=["good", "flaky", "closed"])["Records"]
    again = sqs_event({}, ids=["orphaned"], receive_count=2)["Records"]
    handle({"Records": fresh + again}, Context(clock))
    deployment: Any = SimpleNamespace(key_of=str, retention_seconds=DEFAULT_RETENTION_SECONDS)
    return {
        id: records.record_values(from_attributes(item), deployment, clock.epoch_ms())
        for id, item in store.items.items()
    }


def test_show_says_of_a_record_that_nobody_claimed_what_it_says_of_one_that_was_claimed() -> None:
    """It has no lease, and the attempt of a worker that claimed it and died counts."""
    shown = records_left("transaction")
    assert shown == records_left("any")
    assert {id: (each["status"], each["attempts"], each["lease_until"]) for id, each in shown.items()} == {
        "good": ("COMPLETED", 1, None),
        "flaky": ("FAILED", 1, None),
        "closed": ("FAILED", 1, None),
        "orphaned": ("COMPLETED", 2, None),
    }


@pytest.mark.parametrize("namespace", [(), ("--namespace", "bank")], ids=["all", "one"])
def test_show_takes_what_stuck_and_list_print(receiver: Receiver, stack: Stack, namespace: tuple[str, ...]) -> None:
    body = '{"id": "o-1"}'
    stack.record("bank#o-1", "FAILED", body, error=Failure(type="E").to_json())
    stack.bury("whatever", body)
    stuck = receiver("stuck", "--table", "records", "--yes", "--json", *namespace).json
    (printed,) = [each["key"] for each in stuck["failing"] if each["id"] == "bank#o-1"]
    assert printed in receiver("stuck", "--table", "records", "--yes", *namespace).out.split()
    assert receiver("show", printed, "--table", "records", *namespace, "--json").json["id"] == "bank#o-1"

    business = ("--stack", "transfers", "--key-strategy", "body_field:id", "--namespace", "bank")
    listed = receiver("dlq", "list", *business, "--json").json
    (printed,) = [each["key"] for group in listed["groups"] for each in group["letters"] if each["key"]]
    assert receiver("show", printed, *business, "--json").json["id"] == "bank#o-1"


def test_show_takes_a_whole_id_as_well_and_a_key_first(receiver: Receiver, stack: Stack) -> None:
    flags = ("--table", "records", "--namespace", "bank")
    stack.record("bank#o-1", "COMPLETED", "b")
    told = receiver("show", "bank#o-1", *flags, "--json").json
    assert (told["id"], told["key"]) == ("bank#o-1", "o-1")
    assert "There is no record bank#o-2 in" in receiver("show", "bank#o-2", *flags).out
    stack.record("bank#bank#o-1", "COMPLETED", "b")
    told = receiver("show", "bank#o-1", *flags, "--json").json
    assert (told["id"], told["key"]) == ("bank#bank#o-1", "bank#o-1")


def test_show_of_an_unknown_key_says_what_to_look_at(receiver: Receiver) -> None:
    ran = receiver("show", "nosuch", "--table", "records")
    remedy = "check --namespace. It may never have been claimed, or its record has expired."
    assert (ran.code, ran.out) == (terminal.Exit.LEFT, f"There is no record nosuch in records: {remedy}\n")


def test_show_refuses_an_empty_key(receiver: Receiver) -> None:
    ran = receiver("show", "", "--table", "records")
    assert (ran.code, ran.out, "KEY is empty" in ran.err) == (terminal.Exit.USAGE, "", True)


def test_nothing_that_others_wrote_reaches_the_terminal_as_a_command(receiver: Receiver, stack: Stack) -> None:
    """An error's text may hold control sequences, and look like rich's own markup."""
    text = "\x1b]0;owned\x07 [red]not markup[/red] \x9b2J"
    stack.record("evil", "FAILED", "b", error=Failure(type="E", text=text).to_json())
    shown = receiver("show", "evil", "--table", "records").out
    assert "[red]not markup[/red]" in shown
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", shown)


# stuck.


def test_stuck_tells_its_cost_first_and_names_the_worst(receiver: Receiver) -> None:
    ran = receiver("stuck", "--stack", "transfers", "--yes", "--json")
    assert re.match("A scan of records reads about 5 items, .* MB: 1 read unit, in ", ran.err)
    assert (ran.code, ran.json["scanned"], ran.json["complete"]) == (0, 5, True)
    assert [each["id"] for each in ran.json["unsettled"]] == [STUCK]
    assert [each["id"] for each in ran.json["failing"]] == [FLAKY, STUCK]
    assert [each["id"] for each in ran.json["permanent"]] == [CLOSED]


def test_stuck_names_what_failed_for_good_apart_the_latest_first(receiver: Receiver, stack: Stack) -> None:
    """Else those that are tried again, with their many attempts, would push it out of the list."""
    closed = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
    for number in range(3):
        stack.record(f"flaky-{number}", "FAILED", "b", error=Failure(type="E").to_json(), attempts=9)
        stack.record(f"closed-{number}", "FAILED", "b", error=closed, expiration=LASTING + number)
    told = receiver("stuck", "--table", "records", "--yes", "--json", "--top", "2").json
    assert (told["failing_count"], told["permanent_count"]) == (5, 4)
    assert [each["id"] for each in told["permanent"]] == ["closed-2", "closed-1"]
    assert all(each["id"].startswith("flaky-") for each in told["failing"])


def test_stuck_says_what_becomes_of_each_kind_and_what_to_type(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, unsettled, failing, permanent = receiver("stuck", "--table", "records", "--yes").out.split("\n\n")
    assert STUCK in unsettled
    options = ["--queue QUEUE", "--key-strategy KEY_STRATEGY", "--table records"]
    texts = (records.TAKEN_OVER, records.TRIED_AGAIN, records.FIXED_FIRST)
    then = [records.advice(each, options) for each in texts]
    assert unsettled.rstrip().endswith(then[0]), "in lines that are not broken"
    assert FLAKY in failing
    assert failing.rstrip().endswith(then[1])
    assert CLOSED in permanent
    assert permanent.rstrip().endswith(then[2])
    stack.dynamodb.delete_item(TableName="records", Key={"id": {"S": STUCK}})
    assert then[0] not in receiver("stuck", "--table", "records", "--yes").out


def advised(shown: str) -> list[list[str]]:
    """The commands in an answer, as a shell takes them apart."""
    found = re.findall(r"(?m)^    ((?:receiver|aws) (?:.*\\\n)*.*)$", shown)
    return [shlex.split(each.replace("\\\n", "")) for each in found]


@pytest.mark.parametrize(
    "given",
    [
        ("--stack", "transfers"),
        ("--stack", "transfers", "--region", REGION, "--retention-days", "7.5", "--dlq", "transfers-dead"),
        ("--queue", "transfers", "--table", "records", "--key-strategy", "message_id", "--namespace", "it's mine"),
        ("--table", "records"),
    ],
    ids=" ".join,
)
def test_what_stuck_advises_means_the_same_consumer_and_runs_as_it_stands(
    receiver: Receiver, stack: Stack, given: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stack.record("it's mine#closed", "FAILED", "b", error=Failure(type="E", permanent=True).to_json())
    commands = advised(receiver("stuck", "--yes", *given).out)
    assert commands
    for command in commands:
        assert set(given) <= set(command)
        unsaid = {"QUEUE": "transfers", "KEY_STRATEGY": "message_id", "KEY": "nosuch"}
        ran = receiver(*(unsaid.get(each, each) for each in command[1:]), "--yes")
        assert (ran.code, "no visible dead letters of the key nosuch" in ran.out) == (terminal.Exit.LEFT, True), ran.err


def test_what_is_advised_is_for_the_same_account_too() -> None:
    endpoint = "https://an-endpoint.example.com:4566"
    options = Deployment(Options(table="records", region=REGION, profile="two words", endpoint_url=endpoint)).typed
    (command,) = advised(f"{records.advice(records.TAKEN_OVER, options)}\n")
    asked = ["--region", REGION, "--profile", "two words", "--endpoint-url", endpoint]
    assert command[-8:] == [*asked, "--key", "KEY"]


def section_of(title: str) -> str:
    """What docs/operating.md has below a heading."""
    text = Path("docs/operating.md").read_text()
    (section,) = re.findall(rf"(?s)\n### {title}\n(.*?)(?=\n##)", text)
    return str(section)


def test_what_is_typed_for_an_orphan_counts_under_its_key() -> None:
    section = section_of("Orphans")
    assert f"--key {stamp_typed_in(section)}\n" in section


CONFLICTS = section_of("Conflicts")


def test_what_is_typed_for_a_conflict_sends_it_under_another_key_or_deletes_it(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = set(re.findall(r"--message-id (\S+)", CONFLICTS))
    (letter,) = (each for each in dead_letters(stack) if each["Body"] == "conflict")
    meant = {"idempotent-receiver": "transfers", key: letter["MessageId"]}
    lines = map(shlex.split, re.findall(r"(?m)^receiver dlq .*$", CONFLICTS))
    typed = {line[2]: [meant.get(part, part) for part in line] for line in lines}

    assert receiver(*typed["export"][1:]).code == terminal.Exit.OK
    body = json.loads(Path("letter.jsonl").read_text())["message"]["body"]
    Path("body.json").write_text(body)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert "Delete for good 1 dead letter?" in receiver(*typed["delete"][1:]).err
    assert receiver(*typed["resend"][1:], "--yes").code == terminal.Exit.OK

    (sent,) = stack.sqs.receive_message(QueueUrl=stack.queue, MessageAttributeNames=["All"])["Messages"]
    stamp = json.loads(sent["MessageAttributes"][STAMP]["StringValue"])
    assert sent["Body"] == "conflict"
    assert stamp["key"] not in (CONFLICT, letter["MessageId"])
    assert stamp["original_id"] == CONFLICT


def dead_letters(stack: Stack) -> list[Any]:
    found: list[Any] = stack.sqs.receive_message(QueueUrl=stack.dead, MaxNumberOfMessages=10)["Messages"]
    for each in found:
        stack.sqs.change_message_visibility(
            QueueUrl=stack.dead, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0
        )
    return found


def stamp_typed_in(section: str) -> str:
    """The key that the one message sent in a section counts under."""
    (attributes,) = re.findall(r"(?s)--message-attributes '(.*?)'\n", section)
    ((name, held),) = json.loads(attributes).items()
    found = stamp_of({name: {"stringValue": held["StringValue"]}})
    assert found is not None
    return found.key


def test_each_verdict_has_its_meaning_and_its_remedy_in_the_documentation() -> None:
    rows = re.findall(r"(?m)^\| `([A-Z_]+)` \| (.+) \| (.+) \|$", section_of("Verdicts"))
    explained = {verdict for verdict, _, _ in rows}
    assert explained == {*Verdict, dlq_report.BEYOND, dlq_report.CHANGED} == {Verdict.MOVE, *dlq_report.STAYS}
    assert len(rows) == len(explained)
    anchors = re.findall(r"\(#(\w+)\)", str(rows))
    assert [each for each in anchors if not section_of(each.capitalize())] == []


@pytest.mark.parametrize(
    "command", [("list", "--key", CONFLICT, "--key", CLOSED), ("redrive", "--yes")], ids=["list", "redrive"]
)
def test_a_dead_letter_that_stays_says_where_its_remedy_stands(
    receiver: Receiver, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    told = f"What each verdict means, and what to do: see {documentation.section('operating', 'Verdicts')}."
    assert receiver("dlq", *command, "--stack", "transfers").out.count(told) == 1
    assert told not in receiver("dlq", "list", "--stack", "transfers", "--key", FLAKY).out, "it does not stay"


def test_stuck_asks_before_it_scans(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ran = receiver("stuck", "--table", "records")
    assert (ran.code, ran.out) == (1, "Nothing was scanned.\n")
    assert "Scan? [y/N]" in ran.err


def test_stuck_tells_scripts_whether_it_was_confirmed(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert receiver("stuck", "--table", "records", "--json").json == {"confirmed": False}
    assert receiver("stuck", "--table", "records", "--json", "--yes").json["confirmed"] is True


def test_stuck_goes_page_by_page_at_its_rate(receiver: Receiver, stack: Stack) -> None:
    for number in range(30):
        stack.record(f"more-{number}", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS + number, owner="w")
    clock = ManualClock()
    pages = list(pages_of(stack.dynamodb, "records", clock, units_a_second=2, page_items=7))
    assert [len(page) for page in pages] == [7, 7, 7, 7, 7]
    assert len(clock.sleeps) == 4
    told = receiver("stuck", "--table", "records", "--yes", "--json", "--top", "3").json
    assert told["unsettled_count"] == 31
    assert [each["id"] for each in told["unsettled"]] == [STUCK, "more-0", "more-1"] or len(told["unsettled"]) == 3


def test_stuck_leaves_other_namespaces_and_what_was_only_released(receiver: Receiver, stack: Stack) -> None:
    stack.record("bank#a", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS, owner="w")
    stack.record("bank#b", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS)
    stack.record("bank#c", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS, owner="w", expiration=1_700_000_000)
    told = receiver("stuck", "--table", "records", "--namespace", "bank", "--yes", "--json").json
    assert [each["id"] for each in told["unsettled"]] == ["bank#a"]
    assert (told["given_back_count"], told["failing_count"]) == (1, 0)


def test_stuck_says_how_many_records_are_in_the_namespace_and_fails_where_none_is(
    receiver: Receiver, stack: Stack
) -> None:
    """A namespace that is misspelt would read as all clear."""
    stack.record("bank#a", "FAILED", "b", error=Failure(type="E").to_json())
    flags = ("stuck", "--stack", "transfers", "--yes", "--namespace")
    ran = receiver(*flags, "wrong")
    assert (ran.code, "0 of 6 records are in the namespace wrong: 0 claims" in ran.out) == (terminal.Exit.LEFT, True)
    assert "check --namespace" in ran.err
    told = receiver(*flags, "wrong", "--json").json
    assert (told["scanned"], told["namespace"], told["own"]) == (6, "wrong", 0)
    ran = receiver(*flags, "bank")
    assert (ran.code, "1 of 6 records is in the namespace bank: 0 claims" in ran.out) == (terminal.Exit.OK, True)


def test_stuck_finds_nothing_wrong_with_an_empty_table(receiver: Receiver, stack: Stack) -> None:
    for key in (DONE, FLAKY, CLOSED, CONFLICT, STUCK):
        stack.dynamodb.delete_item(TableName="records", Key={"id": {"S": key}})
    ran = receiver("stuck", "--table", "records", "--yes", "--namespace", "bank")
    assert (ran.code, "0 of 0 records are in the namespace bank" in ran.out) == (terminal.Exit.OK, True)


ARN = "arn:aws:states:us-east-1:123456789012:execution:transfers:e-1"


def test_stuck_says_of_a_workflows_records_that_they_are_and_advises_no_redrive(
    receiver: Receiver, stack: Stack
) -> None:
    """There are no deliveries that try them again, and one that runs at its second start fails of nothing."""
    for key in (FLAKY, CLOSED, STUCK):
        stack.dynamodb.delete_item(TableName="records", Key={"id": {"S": key}})
    now_ms = SystemClock().epoch_ms()
    of = {"execution": ARN, "attempts": 2, "owner": "w"}
    error = '{"type": "Refused", "text": "overdrawn", "permanent": true, "status": 422}'
    stack.record("runs", "INPROGRESS", "b", in_progress_expiration=now_ms + 3_600_000, **of)
    stack.record("overdue", "INPROGRESS", "b", in_progress_expiration=LONG_AGO_MS, **of)
    stack.record("refused", "FAILED", "b", error=error, expiration=LASTING + 1, **of)
    stack.record("done", "COMPLETED", "b", **of)
    told = receiver("stuck", "--table", "records", "--yes", "--json").json
    assert [each["id"] for each in told["workflow"]] == ["refused", "overdue"]
    assert (told["workflow_count"], told["unsettled"], told["failing"], told["permanent"]) == (2, [], [], [])
    shown = receiver("stuck", "--table", "records", "--yes").out
    assert ", 2 workflow executions failed or overdue." in shown
    told = records.advice(records.ANSWERED, ())
    assert shown.rstrip().endswith(told)
    assert "dlq redrive" not in shown
    assert max(map(len, told.splitlines())) < 80


def test_stuck_counts_and_names_the_records_that_it_cannot_understand(receiver: Receiver, stack: Stack) -> None:
    """A record that no version of ours would write blocks its key as long as it is there, whatever its expiration."""
    stack.record("paused", "PAUSED", "b")
    stack.record("endless", "INPROGRESS", "b")
    stack.dynamodb.update_item(TableName="records", Key={"id": {"S": "endless"}}, UpdateExpression="REMOVE expiration")
    stack.dynamodb.put_item(TableName="records", Item={"id": {"S": "foreign"}, "expiration": {"N": "1700000000"}})
    wrong_type = {"id": {"S": "typed"}, "status": {"S": "FAILED"}, "attempts": {"S": "two"}}
    stack.dynamodb.put_item(TableName="records", Item=wrong_type)
    told = receiver("stuck", "--table", "records", "--yes", "--json").json
    assert told["unreadable_count"] == 4
    assert {each["key"]: each["unreadable"] for each in told["unreadable"]} == {
        "paused": "unknown status 'PAUSED'",
        "endless": "INPROGRESS with neither a lease nor an expiration",
        "foreign": "no status",
        "typed": "unexpected type of attempts",
    }
    assert (told["unsettled_count"], told["failing_count"], told["permanent_count"]) == (1, 2, 1), "as without them"
    shown = receiver("stuck", "--table", "records", "--yes").out
    assert ", 4 records unreadable." in shown
    assert "unknown status 'PAUSED'" in shown
    assert shown.rstrip().endswith(records.advice(records.NOT_UNDERSTOOD, ()))


def test_a_text_that_sends_its_reader_to_a_page_sends_him_to_one_that_he_has(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installed package has no pages beside it."""
    assert 'docs/operating.md, "Orphans"' in receiver("stuck", "--table", "records", "--yes").out
    about = EmailMessage()
    about["Project-URL"] = "Repository, https://code.example.com"
    about["Project-URL"] = "Documentation, https://docs.example.com/receiver"
    monkeypatch.setattr(documentation, "metadata", lambda name: about)
    said = '"Orphans" on the page "operating" of https://docs.example.com/receiver'
    assert said in " ".join(receiver("stuck", "--table", "records", "--yes").out.split())


# dlq list.


def test_list_groups_by_error_and_gives_back_what_it_took(receiver: Receiver, stack: Stack) -> None:
    told = receiver("dlq", "list", "--stack", "transfers", "--json").json
    groups = {group["name"]: (group["reasons"], [each["key"] for each in group["letters"]]) for group in told["groups"]}
    assert groups == {
        "ConnectionError@app.ledger": ({"ConnectionError at app.ledger:7": 1}, [FLAKY]),
        "FingerprintMismatch": ({"its key was used for another payload": 1}, [CONFLICT]),
        "PermanentError": ({"account closed": 1}, [CLOSED]),
        "done": ({"done: its acknowledgement was lost, or it was delivered once more": 1}, [DONE]),
    }
    assert (told["letters"], told["about"], told["sample"]) == (4, 4, False)
    assert stack.keys_in(stack.dead) == {DONE, FLAKY, CONFLICT, CLOSED}


def test_a_groups_screen_tells_what_is_in_it_and_its_name_lists_its_letters(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a text nor a line makes another group, and both are told within it."""
    monkeypatch.setenv("COLUMNS", "80")
    for number in range(9):
        text, line = ("answered 402", 20) if number % 3 == 0 else ("answered 503", 21)
        stack.bury(f"m-{number}", "b", reason=text, error_type="HTTPError", at=f"app.gateway.charge:{line}")
    flags = ("--stack", "transfers", "--error-type", "HTTPError")
    (told,) = receiver("dlq", "list", *flags, "--json").json["groups"]
    assert (told["name"], told["count"], told["verdicts"]) == ("HTTPError@app.gateway.charge", 9, {"PERMANENT": 9})
    assert told["reasons"] == {"answered 503": 6, "answered 402": 3}

    shown = receiver("dlq", "list", *flags).out
    assert [line.strip() for line in shown.splitlines()[:2]] == ["count  group", "9  HTTPError@app.gateway.charge"]
    assert f"{told['first_seen']}" in shown
    assert "9 PERMANENT" in shown
    assert f"for example {told['letters'][-1]['key']}" in shown
    assert "6 x answered 503" in shown
    assert "3 x answered 402" in shown
    assert sum(f"m-{number}" in shown for number in range(9)) == 1, "an example, and no list"

    letters = receiver("dlq", "list", "--stack", "transfers", "--group", "HTTPError@app.gateway.charge").out
    assert all(re.search(rf"(?m)^m-{number} ", letters) for number in range(9))
    assert FLAKY not in letters
    (one, *_) = told["letters"]
    assert one["message_id"] in receiver("dlq", "list", "--stack", "transfers", "--message-id", one["message_id"]).out


def decided(group: str, count: int) -> dict[str, Any]:
    """A group of dead letters of one cause, each with a text of its own."""
    reader = Reader(queue_arn="arn:aws:sqs:us-east-1:123456789012:transfers", key=message_id, record_id=str)
    letters = []
    for number in range(count):
        stamp = Stamp(
            key=f"5f2c1d64-{number:04}-4000-8000-000000000001",
            original_id="m",
            reason=f"account {number} of a customer who has many of them\ncannot pay {number} EUR",
            error_type=group,
            at="app.transfers.ledger.post_entries:17",
        )
        attribute = {STAMP: {"DataType": "String", "StringValue": stamp.to_json()}}
        raw = {"MessageId": f"m-{number}", "ReceiptHandle": "r", "Body": "b", "Attributes": {}}
        read = reader.read({**raw, "MessageAttributes": attribute}, LONG_AGO_MS)
        letters.append(triage(read, None, LONG_AGO_MS, Rules(queue_arn=reader.queue_arn)))
    ((name, found),) = dlq_report.grouped(letters).items()
    return dlq_report.group_values(name, found, bodies=False)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 13, 20, 21, 22, 60])
def test_the_groups_fit_a_screen_however_many_letters_there_are(count: int) -> None:
    groups = [decided(f"Error{number}", 300 if number == 0 else 1) for number in range(count)]
    console = Console(width=80, file=io.StringIO(), record=True)
    console.print(dlq_report.group_tables(groups))
    lines = console.export_text().splitlines()
    assert len(lines) <= 24
    names = [each["name"] for each in groups]
    assert [name for name in names if f"  {name}" in {line[5:].rstrip() for line in lines}] == names[:21]
    assert ("which --json lists" in " ".join(lines)) is (count > 21)
    if count <= 7:
        assert sum("account" in line for line in lines) >= count, "the reason of each"


def test_bodies_are_shown_only_when_asked_for(receiver: Receiver) -> None:
    for flag in ((), ("--json",)):
        assert "conflict\n" not in receiver("dlq", "list", "--stack", "transfers", *flag).out.replace(" ", "")
    without = receiver("dlq", "list", "--stack", "transfers", "--json")
    assert '"body"' not in without.out
    shown = receiver("dlq", "list", "--stack", "transfers", "--json", "--bodies").json
    assert {each["body"] for group in shown["groups"] for each in group["letters"]} == {
        "done",
        "flaky",
        "conflict",
        "closed",
    }


def test_a_sample_is_called_one(receiver: Receiver, stack: Stack) -> None:
    for number in range(25):
        stack.bury(f"m-{number}", "b")
    ran = receiver("dlq", "list", "--stack", "transfers", "--limit", "10", "--json")
    assert "This is a sample: 10 of about 29" in ran.err
    assert ran.json["sample"] is True
    assert len(stack.keys_in(stack.dead)) == 29


def test_the_dead_letter_queue_is_found_by_the_queues_own_policy(receiver: Receiver) -> None:
    flags = ("--queue", "transfers", "--table", "records", "--key-strategy", "message_id", "--json")
    assert receiver("dlq", "list", *flags).json["letters"] == 4


@pytest.mark.parametrize("command", [("list",), ("redrive", "--yes")], ids=" ".join)
@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (("--group", "PermanentError"), {CLOSED}),
        (("--group", "PermanentError", "--group", "done"), {CLOSED, DONE}),
        (("--error-type", "ConnectionError"), {FLAKY}),
        (("--key", FLAKY, "--key", DONE, "--group", "done"), {DONE}),
        (("--since", "1h"), {DONE, FLAKY, CONFLICT, CLOSED}),
        (("--since", "2023-01-01", "--until", "2200-01-01T00:00+02:00"), {DONE, FLAKY, CONFLICT, CLOSED}),
    ],
)
def test_what_is_selected_is_meant_by_each_command_alike(
    receiver: Receiver, command: tuple[str, ...], given: tuple[str, ...], keys: set[str]
) -> None:
    told = receiver("dlq", *command, *given, "--stack", "transfers", "--json").json
    listed = [each["key"] for group in told.get("groups", []) for each in group["letters"]]
    acted = told.get("moved", 0) + told.get("dropped", 0) + len(told.get("left", []))
    assert (set(listed), acted) == ((keys, 0) if command == ("list",) else (set(), len(keys)))


@pytest.mark.parametrize("command", [("list",), ("redrive", "--yes")], ids=" ".join)
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--group", "nosuch"), "in the group nosuch."),
        (("--group", "b", "--group", "a"), "in the group a or b."),
        (("--error-type", "nosuch"), "of the error type nosuch."),
        (("--since", "2200-01-01"), "sent since 2200-01-01T00:00:00Z."),
        (("--until", "2023-01-01T01:00+02:00"), "sent until 2022-12-31T23:00:00Z."),
        (
            ("--since", "2022-01-01", "--until", "2023-01-01"),
            "sent since 2022-01-01T00:00:00Z and until 2023-01-01T00:00:00Z.",
        ),
        (("--key", "k", "--reason", "r"), 'of the key k with "r" in their reason or error type.'),
    ],
)
def test_where_nothing_is_what_was_meant_that_is_named_and_is_not_found(
    receiver: Receiver, command: tuple[str, ...], given: tuple[str, ...], says: str
) -> None:
    ran = receiver("dlq", *command, *given, "--stack", "transfers")
    assert (ran.code, f"There are no visible dead letters {says}" in ran.out) == (terminal.Exit.LEFT, True)


def test_where_nothing_is_in_the_archive_the_archive_is_named(receiver: Receiver) -> None:
    ran = receiver("dlq", "restore", "--group", "nosuch", "--stack", "transfers", "--yes")
    assert (ran.code, "There are no archived dead letters in the group nosuch." in ran.out) == (
        terminal.Exit.LEFT,
        True,
    )


def test_bodies_are_exported_for_the_operator_alone(receiver: Receiver) -> None:
    ran = receiver("dlq", "export", "letters.jsonl", "--stack", "transfers")
    exported = Path("letters.jsonl")
    assert (ran.code, len(exported.read_text("utf-8").splitlines())) == (terminal.Exit.OK, 4)
    assert exported.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("command", ["list", "redrive"])
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--since", "yesterday"), "--since yesterday is no time: give a time such as 2026-11-22T02:00Z (UTC if it"),
        (("--until", "2026-13-01"), "--until 2026-13-01 is no time"),
        (("--until", "0001-01-01T00:00+02:00"), "--until 0001-01-01T00:00+02:00 is no time"),
        (("--since", "-2h"), "--since -2h is no time"),
        (("--since", "2 h"), "--since 2 h is no time"),
        (("--since", "999999d"), "--since 999999d is no time"),
        (("--since", "1h", "--until", "2h"), "--until 2h is before --since 1h"),
        (("--group", ""), "--group is empty: give it a value, or leave it out"),
        (("--key", "k", "--key", ""), "--key is empty: give it a value, or leave it out"),
        (("--reason", ""), "--reason is empty: give it a value, or leave it out"),
        (("--since", ""), "--since is empty: give it a value, or leave it out"),
    ],
)
def test_what_selects_nothing_by_mistake_is_refused(
    receiver: Receiver, stack: Stack, command: str, given: tuple[str, ...], says: str
) -> None:
    ran = receiver("dlq", command, "--stack", "transfers", *given)
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert says in ran.err
    assert len(stack.keys_in(stack.dead)) == 4


# dlq redrive.


def test_redrive_tells_its_plan_and_does_it(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--json")
    assert ran.json["plan"] == {"MOVE": 1, "DONE": 1, "CONFLICT": 1, "PERMANENT": 1}
    assert (ran.code, ran.json["moved"], ran.json["dropped"]) == (1, 1, 1)
    assert stack.keys_in(stack.queue) == {FLAKY}
    assert stack.keys_in(stack.dead) == {CONFLICT, CLOSED}


def test_the_plan_says_of_each_dead_letter_that_failed_for_good_of_what(receiver: Receiver, stack: Stack) -> None:
    suspended = Failure(type="PermanentError", text="payee suspended", permanent=True).to_json()
    stack.record("s", "FAILED", "the body of s", error=suspended)
    stack.bury("s", "the body of s")
    shown = receiver("dlq", "redrive", "--stack", "transfers", "--yes").out
    for reason in ("account closed", "payee suspended"):
        assert f"it failed for good: {reason}; --include-permanent once the cause is fixed" in shown
    assert "the body of s" not in shown


def test_redrive_with_nothing_left_ends_well(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--reason", "connection")
    assert (ran.code, "1 moved, 0 dropped as done, 0 left" in ran.out) == (0, True)
    assert stack.keys_in(stack.queue) == {FLAKY}


def test_the_plan_and_the_question_know_the_limit_and_the_rest_is_left(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        stack.bury(f"m-{number}", "b")
    flags = ("--stack", "transfers", "--limit", "1", "--reason", "received too often, and never")
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    ran = receiver("dlq", "redrive", *flags, "--json")
    assert "Move or drop 1 dead letter? [y/N]" in ran.err
    assert re.search(r"\b4 +BEYOND_LIMIT +stays for now", ran.err)
    assert (ran.code, ran.json["plan"]) == (1, {"MOVE": 1, "BEYOND_LIMIT": 4})
    assert (ran.json["moved"], len(ran.json["left"]), ran.json["beyond_limit"]) == (1, 4, True)
    assert {each["why"] for each in ran.json["left"]} == {"more than --limit allows: run again for it"}
    told = receiver("dlq", "redrive", *flags, "--yes").out
    assert "1 moved, 0 dropped as done, 3 left in place." in told


@pytest.mark.parametrize("answer", ["n\n", "", "\n"])
def test_redrive_without_a_yes_does_nothing(
    receiver: Receiver, stack: Stack, answer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--json")
    assert (ran.code, ran.json["confirmed"], ran.json["moved"]) == (1, False, 0)
    assert "Move or drop 2 dead letters? [y/N]" in ran.err
    assert stack.keys_in(stack.queue) == set()
    assert len(stack.keys_in(stack.dead)) == 4


@pytest.mark.parametrize(
    ("option", "says"),
    [("--key", "of the key nosuch."), ("--reason", 'with "nosuch" in their reason or error type.')],
)
def test_redrive_of_what_is_not_there_names_it_and_is_not_found(receiver: Receiver, option: str, says: str) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", option, "nosuch")
    assert (ran.code, f"There are no visible dead letters {says}" in ran.out) == (terminal.Exit.LEFT, True)


def test_one_is_not_spoken_of_as_many(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    assert (
        "Nothing was done: 1 dead letter left in place."
        in receiver("dlq", "redrive", "--stack", "transfers", "--key", FLAKY).out
    )
    shown = receiver("stuck", "--stack", "transfers", "--yes").out
    assert shown.startswith("5 records: 1 claim that nobody settled, 0 released and waiting, 2 keys failing, 1 failed")


def test_what_was_not_confirmed_is_said_to_stay(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("n\nn\n"))
    ran = receiver("dlq", "redrive", "--stack", "transfers")
    assert (ran.code, "Nothing was done: 4 dead letters left in place." in ran.out) == (1, True)
    told = receiver("dlq", "redrive", "--stack", "transfers", "--json").json
    assert {each["key"] for each in told["left"]} == {DONE, FLAKY, CONFLICT, CLOSED}
    assert {each["key"] for each in told["left"] if each["why"] == "it was not confirmed"} == {DONE, FLAKY}


def test_what_comes_up_behind_is_not_moved_without_a_yes_either(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a FIFO queue ten of a group that stay may hide one that would go."""
    dead = stack.fifo()
    for number in range(10):
        stack.bury(f"m-{number}", "b", url=dead, reason="account closed")
    stack.bury("behind", "b", url=dead)
    flags = ("--queue", "t.fifo", "--dlq", dead, "--table", "records", "--key-strategy", "message_id", "--json")
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ran = receiver("dlq", "redrive", *flags)
    assert "While dead letters are held, SQS gives out nothing more of their groups" in ran.err
    assert re.search(r"Move or drop (1 dead letter and )?what comes up behind\? \[y/N\]", ran.err)
    assert (ran.code, ran.json["moved"]) == (1, 0)


def test_redrive_says_so_where_aws_fails_and_that_it_can_be_started_again(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        if operation == "SendMessageBatch":
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, operation)
        return found(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", refuse)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes")
    assert ran.code == terminal.Exit.AWS
    assert "It is safe to start again." in ran.err
    assert "AccessDenied" in ran.err.splitlines()[-1] or "not allowed" in ran.err
    assert "Traceback" not in ran.err
    assert len(stack.keys_in(stack.dead)) == 3, "what was done was dropped, and the rest was given back"


def test_redrive_names_what_sqs_would_not_delete_and_ends_with_1(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two in one call, the first is refused for good, and the second is throttled and goes at the next try."""
    stack.bury("never-run", "b")
    refused: list[str] = []

    def answer(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        if operation != "DeleteMessageBatch" or refused or len(arguments["Entries"]) == 1:
            return found(self, operation, arguments)
        refused.append(arguments["Entries"][0]["ReceiptHandle"])
        codes = [{"Code": "ReceiptHandleIsInvalid", "SenderFault": True}, {"Code": "Throttled", "SenderFault": False}]
        return {"Failed": [{"Id": str(place), **code} for place, code in enumerate(codes)]}

    monkeypatch.setattr(BaseClient, "_make_api_call", answer)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--key", FLAKY, "--key", "never-run")
    (left,) = stack.keys_in(stack.dead) & {FLAKY, "never-run"}
    named = next(line for line in ran.out.splitlines() if line.startswith(left))
    assert named.endswith("MOVE")
    assert "it could not be deleted: ReceiptHandleIsInvalid; its copy was sent" in ran.out
    assert "2 moved, 0 dropped as done, 0 left in place.\n1 not deleted" in ran.out
    assert ran.code == terminal.Exit.LEFT


@pytest.mark.parametrize("command", [("list",), ("redrive", "--yes")], ids=" ".join)
@pytest.mark.parametrize("denied", [False, True], ids=["", "though SQS does not say whose any queue is"])
def test_a_queue_that_is_no_dead_letter_queue_is_refused_and_keeps_its_messages(
    receiver: Receiver, stack: Stack, command: tuple[str, ...], denied: bool, request: pytest.FixtureRequest
) -> None:
    if denied:
        request.getfixturevalue("unsaid")
    live = stack.sqs.create_queue(QueueName="orders")["QueueUrl"]
    stack.sqs.send_message(QueueUrl=live, MessageBody="live")
    ran = receiver("dlq", *command, "--stack", "transfers", "--dlq", "orders")
    assert (ran.code, "orders is no dead-letter queue that SQS knows of" in ran.err) == (2, True)
    assert f"(it has {stack.dead_arn})" in ran.err
    assert ran.err.rstrip().endswith("correct --dlq")
    ran = receiver("dlq", *command, "--stack", "transfers", "--dlq", stack.arn)
    assert (ran.code, "is the consumer's queue itself: correct --dlq" in ran.err) == (2, True)
    (message,) = stack.sqs.receive_message(QueueUrl=live, AttributeNames=["All"])["Messages"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1", "nobody has received it before"


def test_of_another_queues_dead_letters_only_what_says_that_it_came_from_ours_is_moved(
    receiver: Receiver, stack: Stack
) -> None:
    """Such as the dead-letter queue that the consumer had before, once another has it."""
    other = stack.sqs.create_queue(QueueName="others-dead")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": stack.dead_arn.replace("transfers", "others"), "maxReceiveCount": 5})
    stack.sqs.create_queue(QueueName="others", Attributes={"RedrivePolicy": policy})
    stack.bury("ours", "b", url=other)
    stack.sqs.send_message(QueueUrl=other, MessageBody="whose?")
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--dlq", "others-dead", "--yes", "--json")
    assert (ran.code, ran.json["plan"]) == (1, {"MOVE": 1, "FOREIGN": 1})
    assert stack.keys_in(stack.queue) == {"ours"}


# What others hold, what a history keeps, and what becomes of it.


def held_by_another(stack: Stack, count: int, seconds: int) -> None:
    got = stack.sqs.receive_message(QueueUrl=stack.dead, MaxNumberOfMessages=count, VisibilityTimeout=seconds)
    assert len(got["Messages"]) == count


@pytest.mark.parametrize("command", [("list",), ("redrive", "--yes"), ("redrive",)], ids=" ".join)
def test_what_a_killed_redrive_holds_is_said_and_has_an_exit_code_of_its_own(
    receiver: Receiver, stack: Stack, command: tuple[str, ...]
) -> None:
    held_by_another(stack, 4, 300)
    ran = receiver("dlq", *command, "--stack", "transfers", "--hold", "200", "--json")
    assert (ran.code, ran.json["held_elsewhere"]) == (terminal.Exit.HELD, 4)
    said = re.search(r"About 4 of 4 dead letters are held by another session, .* come up by (\S+) at", ran.err)
    assert said is not None
    until = datetime.fromisoformat(said[1])
    assert timedelta(seconds=190) < until - datetime.now(UTC) < timedelta(seconds=201)


def test_redrive_waits_for_what_another_session_holds_if_it_is_told_to(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "POLL_SECONDS", 0.1)
    held_by_another(stack, 4, 1)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--json", "--wait-held", "--hold", "5")
    assert (ran.code, ran.json["held_elsewhere"], ran.json["moved"]) == (terminal.Exit.LEFT, 0, 1)
    assert stack.keys_in(stack.queue) == {FLAKY}


def test_the_plan_says_how_long_it_takes(receiver: Receiver, stack: Stack, tmp_path: Path) -> None:
    for number in range(29):
        stack.bury(f"m-{number}", "b")
    to_file = ("--save-plan", str(tmp_path / "plan.json"))
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--rate", "10", *to_file, "--json")
    assert "At 10 messages a second, this takes about 3 s (see --rate)." in ran.err


def test_a_redrive_keeps_who_did_what_to_which_and_why(receiver: Receiver, stack: Stack) -> None:
    receiver("dlq", "redrive", "--stack", "transfers", "--yes")
    acts = [
        {name: next(iter(held.values())) for name, held in each.items()}
        for each in stack.dynamodb.scan(TableName="history")["Items"]
    ]
    assert {(each["key"], each["verb"], each["outcome"]) for each in acts} == {
        (DONE, "dropped", "done"),
        (FLAKY, "moved", "done"),
    }
    for each in acts:
        assert (each["queue"], each["dead_letter_queue"]) == (stack.arn, stack.dead_arn)
        assert each["operator"].startswith("arn:aws:")
    assert {each["why"] for each in acts} == {
        "its record is COMPLETED, with the same payload",
        "it failed at attempt 5 and may be tried again",
    }
    assert len({each["plan"] for each in acts}) == 1


def test_what_the_history_does_not_take_is_not_done(receiver: Receiver, stack: Stack) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--history", "missing")
    assert (ran.code, "It is safe to start again." in ran.err) == (terminal.Exit.AWS, True)
    assert "missing" in ran.err.splitlines()[-1]
    assert "0 moved, 0 dropped as done, 4 left in place." in ran.out
    assert (stack.keys_in(stack.queue), len(stack.keys_in(stack.dead))) == (set(), 4)


def test_wait_tells_what_became_of_what_was_moved(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One completes, one fails again, one is dead again, and nobody has handled the fourth."""
    monkeypatch.setattr(following, "POLL_SECONDS", 0.01)
    for key in ("completes", "dies", "waits"):
        stack.bury(key, key)
    flags = ("--stack", "transfers", "--yes", *(f"--key={key}" for key in (FLAKY, "completes", "dies", "waits")))
    looks: list[str] = []
    look = following.Following._read_records

    def handled(self: Any) -> None:
        if not looks:
            again = Failure(type="ConnectionError").to_json()
            stack.record("completes", "COMPLETED", "completes")
            stack.record(FLAKY, "FAILED", "flaky", error=again, version="v2")
            stack.bury("dies", "dies")
        looks.append("one")
        look(self)

    monkeypatch.setattr(following.Following, "_read_records", handled)
    ran = receiver("dlq", "redrive", *flags, "--wait-seconds", "1", "--json")
    assert ran.code == terminal.Exit.LEFT
    told = ran.json["followed"]
    not_completed = {each["key"]: each["fate"] for each in told.pop("not_completed")}
    assert told == {"completed": 1, "dead": 1, "failed": 1, "waiting": 1}
    assert not_completed == {FLAKY: "failed again", "dies": "dead again", "waits": "waiting"}
    assert len(looks) > 1


def test_of_what_is_dead_again_the_command_is_named_that_says_why(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = following.Following._read_records

    def buried(self: Any) -> None:
        stack.bury(FLAKY, "flaky")
        look(self)

    monkeypatch.setattr(following.Following, "_read_records", buried)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--key", FLAKY, "--wait-seconds", "1")
    assert (ran.code, "in the dead-letter queue once more: `dlq list` says why" in ran.out) == (
        terminal.Exit.LEFT,
        True,
    )


def test_wait_ends_well_once_all_is_completed(
    receiver: Receiver, stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = following.Following._read_records

    def handled(self: Any) -> None:
        stack.record(FLAKY, "COMPLETED", "flaky")
        look(self)

    monkeypatch.setattr(following.Following, "_read_records", handled)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--yes", "--key", FLAKY, "--wait")
    assert (ran.code, "1  completed  handled" in ran.out) == (terminal.Exit.OK, True)


NOT_SAID = "allow sqs:ListDeadLetterSourceQueues on it"


@pytest.fixture
def unsaid(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """Where SQS does not say whose dead-letter queue it is."""

    def refuse(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        if operation == "ListDeadLetterSourceQueues":
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not allowed"}}, operation)
        return found(self, operation, arguments)

    monkeypatch.setattr(BaseClient, "_make_api_call", refuse)
    return receiver


@pytest.mark.parametrize("command", [each for each in COMMANDS if each != ("trace",)], ids=" ".join)
def test_without_any_permission_a_command_says_what_aws_refused_and_nothing_is_changed(
    receiver: Receiver, stack: Stack, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace tells the rest of the story, and has tests of its own."""

    def refuse(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        if operation in ("DescribeStacks", "DescribeStackResources"):
            return found(self, operation, arguments)
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "not allowed"}}, operation)

    with monkeypatch.context() as denying:
        denying.setattr(BaseClient, "_make_api_call", refuse)
        ran = receiver(*command, *ARGUMENTS.get(command[-1], ["--yes"]), "--stack", "transfers")
    assert (ran.code, ran.out) == (terminal.Exit.AWS, "")
    assert "AccessDenied" in ran.err
    assert "Traceback" not in ran.err
    assert not list(Path().glob("letters*"))
    assert len(stack.keys_in(stack.dead)) == 4


# Plans that are saved.


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """Where a plan is to be written."""
    return str(tmp_path / "plan.json")


def test_a_plan_is_saved_without_bodies_and_nothing_is_done(receiver: Receiver, stack: Stack, plan: str) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan, "--json")
    counts = {"MOVE": 1, "DONE": 1, "CONFLICT": 1, "PERMANENT": 1}
    assert (ran.code, ran.json) == (0, {"plan": counts, "saved": plan})
    saved = json.loads(Path(plan).read_bytes())
    assert {each["key"]: each["verdict"] for each in saved["letters"]} == {FLAKY: "MOVE", DONE: "DONE"}
    assert {each["body_sha256"] for each in saved["letters"]} == {sha256(b).hexdigest() for b in (b"flaky", b"done")}
    assert (saved["queue"], saved["dead_letter_queue"]) == (stack.arn, stack.dead_arn)
    assert not re.search(r'"(flaky|done)"', Path(plan).read_text()), "the bodies"
    assert stack.keys_in(stack.dead) == {DONE, FLAKY, CONFLICT, CLOSED}


def test_what_is_typed_to_carry_a_plan_out_does_so(receiver: Receiver, stack: Stack, plan: str) -> None:
    """What became a dead letter in the meantime stays."""
    said = receiver("dlq", "redrive", "--stack", "transfers", "--include-permanent", "--save-plan", plan).out
    assert "3 dead letters in " in said
    (line,) = examples(said.replace(" \\\n", ""))
    stack.bury("later", "b")
    ran = receiver(*shlex.split(line)[1:], "--yes", "--json")
    assert (ran.code, ran.json["moved"], ran.json["dropped"]) == (0, 2, 1)
    assert (ran.json["left"], ran.json["missing"]) == ([], [])
    assert stack.keys_in(stack.queue) == {FLAKY, CLOSED}
    assert stack.keys_in(stack.dead) == {CONFLICT, "later"}


def test_the_history_says_from_which_saved_plan_a_dead_letter_was_moved(
    receiver: Receiver, stack: Stack, plan: str
) -> None:
    receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    assert stack.dynamodb.scan(TableName="history")["Items"] == [], "nothing was done"

    receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, "--yes")

    acts = stack.dynamodb.scan(TableName="history")["Items"]
    assert {(each["key"]["S"], each["plan"]["S"]) for each in acts} == {
        (key, json.loads(Path(plan).read_bytes())["id"]) for key in (FLAKY, DONE)
    }


def test_what_has_changed_since_or_is_gone_is_listed_and_the_rest_is_carried_out(
    receiver: Receiver, stack: Stack, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stack.bury("goes", "b")
    stack.bury("stays", "b")
    receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    stack.record("stays", "COMPLETED", "something else")
    receiver("dlq", "redrive", "--stack", "transfers", "--key", FLAKY, "--yes")
    gone = [each["message_id"] for each in json.loads(Path(plan).read_bytes())["letters"] if each["key"] == FLAKY]

    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, "--yes")

    assert ran.code == terminal.Exit.LEFT
    assert re.search(r"(?m)^ +1 +CHANGED +stays: it is no longer as planned", ran.out)
    assert "its verdict was MOVE in the plan and is CONFLICT now" in " ".join(ran.out.split())
    assert "1 moved, 1 dropped as done, 1 left in place." in ran.out
    assert "Not given out, 1 of the plan" in ran.out
    assert re.search(rf"(?m)^{FLAKY} +MOVE\n +message {gone[0]}", ran.out)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert stack.keys_in(stack.dead) == {"stays", CONFLICT, CLOSED}


def test_a_plan_is_carried_out_only_once_that_is_confirmed(
    receiver: Receiver, stack: Stack, plan: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan)
    assert (ran.code, "Move or drop 2 dead letters? [y/N]" in ran.err) == (terminal.Exit.LEFT, True)
    assert len(stack.keys_in(stack.dead)) == 4


def test_where_there_is_nothing_to_do_no_plan_is_written(receiver: Receiver, plan: str) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--group", "PermanentError", "--save-plan", plan)
    assert (ran.code, "There is nothing to do, so " in ran.out) == (terminal.Exit.LEFT, True)
    assert not Path(plan).exists()


def test_a_plan_is_never_replaced(receiver: Receiver, plan: str) -> None:
    Path(plan).write_text("reviewed")
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    assert (ran.code, "exists, and a plan is never replaced: give another name" in ran.err) == (2, True)
    assert Path(plan).read_text() == "reviewed"


def test_a_plan_that_cannot_be_written_is_named(receiver: Receiver, tmp_path: Path) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", str(tmp_path / "no" / "plan.json"))
    assert (ran.code, "plan.json: No such file or directory" in ran.err) == (2, True)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"queue": "arn:aws:sqs:us-east-1:123456789012:refunds"}, "is for dead letters of arn:aws:sqs:us-east-1:12345"),
        ({"dead_letter_queue": "arn:aws:sqs:us-east-1:1:transfers-dead"}, "is for dead letters of"),
        ({"command": "delete"}, "was made by dlq delete: it is no plan for dlq redrive"),
        ({"letters": [{"message_id": "m"}]}, "holds no plan that this version reads: letters.0.key Field required"),
        ({"rate": 7}, "holds no plan that this version reads: rate Unexpected keyword argument"),
        ({"letters": None}, "holds no plan that this version reads: letters Input should be a valid array"),
    ],
)
def test_a_plan_for_something_else_is_refused(
    receiver: Receiver, stack: Stack, plan: str, changes: dict[str, Any], says: str
) -> None:
    receiver("dlq", "redrive", "--stack", "transfers", "--save-plan", plan)
    Path(plan).write_text(json.dumps(json.loads(Path(plan).read_bytes()) | changes))
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, "--yes")
    assert (ran.code, ran.out) == (terminal.Exit.USAGE, "")
    assert says in ran.err
    assert "Traceback" not in ran.err
    assert len(stack.keys_in(stack.dead)) == 4


@pytest.mark.parametrize("text", ["", "[]", "no JSON", '{"command": "redrive"', "\x00"])
def test_a_file_without_a_plan_is_refused(receiver: Receiver, plan: str, text: str) -> None:
    Path(plan).write_text(text)
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, "--yes")
    assert (ran.code, "holds no plan that this version reads" in ran.err) == (terminal.Exit.USAGE, True)
    missing = receiver("dlq", "redrive", "--stack", "transfers", "--plan", f"{plan}.nowhere", "--yes")
    assert (missing.code, "nowhere: No such file or directory" in missing.err) == (terminal.Exit.USAGE, True)


@pytest.mark.parametrize(
    "given",
    [
        ("--group", "g"),
        ("--limit", "1"),
        ("--include-permanent",),
        ("--force",),
        ("--since", "2h"),
        ("--save-plan", "x"),
    ],
    ids=" ".join,
)
def test_a_plan_says_what_is_meant_and_nothing_else_does(
    receiver: Receiver, stack: Stack, plan: str, given: tuple[str, ...]
) -> None:
    ran = receiver("dlq", "redrive", "--stack", "transfers", "--plan", plan, *given, "--yes")
    assert (ran.code, f"--plan says what is meant: it takes no {given[0]}" in ran.err) == (terminal.Exit.USAGE, True)


# dlq redrive --native.


@pytest.fixture
def move_tasks(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubber]:
    """A client of SQS that answers what it is stubbed to: moto has no move tasks, and no emulator has."""
    monkeypatch.setattr(queue, "POLL_SECONDS", 0)
    client = SESSION.client("sqs")
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


# Finding the consumer.


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


# In a terminal.


class Keyboard:
    """The command in a pseudo-terminal: what it shows, and what is typed when it has shown something."""

    def __init__(self, *arguments: str) -> None:
        self.shown = ""
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            # What was open is not its own: a pipe that it held would look to its reader as if we still had it.
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            self._be_the_command(arguments)

    def _be_the_command(self, arguments: tuple[str, ...]) -> NoReturn:
        code = 70
        try:
            sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115  # numbers
            command_line.main(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
            sys.stdout.flush()
        finally:
            os._exit(code)

    def until(self, text: str) -> Keyboard:
        """Read until this is shown."""
        while text not in self.shown:
            self._read()
        return self

    def type(self, text: str) -> Keyboard:
        os.write(self.terminal, text.encode())
        return self

    def interrupt(self, expected: str) -> Keyboard:
        """Press Ctrl-C until this is shown.

        Once more, as a person would: a signal that comes just before the program goes to sleep in a read is seen only
        when the read is over.
        """
        while expected not in self.shown:
            self.type("\x03")
            deadline = time.monotonic() + 5
            while expected not in self.shown and self._wait(deadline - time.monotonic()):
                self._read()
        return self

    def _wait(self, seconds: float) -> bool:
        return bool(select.select([self.terminal], [], [], max(0.0, seconds))[0])

    def _read(self) -> None:
        if not self._wait(20):
            os.kill(self.pid, signal.SIGKILL)
            pytest.fail(f"nothing more came after: {self.shown}")
        try:
            more = os.read(self.terminal, 65536)
        except OSError:  # Linux says so where the other end is closed
            more = b""
        if not more:
            raise EOFError(self.shown)
        self.shown += more.decode()

    def end(self) -> int:
        """Read to the end; the exit code."""
        with contextlib.suppress(EOFError):
            while True:
                self._read()
        os.close(self.terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


in_a_terminal = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # fork, beside moto's threads


@in_a_terminal
def test_show_in_a_terminal(stack: Stack) -> None:
    keyboard = Keyboard("show", FLAKY, "--stack", "transfers")
    assert keyboard.end() == 0
    assert "ConnectionError at app.ledger:7" in keyboard.shown


@in_a_terminal
def test_stuck_in_a_terminal_asks_and_scans(stack: Stack) -> None:
    keyboard = Keyboard("stuck", "--stack", "transfers")
    assert keyboard.until("Scan? [y/N]").type("y\n").end() == 0
    assert "Claims that nobody settled" in keyboard.shown


@in_a_terminal
def test_list_in_a_terminal(stack: Stack) -> None:
    keyboard = Keyboard("dlq", "list", "--stack", "transfers")
    assert keyboard.end() == 0
    assert "account closed" in keyboard.shown


@in_a_terminal
def test_redrive_in_a_terminal_asks_and_moves_with_a_bar(stack: Stack) -> None:
    keyboard = Keyboard("dlq", "redrive", "--stack", "transfers", "--rate", "10")
    assert keyboard.until("Move or drop 2 dead letters? [y/N]").type("y\n").end() == 1
    assert "moving" in keyboard.shown
    assert "2/2" in keyboard.shown
    assert "1 moved, 1 dropped as done, 2 left in place." in keyboard.shown


@in_a_terminal
def test_a_redrive_of_nothing_draws_no_bar(stack: Stack) -> None:
    keyboard = Keyboard("dlq", "redrive", "--stack", "transfers", "--key", "nosuch")
    assert keyboard.end() == 1
    assert "0/0" not in keyboard.shown


@pytest.mark.parametrize("command", [("stuck",), ("dlq", "redrive")], ids=" ".join)
def test_the_end_of_input_leaves_the_question_on_a_line_of_its_own(
    receiver: Receiver, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    ran = receiver(*command, "--stack", "transfers")
    assert "? [y/N] \nNot confirmed: nothing was done." in ran.err


@in_a_terminal
def test_ctrl_d_at_the_question_does_nothing(stack: Stack) -> None:
    keyboard = Keyboard("stuck", "--stack", "transfers")
    assert keyboard.until("[y/N]").type("\x04").end() == 1
    assert "[y/N] \r\nNot confirmed" in keyboard.shown


@in_a_terminal
def test_ctrl_c_at_the_question_does_nothing(stack: Stack) -> None:
    keyboard = Keyboard("dlq", "redrive", "--stack", "transfers")
    assert keyboard.until("[y/N]").interrupt("Not confirmed: nothing was done.").end() == 1


@in_a_terminal
def test_ctrl_c_while_it_moves_stops_between_two_requests(stack: Stack) -> None:
    for number in range(20):
        stack.bury(f"m-{number}", "b")
    keyboard = Keyboard("dlq", "redrive", "--stack", "transfers", "--rate", "4", "--yes")
    assert keyboard.until("/22").type("\x03").end() == terminal.Exit.STOPPED
    assert "stopping after this request" in keyboard.shown
    told = re.search(r"(\d+) moved, ([01]) dropped as done, (\d+) left in place", keyboard.shown)
    assert told is not None
    moved, dropped, left = map(int, told.groups())
    assert moved < 20, "it stopped before the end"
    assert moved + dropped + left == 24, "each is counted"
