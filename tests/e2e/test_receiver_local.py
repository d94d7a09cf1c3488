"""`receiver local`: small projects, as users have them, are tried on a local cloud, and it says what became of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import MINISTACK
from harness.deploy import HOST_BUILD
from tests import ctrl_c
from tests.e2e.test_cloud import eventually, nothing_left, on_linux

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 200
PROGRAM = f"""
import sys
from idempotent_receiver.local import cloud
cloud.interpreter = lambda: {str(MINISTACK / "bin" / "python")!r}
from idempotent_receiver.operations.cli.receiver import main
main(sys.argv[1:])
"""
"""The command, in whose own environment there is no ministack."""

TEMPLATE = """
Transform: AWS::Serverless-2016-10-31
Parameters:
  Word: {Type: String}
Resources:
  Dead:
    Type: AWS::SQS::Queue
  Orders:
    Type: AWS::SQS::Queue
    Properties:
      VisibilityTimeout: 180
      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 5}
  Tables:
    Type: AWS::CloudFormation::Stack
    Properties:
      TemplateURL: ./tables.yaml
  Consumer:
    Type: AWS::Serverless::Function
    Properties:
      CodeUri: src/
      Handler: handler.lambda_handler
      Runtime: python3.13
      Timeout: 6
      Environment:
        Variables:
          WORD: !Ref Word
          RECORDS: !GetAtt Tables.Outputs.Records
          PLACED: !GetAtt Tables.Outputs.Placed
      Events:
        Messages:
          Type: SQS
          Properties:
            Queue: !GetAtt Orders.Arn
            FunctionResponseTypes: [ReportBatchItemFailures]
"""
TABLES = """
Resources:
  Records:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: id, AttributeType: S}]
      KeySchema: [{AttributeName: id, KeyType: HASH}]
  Placed:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: order_id, AttributeType: S}]
      KeySchema: [{AttributeName: order_id, KeyType: HASH}]
Outputs:
  Records: {Value: !Ref Records}
  Placed: {Value: !Ref Placed}
"""
PROTECTED = """
import os
from idempotent_receiver import DynamoDBStore, PermanentError, Transaction, sqs_consumer

assert os.environ["WORD"] == "given"

@sqs_consumer(DynamoDBStore(os.environ["RECORDS"]))
def lambda_handler(order: dict, tx: Transaction) -> None:
    if order["order_id"] == "refused":
        raise PermanentError("no such customer")
    tx.put(TableName=os.environ["PLACED"], Item={"order_id": order["order_id"]})
"""
BY_ORDER = """
import functools, os
from idempotent_receiver import DynamoDBStore, body_field, sqs_consumer

def logged(handler):
    @functools.wraps(handler)
    def handle(event, context):
        return handler(event, context)
    return handle

@logged
@sqs_consumer(DynamoDBStore(os.environ["RECORDS"], namespace="orders"), key=body_field("order_id"))
async def lambda_handler(order: dict) -> str:
    return order["order_id"]
"""
PLAIN = """
import json

def lambda_handler(event, context):
    for record in event["Records"]:
        print(json.loads(record["body"])["order_id"])
    return {"batchItemFailures": []}
"""
WITHOUT_CLAIMS = PROTECTED.replace('["RECORDS"])', '["RECORDS"]), effects="transaction"')
BROKEN = "import no_such_module\n"


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def answer(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def messages(self) -> dict[str, dict[str, Any]]:
        return {each["name"]: each for each in self.answer["messages"]}


def project(folder: Path, handler: str, orders: tuple[str, ...] = ("one", "two"), template: str = TEMPLATE) -> Path:
    """A project in this folder, whose code folder has the library already; return its template."""
    shutil.copytree(HOST_BUILD, folder / "src", copy_function=os.link, ignore=shutil.ignore_patterns("app"))
    (folder / "src" / "handler.py").write_text(handler)
    (folder / "tables.yaml").write_text(TABLES)
    (folder / "template.yaml").write_text(template)
    (folder / "events").mkdir()
    for order in orders:
        event = {"Records": [{"messageId": order, "body": json.dumps({"order_id": order})}]}
        (folder / "events" / f"{order}.json").write_text(json.dumps(event))
    return folder / "template.yaml"


def begin(template: Path, *options: str) -> subprocess.Popen[str]:
    """Start the command on a project; its temporary files go to a folder of their own."""
    temporary = template.parent / "temporary"
    temporary.mkdir()
    with ctrl_c.heeded():
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, "local", template.name, "--parameter", "Word=given", *options],
            cwd=template.parent,
            env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "80"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def ended(program: subprocess.Popen[str]) -> Ran:
    try:
        out, err = program.communicate(timeout=PATIENCE_SECONDS)
    finally:
        program.kill()
    return Ran(program.returncode, out, err)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projects")


@pytest.fixture(scope="module")
def programs(folder: Path) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """All at the same time: they mostly wait for leases."""
    fifo = TEMPLATE.replace(
        "      VisibilityTimeout", "      FifoQueue: true\n      QueueName: orders.fifo\n      VisibilityTimeout"
    ).replace(
        "  Dead:\n    Type: AWS::SQS::Queue",
        "  Dead:\n    Type: AWS::SQS::Queue\n    Properties: {FifoQueue: true, QueueName: dead.fifo}",
    )
    begun = {
        "protected": begin(project(folder / "protected", PROTECTED, ("one", "two", "refused")), "--json"),
        "without claims": begin(project(folder / "without-claims", WITHOUT_CLAIMS)),
        "by order": begin(project(folder / "by-order", BY_ORDER), "--json"),
        "fifo": begin(project(folder / "fifo", PROTECTED, template=fifo), "--json"),
        "plain": begin(project(folder / "plain", PLAIN)),
    }
    try:
        yield begun
    finally:
        for program in begun.values():
            program.kill()


@pytest.fixture(scope="module")
def runs(programs: dict[str, subprocess.Popen[str]]) -> dict[str, Ran]:
    return {name: ended(program) for name, program in programs.items()}


def test_everything_takes_effect_once_though_workers_die(runs: dict[str, Ran]) -> None:
    """Every message was delivered again, and a run that was killed was made up for."""
    ran = runs["protected"]
    assert ran.code == 0, ran.err
    assert {name: each["verdict"] for name, each in ran.messages.items()} == {
        "one.json": "once",
        "two.json": "once",
        "refused.json": "dead letter",
    }
    done = [each for each in ran.messages.values() if each["verdict"] == "once"]
    assert all(each["record"] == "COMPLETED" and each["deliveries"] >= 2 for each in done)
    assert sorted(each["runs"] for each in done) == [1, 2]
    assert ran.messages["refused.json"]["why"] == "no such customer"
    assert sorted(ran.answer["workers_killed"]) == ["before it had answered", "before it was recorded"]


def test_a_key_of_its_own_is_sent_as_two_messages_and_runs_for_one(runs: dict[str, Ran]) -> None:
    """Here with a coroutine function, and another's decorator around the consumer."""
    ran = runs["by order"]
    assert ran.code == 0, ran.err
    assert {(each["key"], each["sent"], each["verdict"]) for each in ran.messages.values()} == {
        ("one", 2, "once"),
        ("two", 2, "once"),
    }
    assert all(each["deliveries"] >= 3 for each in ran.messages.values())


def test_without_claims_everything_takes_effect_once_though_two_may_run_it(runs: dict[str, Ran]) -> None:
    """A second worker is offered the first message while its handler runs, and runs it too if it is quick enough."""
    ran = runs["without claims"]
    assert ran.code == 0, ran.err
    assert "2 messages: 2 once" in ran.out
    assert "With effects='transaction' two workers may run one message" in ran.out
    assert "2 workers killed" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_a_fifo_queues_messages_take_effect_once(runs: dict[str, Ran]) -> None:
    ran = runs["fifo"]
    assert ran.code == 0, ran.err
    assert [each["verdict"] for each in ran.messages.values()] == ["once", "once"]


def test_a_handler_without_the_library_is_found_out(runs: dict[str, Ran]) -> None:
    """The control: what is promised here is not what a queue does by itself."""
    ran = runs["plain"]
    assert ran.code == 1, ran.err
    assert "2 messages: 2 TWICE" in ran.out
    assert "does not seem to be made by sqs_consumer" in ran.out


@on_linux
def test_nothing_is_left(runs: dict[str, Ran], folder: Path) -> None:
    assert runs
    assert all(nothing_left(each / "temporary") for each in folder.iterdir())


@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_trial_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    program = begin(project(tmp_path, PROTECTED))
    assert eventually(lambda: any(tmp_path.glob("temporary/receiver-local-*/log.jsonl")))
    os.killpg(program.pid, number)
    assert ended(program).code == 130
    assert nothing_left(tmp_path / "temporary")


WITHOUT_QUEUE = TEMPLATE.partition("      Events:")[0]
OTHERS_QUEUE = TEMPLATE.replace("!GetAtt Orders.Arn", "arn:aws:sqs:us-east-1:000000000000:theirs")
BY_MAKEFILE = TEMPLATE.replace(
    "    Properties:\n      CodeUri", "    Metadata:\n      BuildMethod: makefile\n    Properties:\n      CodeUri"
)


@pytest.mark.parametrize(
    ("handler", "template", "said"),
    [
        (BROKEN, TEMPLATE, "handler.lambda_handler does not start: No module named 'no_such_module'"),
        (PLAIN, WITHOUT_QUEUE, "no function of the template consumes a queue"),
        (PLAIN, TEMPLATE.replace("src/", "source/"), "there is no such folder: correct CodeUri"),
        (PLAIN, TEMPLATE.replace("./tables.yaml", "./table.yaml"), "table.yaml, and there is none"),
        (PLAIN, TEMPLATE.replace("Resources:", "Resources: ["), "template.yaml cannot be deployed"),
        (
            PLAIN,
            TEMPLATE.replace("AWS::SQS::Queue", "AWS::SQS::Queues"),
            "Unrecognized resource types: [AWS::SQS::Queues]",
        ),
        (PLAIN, OTHERS_QUEUE, "the queue theirs is not the template's own"),
        (PLAIN, BY_MAKEFILE, "receiver local .aws-sam/build/template.yaml"),
    ],
)
def test_what_keeps_a_trial_from_beginning_is_told_with_its_remedy(
    tmp_path: Path, handler: str, template: str, said: str
) -> None:
    ran = ended(begin(project(tmp_path, handler, template=template)))
    assert ran.code == 2, ran.err
    assert said in " ".join(ran.err.split())
    assert "Traceback" not in ran.err
    assert nothing_left(tmp_path / "temporary")
