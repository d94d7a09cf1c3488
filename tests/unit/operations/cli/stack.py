"""A deployed stack with dead letters and records, and the command `receiver` that looks at it."""

from __future__ import annotations

import io
import json
import re
import shlex
import zipfile
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from idempotent_receiver.operations.cli import receiver as command_line
from idempotent_receiver.sqs.dead_letter import STAMP, Stamp

REGION = "us-east-1"
LASTING = 4_000_000_000
LONG_AGO_MS = 1_700_000_000_000
DONE, FLAKY, CLOSED, CONFLICT, STUCK = (f"5f2c1d64-000{n}-4000-8000-000000000001" for n in range(1, 6))
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
def one_session() -> boto3.Session:
    """One for all: reading AWS's service models is most of the time that a client takes to make."""
    return boto3.Session(aws_access_key_id="testing", aws_secret_access_key="testing", region_name=REGION)


@cache
def client(service: str) -> Any:
    """A client for all tests to look round with; what is tested makes its own."""
    return one_session().client(service)


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
    return one_session() if profile_name is None else boto3.Session(profile_name=profile_name, **given)


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


def advised(shown: str) -> list[list[str]]:
    """The commands in an answer, as a shell takes them apart."""
    found = re.findall(r"(?m)^    ((?:receiver|aws) (?:.*\\\n)*.*)$", shown)
    return [shlex.split(each.replace("\\\n", "")) for each in found]


def section_of(title: str) -> str:
    """What docs/operating.md has below a heading."""
    text = Path("docs/operating.md").read_text()
    (section,) = re.findall(rf"(?s)\n### {title}\n(.*?)(?=\n##)", text)
    return str(section)


NOT_SAID = "allow sqs:ListDeadLetterSourceQueues on it"
