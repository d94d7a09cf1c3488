"""A deployed stack with dead letters and records, and the command `receiver` that looks at it."""

from __future__ import annotations

import io
import json
import re
import shlex
import zipfile
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar

import boto3
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from harness.cloud import ROOT
from idempotent_receiver.clock import SystemClock
from idempotent_receiver.errors import Failure
from idempotent_receiver.operations.cli import receiver as command_line
from idempotent_receiver.sqs.dead_letter import Stamp
from idempotent_receiver.transaction.outbox import STAMP
from tests import moto_state
from tests.unit.operations.dead_letters.acts import create

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

REGION = "us-east-1"
QUEUES = f"https://sqs.{REGION}.amazonaws.com/123456789012"
ARN = f"arn:aws:sqs:{REGION}:123456789012"
ARN_OF_THE_STACK = f"arn:aws:cloudformation:{REGION}:123456789012:stack/transfers/1"
LASTING = 4_000_000_000
LONG_AGO_MS = 1_700_000_000_000
DONE, FLAKY, CLOSED, CONFLICT, STUCK = (f"5f2c1d64-000{n}-4000-8000-000000000001" for n in range(1, 6))
DEAD = {DONE, FLAKY, CLOSED, CONFLICT}
SECRET = "4929-1234-5678-9012"
TRANSIENT = Failure(type="ConnectionError", at="app.ledger:7").to_json()
FOR_GOOD = Failure(type="PermanentError", text="account closed", permanent=True).to_json()
OUTPUTS = {
    "RecordsTable": "records",
    "ConsumerDescription": '{"key":"message_id","payload":{},"retention_days":30}',
    "HistoryTable": "history",
    "ArchiveBucket": "archive",
    "ConsumerLogGroup": "/aws/lambda/transfers",
}

CONSUMERS: dict[str, dict[str, Any]] = {
    "ids.json": {"key": "message_id"},
    "transfers.json": {"key": {"body_field": "transfer_id"}, "payload": {}, "namespace": "bank"},
    "orders.json": {"key": {"body_field": "id"}, "payload": {}, "namespace": "bank"},
    "week.json": {"key": "message_id", "retention_days": 7},
    "30 days.json": {"key": "message_id", "retention_days": 30},
    **{f"{each}.json": {"key": "message_id", "namespace": each} for each in ("api", "bank", "shop", "wrong")},
}
"""What `--consumer` may name in the folder of a test."""


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

    @property
    def said(self) -> str:
        """What it told people, as it was before it was wrapped."""
        return " ".join(f"{self.out} {self.err}".split())


class CloudFormation:
    """One stack, `transfers`. moto's CloudFormation wants more than this project has installed."""

    def __init__(self, outputs: dict[str, str]) -> None:
        self._outputs = outputs

    def describe_stacks(self, *, StackName: str) -> Any:  # noqa: N803  # boto3's name
        if StackName not in ("transfers", ARN_OF_THE_STACK):
            error = {"Code": "ValidationError", "Message": f"Stack with id {StackName} does not exist"}
            raise ClientError({"Error": error}, "DescribeStacks")
        outputs = [{"OutputKey": name, "OutputValue": value} for name, value in self._outputs.items()]
        # AWS leaves out what a stack has none of.
        return {"Stacks": [{"StackName": "transfers", **({"Outputs": outputs} if outputs else {})}]}


@cache
def one_session() -> boto3.Session:
    """One for all: reading AWS's service models is most of the time that a client takes to make."""
    return boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION)


@cache
def client(service: str) -> Any:
    """A client for all tests to look round with; what is tested makes its own."""
    return one_session().client(service)


def acts() -> list[dict[str, str]]:
    """All that the history has."""
    items = client("dynamodb").scan(TableName="history")["Items"]
    return [{name: str(next(iter(held.values()))) for name, held in each.items()} for each in items]


class Stack:
    """A stack named `transfers`, with a dead letter of each kind in its queue and something stuck in its table."""

    _deployed: ClassVar[moto_state.Backends | None] = None
    """The first of a process, without its function and its dead letters."""

    def __init__(self) -> None:
        self.sqs, self.dynamodb = client("sqs"), client("dynamodb")
        self.queue, self.dead = (f"{QUEUES}/{name}" for name in ("transfers", "transfers-dead"))
        self.arn, self.dead_arn = (f"{ARN}:{name}" for name in ("transfers", "transfers-dead"))
        self.outputs = {**OUTPUTS, "QueueUrl": self.queue, "DeadLetterQueueUrl": self.dead}
        if Stack._deployed is None:
            self._deploy()
            Stack._deployed = moto_state.taken()
        else:
            moto_state.restore(Stack._deployed)
        self.map("transfers")
        for key, body in ((DONE, "done"), (FLAKY, "flaky"), (CONFLICT, "conflict")):
            self.bury(key, body)
        self.bury(CLOSED, "closed", reason="account closed", error_type="PermanentError")

    def _deploy(self) -> None:
        self.queues("transfers")
        create(self.dynamodb, "records", "id")
        create(self.dynamodb)
        client("s3").create_bucket(Bucket="archive")
        client("logs").create_log_group(logGroupName="/aws/lambda/transfers")
        self.record(DONE, "COMPLETED", "done", data='{"posted": "t-1"}')
        self.record(FLAKY, "FAILED", "flaky", error=TRANSIENT, attempts=5)
        self.record(CLOSED, "FAILED", "closed", error=FOR_GOOD)
        self.record(CONFLICT, "COMPLETED", "something else")
        self.record(STUCK, "INPROGRESS", "stuck", in_progress_expiration=LONG_AGO_MS, owner="request-1", attempts=2)

    def queues(self, name: str, suffix: str = "") -> list[str]:
        """A queue and its dead-letter queue."""
        attributes = {"FifoQueue": "true"} if suffix else {}
        policy = json.dumps({"deadLetterTargetArn": f"{ARN}:{name}-dead{suffix}", "maxReceiveCount": 5})
        dead = self.sqs.create_queue(QueueName=f"{name}-dead{suffix}", Attributes=attributes)["QueueUrl"]
        attributes |= {"RedrivePolicy": policy}
        return [self.sqs.create_queue(QueueName=f"{name}{suffix}", Attributes=attributes)["QueueUrl"], dead]

    def map(self, name: str) -> None:
        """A function, and the mapping by which it reads the queue once that is enabled."""
        functions, archive = client("lambda"), io.BytesIO()
        zipfile.ZipFile(archive, "w").writestr("handler.py", "")
        functions.create_function(
            FunctionName=name,
            Role=client("iam").create_role(RoleName=name, AssumeRolePolicyDocument="{}")["Role"]["Arn"],
            Runtime="python3.13",
            Handler="handler.lambda_handler",
            Code={"ZipFile": archive.getvalue()},
        )
        functions.create_event_source_mapping(FunctionName=name, EventSourceArn=self.arn, Enabled=False)

    def bury(self, key: str, body: str = "b", *, url: str = "", attributes: Any = None, **stamped: str) -> None:
        fifo = url.endswith(".fifo")
        stamp = Stamp(key=key, original_id=key, queue=f"{ARN}:t.fifo" if fifo else self.arn, **stamped).to_json()
        attributes = {**(attributes or {}), STAMP: {"DataType": "String", "StringValue": stamp}}
        group: Any = {"MessageGroupId": "g", "MessageDeduplicationId": key} if fifo else {}
        self.sqs.send_message(QueueUrl=url or self.dead, MessageBody=body, MessageAttributes=attributes, **group)

    def record(self, key: str, status: str, body: str = "b", **attributes: Any) -> None:
        fingerprint = sha256(body.encode()).hexdigest()
        item = {"id": key, "status": status, "version": "v", "validation": fingerprint, "attempts": 1}
        item |= {"expiration": LASTING, **attributes}
        typed = {name: {"N": str(held)} if isinstance(held, int) else {"S": held} for name, held in item.items()}
        self.dynamodb.put_item(TableName="records", Item=typed)

    def log(self, *lines: dict[str, Any], ago_seconds: int = 0) -> None:
        """Lines in the log of the function, as Powertools writes them."""
        group, stream = self.outputs["ConsumerLogGroup"], "s"
        now_ms = SystemClock().epoch_ms() - ago_seconds * 1000
        client("logs").create_log_stream(logGroupName=group, logStreamName=stream)
        events: Any = [{"timestamp": now_ms, "message": json.dumps(each)} for each in lines]
        client("logs").put_log_events(logGroupName=group, logStreamName=stream, logEvents=events)

    def forget(self, *keys: str) -> None:
        for key in keys:
            self.dynamodb.delete_item(TableName="records", Key={"id": {"S": key}})

    def received(self, url: str, **asked: Any) -> list[Any]:
        """What can be received, which stays where it is and is hidden from now on."""
        asked = {"MaxNumberOfMessages": 10, "VisibilityTimeout": 600, "MessageAttributeNames": ["All"], **asked}
        found: list[Any] = []
        while more := self.sqs.receive_message(QueueUrl=url, **asked).get("Messages"):
            found += more
        return found

    def looked_at(self) -> list[Any]:
        """The dead letters, which anybody can receive at once."""
        found = self.received(self.dead)
        for each in found:
            self.sqs.change_message_visibility(
                QueueUrl=self.dead, ReceiptHandle=each["ReceiptHandle"], VisibilityTimeout=0
            )
        return found

    def keys_in(self, url: str) -> set[str]:
        """The keys of what can be received."""
        return {json.loads(each["MessageAttributes"][STAMP]["StringValue"])["key"] for each in self.received(url)}

    @property
    def acts(self) -> list[dict[str, str]]:
        """All that the history has."""
        return acts()

    def untouched(self) -> bool:
        """Whether nothing was moved, dropped or begun."""
        return (self.keys_in(self.queue), self.keys_in(self.dead), self.acts) == (set(), DEAD, [])


def session(*, profile_name: str | None, **given: Any) -> boto3.Session:
    return one_session() if profile_name is None else boto3.Session(profile_name=profile_name, **given)


@contextmanager
def answered(answer: Callable[[str, dict[str, Any]], Any]) -> Iterator[None]:
    """AWS answers this to an operation with these arguments, or else as ever."""

    def call(self: Any, operation: str, arguments: Any, found: Any = BaseClient._make_api_call) -> Any:
        own = answer(operation, arguments)
        return found(self, operation, arguments) if own is None else own

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BaseClient, "_make_api_call", call)
        yield


@contextmanager
def denied(*operations: str, code: str = "AccessDeniedException") -> Iterator[None]:
    """AWS refuses these operations; all, if none is named. moto allows everything.

    A transaction needs the permission of each of its items, and is refused whole.
    """

    def refuse(operation: str, arguments: dict[str, Any]) -> None:
        items = arguments["TransactItems"] if operation == "TransactWriteItems" else []
        needed = [operation, *(f"{kind.removesuffix('Item')}Item" for each in items for kind in each)]
        refused = [each for each in needed if each in operations or not operations]
        if refused:
            error = {"Code": code, "Message": f"User: x is not authorized to perform: {refused[-1]}"}
            raise ClientError({"Error": error}, operation)

    with answered(refuse):
        yield


class Receiver:
    """Runs the command, as a shell would; `on` for the stack `transfers`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, line: str, *more: str) -> Ran:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command_line.main([*shlex.split(line), *more])
        out, err = self._capsys.readouterr()
        return Ran(int(ended.value.code or 0), out, err)

    def on(self, line: str, *more: str) -> Ran:
        return self(line, *more, "--stack", "transfers")


ACTING = ("dlq redrive --yes", "dlq archive --yes", "dlq redrive --from-archive --yes")
ACTING += ("dlq delete --because test --all --yes", f"dlq resend --key {FLAKY} --body body.json --yes")
COMMANDS = ("stuck --yes", f"trace {FLAKY}", "dlq list", "dlq history", "dlq list --out letters.jsonl")
COMMANDS += ("dlq list --out letters.html", "pause --yes", "resume --yes", *ACTING)


def examples(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("receiver ")]


def advised(shown: str) -> list[list[str]]:
    """The commands in an answer, as a shell takes them apart."""
    found = re.findall(r"(?m)^    ((?:receiver|aws) (?:.*\\\n)*.*)$", shown)
    return [shlex.split(each.replace("\\\n", "")) for each in found]


def section_of(title: str) -> str:
    """What docs/operating.md has below a heading."""
    text = (ROOT / "docs/operating.md").read_text()
    (section,) = re.findall(rf"(?s)\n### {title}\n(.*?)(?=\n##)", text)
    return str(section)
