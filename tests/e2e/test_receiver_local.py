"""`receiver local`: small projects, as users have them, are tried on a local cloud, and it says what became of them."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import MINISTACK, Cloud
from harness.deploy import HOST_BUILD
from idempotent_receiver.local.server import free_port
from tests import ctrl_c
from tests.e2e.test_cloud import eventually, nothing_left, on_linux

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE_SECONDS = 300
AT_ONCE = 3
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
OWN_CLIENT = """
import os, time, uuid, boto3
from idempotent_receiver import DynamoDBStore, sqs_consumer

placed = boto3.resource("dynamodb").Table(os.environ["PLACED"])

@sqs_consumer(DynamoDBStore(os.environ["RECORDS"]))
def lambda_handler(order: dict) -> None:
    print("placing", order["order_id"])
    values = {":one": 1, ":now": int(time.time()), ":id": str(uuid.uuid4())}
    change = "ADD orders :one SET placed_at = :now, asked_by = :id"
    placed.update_item(Key={"order_id": order["order_id"]}, UpdateExpression=change, ExpressionAttributeValues=values)
"""
FORGETS_TO_RETURN = PROTECTED.replace(
    "@sqs_consumer",
    """
import functools

def logged(handler):
    @functools.wraps(handler)
    def handle(event, context):
        handler(event, context)
    return handle

@logged
@sqs_consumer""",
)
OTHERS_QUEUE = TEMPLATE.replace("!GetAtt Orders.Arn", "arn:aws:sqs:eu-west-1:123456789012:theirs")
"""A queue that is there already, on AWS: in another account and region than the local cloud's."""
BROKEN = "import no_such_module\n"
WITHOUT_PARTIAL = TEMPLATE.replace("            FunctionResponseTypes: [ReportBatchItemFailures]\n", "")
WITHOUT_REDRIVE = TEMPLATE.replace(
    "      RedrivePolicy: {deadLetterTargetArn: !GetAtt Dead.Arn, maxReceiveCount: 5}\n", ""
)
BY_MAKEFILE = TEMPLATE.replace(
    "    Properties:\n      CodeUri",
    "    Metadata: {BuildMethod: makefile, ContextPath: ., WorkingDirectory: .}\n    Properties:\n      CodeUri",
)
WATCHED = BY_MAKEFILE.replace(
    "  Word: {Type: String}\n",
    "  Word: {Type: String}\n  DeadLetterArrivals: {Type: String, Default: 'true'}\n",
).replace(
    "  Tables:\n",
    """  Watch:
    Type: AWS::CloudFormation::Stack
    Properties:
      TemplateURL: watch.yaml
      Parameters: {Queue: !GetAtt Dead.QueueName, DeadLetterArrivals: !Ref DeadLetterArrivals}
  Tables:
""",
)
FLAT = (
    BY_MAKEFILE.replace("!GetAtt Tables.Outputs.", "!Ref ").replace(
        "  Tables:\n    Type: AWS::CloudFormation::Stack\n    Properties:\n      TemplateURL: ./tables.yaml\n",
        TABLES.partition("Resources:\n")[2].partition("Outputs:")[0],
    )
    + """
Outputs:
  QueueUrl: {Value: !Ref Orders}
  DeadLetterQueueUrl: {Value: !Ref Dead}
  RecordsTable: {Value: !Ref Records}
  ConsumerName: {Value: !Ref Consumer}
  ConsumerDescription: {Value: '{"key":"message_id"}'}
"""
)
"""All in one template, as people who use `sam local` have it."""
WATCH = """
Parameters:
  Queue: {Type: String}
  DeadLetterArrivals: {Type: String}
Conditions:
  WatchesArrivals: !Equals [!Ref DeadLetterArrivals, 'true']
Resources:
  Letters:
    Type: AWS::CloudWatch::Alarm
    Properties:
      Namespace: AWS/SQS
      MetricName: ApproximateNumberOfMessagesVisible
      Dimensions: [{Name: QueueName, Value: !Ref Queue}]
      Statistic: Maximum
      Period: 60
      EvaluationPeriods: 1
      Threshold: 0
      ComparisonOperator: GreaterThanThreshold
  Arrivals:
    Type: AWS::CloudWatch::Alarm
    Condition: WatchesArrivals
    Properties:
      Metrics: [{Id: math, Expression: DIFF(m)}]
      EvaluationPeriods: 1
      Threshold: 0
      ComparisonOperator: GreaterThanThreshold
"""
"""What no local cloud takes is off by the template's own parameter."""
MAKEFILE = """
build-Consumer:
	test "$(BUILD_FOR)" = host && "$(PYTHON)" -c ""
	cp -R src/. "$(ARTIFACTS_DIR)"
"""


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
    for name, text in {"tables.yaml": TABLES, "watch.yaml": WATCH, "Makefile": MAKEFILE}.items():
        (folder / name).write_text(text)
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
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "local", template.name, "--parameter", "Word=given", *options],
        cwd=template.parent,
        env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "80"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(program: subprocess.Popen[str], number: signal.Signals | None = None) -> Ran:
    """What came of it, once it has ended by itself or by this signal."""
    if number is not None and program.poll() is None:
        os.killpg(program.pid, number)
    try:
        out, err = program.communicate(timeout=PATIENCE_SECONDS)
    finally:
        program.terminate()
    return Ran(program.returncode, out, err)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projects")


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, Ran]:
    """A few at the same time: they often wait for leases."""
    fifo = TEMPLATE.replace(
        "      VisibilityTimeout", "      FifoQueue: true\n      QueueName: orders.fifo\n      VisibilityTimeout"
    ).replace(
        "  Dead:\n    Type: AWS::SQS::Queue",
        "  Dead:\n    Type: AWS::SQS::Queue\n    Properties: {FifoQueue: true, QueueName: dead.fifo}",
    )
    projects: dict[str, tuple[str, str, tuple[str, ...], tuple[str, ...]]] = {
        "protected": (PROTECTED, TEMPLATE, ("one", "two", "refused"), ("--json",)),
        "by-makefile": (PROTECTED, WATCHED, ("one", "two"), ("--json",)),
        "without-claims": (WITHOUT_CLAIMS, TEMPLATE, ("one", "two"), ()),
        "others-queue": (PROTECTED, OTHERS_QUEUE, ("one", "refused"), ("--json",)),
        "by-order": (BY_ORDER, TEMPLATE, ("one", "two"), ("--json", "--accept-unseen")),
        "fifo": (PROTECTED, fifo, ("one", "two"), ("--json",)),
        "plain": (PLAIN, TEMPLATE, ("one", "two"), ()),
        "own-client": (OWN_CLIENT, TEMPLATE, ("one", "two"), ("--json", "--logs")),
        "forgets-to-return": (FORGETS_TO_RETURN, TEMPLATE, ("one", "two"), ("--json",)),
        "without-partial": (PROTECTED, WITHOUT_PARTIAL, ("one", "two"), ("--json",)),
        "without-redrive": (PROTECTED, WITHOUT_REDRIVE, ("one", "two"), ()),
    }

    def tried(name: str) -> Ran:
        handler, template, orders, options = projects[name]
        return ended(begin(project(folder / name, handler, orders, template), *options))

    with ctrl_c.heeded(), ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(projects, pool.map(tried, projects), strict=True))


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
    assert sorted(ran.answer["workers_killed"]) == ["before recording the result", "before responding"]


def test_a_key_of_its_own_is_sent_as_two_messages_and_runs_for_one(runs: dict[str, Ran]) -> None:
    """Here with a coroutine function, and another's decorator around the consumer."""
    ran = runs["by-order"]
    assert ran.code == 0, ran.err
    verdicts = {1: "once", 2: "ran twice, effects unseen"}
    assert {(each["key"], each["sent"]) for each in ran.messages.values()} == {("one", 2), ("two", 2)}
    assert all(each["verdict"] == verdicts[each["runs"]] for each in ran.messages.values())
    assert all(each["deliveries"] >= 3 for each in ran.messages.values())


def test_without_claims_everything_takes_effect_once_though_two_may_run_it(runs: dict[str, Ran]) -> None:
    """A second worker is offered the first message while its handler runs, and runs it too if it is quick enough."""
    ran = runs["without-claims"]
    assert ran.code == 0, ran.err
    assert "2 messages: 2 once" in ran.out
    assert "With effects='transaction', two workers may process a message" in ran.out
    assert "2 workers killed" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 80


def test_a_fifo_queues_messages_take_effect_once(runs: dict[str, Ran]) -> None:
    ran = runs["fifo"]
    assert ran.code == 0, ran.err
    assert [each["verdict"] for each in ran.messages.values()] == ["once", "once"]


def test_a_makefile_builds_for_this_machine(runs: dict[str, Ran], folder: Path) -> None:
    """And never into SAM's own folder. An alarm with metric math is off by the template's parameter."""
    ran = runs["by-makefile"]
    assert ran.code == 0, ran.err
    assert [each["verdict"] for each in ran.messages.values()] == ["once", "once"]
    assert not (folder / "by-makefile" / ".aws-sam").exists()


def test_a_mapping_without_partial_responses_is_found_out(runs: dict[str, Ran]) -> None:
    """One message of a batch failed, and Lambda would have deleted it with its neighbours."""
    ran = runs["without-partial"]
    assert ran.code == 1, ran.err
    (lost,) = [each for each in ran.messages.values() if each["verdict"] != "once"]
    assert (lost["verdict"], lost["tables"], lost["record"]) == ("NEVER", "NEVER", "FAILED")
    assert "lacks FunctionResponseTypes: [ReportBatchItemFailures]" in lost["why"]


def test_a_response_that_is_not_returned_is_found_out(runs: dict[str, Ran]) -> None:
    ran = runs["forgets-to-return"]
    assert ran.code == 1, ran.err
    lost = [each for each in ran.messages.values() if each["verdict"] != "once"]
    assert {each["verdict"] for each in lost} == {"NEVER"}
    assert any("the handler's response did not report it" in each["why"] for each in lost)


def test_what_a_client_of_its_own_does_twice_is_found_out(runs: dict[str, Ran]) -> None:
    """Its record says once, the table says twice. Times and random values are named, and not compared."""
    ran = runs["own-client"]
    assert ran.code == 1, ran.err
    (doubled,) = [each for each in ran.messages.values() if each["verdict"] != "once"]
    assert (doubled["verdict"], doubled["tables"], doubled["record"]) == ("TWICE", "TWICE", "COMPLETED")
    assert doubled["differs"] == [f"Placed order_id={doubled['name'][:-5]}: orders is 2, but 1 in fault-free runs"]
    assert ran.answer["not_compared"] == ["Placed.asked_by", "Placed.placed_at"]
    assert "placing one\n" in ran.err


def test_a_queue_without_a_redrive_policy_is_found_out(runs: dict[str, Ran]) -> None:
    ran = runs["without-redrive"]
    assert ran.code == 1, ran.err
    assert "The queue has no redrive policy" in ran.out
    assert "2 messages: 2 once" in ran.out


def test_a_handler_without_the_library_is_found_out(runs: dict[str, Ran]) -> None:
    """The control: what is promised here is not what a queue does by itself."""
    ran = runs["plain"]
    assert ran.code == 1, ran.err
    assert "2 messages: 2 TWICE" in ran.out
    assert "does not seem to be decorated with sqs_consumer" in ran.out


@on_linux
def test_nothing_is_left(runs: dict[str, Ran], folder: Path) -> None:
    assert runs
    assert all(nothing_left(each / "temporary") for each in folder.iterdir())


@on_linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_trial_that_is_stopped_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    with ctrl_c.heeded():
        program = begin(project(tmp_path, PROTECTED))
    assert eventually(lambda: any(tmp_path.glob("temporary/receiver-local-*/run-1/log.jsonl")))
    assert ended(program, number).code == 130
    assert nothing_left(tmp_path / "temporary")


WITHOUT_QUEUE = TEMPLATE.partition("      Events:")[0]

TWO_FUNCTIONS = TEMPLATE + TEMPLATE[TEMPLATE.index("  Consumer:") :].replace("  Consumer:", "  Other:")


@pytest.mark.parametrize(
    ("handler", "template", "said"),
    [
        (BROKEN, TEMPLATE, "handler.lambda_handler does not start: No module named 'no_such_module'"),
        (PLAIN, WITHOUT_QUEUE, "no function in the template consumes a queue"),
        (PLAIN, TEMPLATE.replace("src/", "source/"), "does not exist: correct CodeUri"),
        (PLAIN, TEMPLATE.replace("./tables.yaml", "./table.yaml"), "table.yaml does not exist"),
        (
            PLAIN,
            TEMPLATE.replace("Resources:", "Resources: ["),
            "the template cannot be read: while parsing",
        ),
        (
            PLAIN,
            TEMPLATE.replace("AWS::SQS::Queue", "AWS::SQS::Queues"),
            "Unrecognized resource types: [AWS::SQS::Queues]",
        ),
        (
            PLAIN,
            BY_MAKEFILE.replace("ContextPath: .", "ContextPath: src"),
            "does not exist: correct ContextPath",
        ),
        (PLAIN, TWO_FUNCTIONS, "which function? use --function with one of: Consumer, Other"),
    ],
)
def test_what_keeps_a_trial_from_beginning_is_told_with_its_remedy(
    tmp_path: Path, handler: str, template: str, said: str
) -> None:
    ran = ended(begin(project(tmp_path, handler, template=template)))
    assert ran.code == 2, ran.err
    assert "".join(said.split()) in "".join(ran.err.split()), "wherever a long path makes it wrap"
    assert "Traceback" not in ran.err
    assert nothing_left(tmp_path / "temporary")


def test_a_queue_that_the_template_takes_as_given_is_there_with_a_dead_letter_queue(runs: dict[str, Ran]) -> None:
    ran = runs["others-queue"]
    assert ran.code == 0, ran.err
    verdicts = {name: each["verdict"] for name, each in ran.messages.items()}
    assert verdicts == {"one.json": "once", "refused.json": "dead letter"}


# A cloud that stays.


def typed(program: subprocess.Popen[str]) -> list[list[str]]:
    """The commands that it says to type."""
    assert program.stdout is not None
    said = ""
    for line in program.stdout:
        said += line
        if line.startswith("Press Ctrl-C to stop it"):
            break
    block = said.partition("project's folder:\n\n")[2].partition("\n\n")[0].replace("\\\n", "")
    return [shlex.split(line) for line in block.splitlines() if not line.strip().startswith("#")]


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def stays(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    with ctrl_c.heeded():
        folder = tmp_path_factory.mktemp("stays")
        program = begin(project(folder, PROTECTED, template=FLAT), "--stay", "--port", str(port))
    try:
        yield program
    finally:
        ended(program, signal.SIGTERM)
    assert nothing_left(folder / "temporary")


@pytest.fixture(scope="module")
def commands(stays: subprocess.Popen[str]) -> list[list[str]]:
    return typed(stays)


@on_linux
def test_what_a_cloud_that_stays_says_to_type_works(commands: list[list[str]], port: int) -> None:
    """Its tables and queues are called as `sam local` calls them."""
    invoke, send, doctor, letters = commands
    assert invoke == ["sam", "local", "invoke", "Consumer", "-e", "events/one.json"]

    with closing(Cloud(f"http://127.0.0.1:{port}", "")) as cloud:
        assert send[:6] == ["aws", "sqs", "send-message", "--endpoint-url", cloud.endpoint_url, "--region"]
        options = dict(zip(send[3::2], send[4::2], strict=True))
        cloud.client("sqs").send_message(QueueUrl=options["--queue-url"], MessageBody=options["--message-body"])
        table = {"TableName": "Placed", "Key": {"order_id": {"S": "one"}}}
        assert eventually(lambda: "Item" in cloud.client("dynamodb").get_item(**table))

    for line in (doctor, letters):
        known = {**os.environ, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        command = [sys.executable, "-c", PROGRAM, *line[1:], "--json"]
        ran = subprocess.run(command, env=known, capture_output=True, text=True, timeout=60, check=False)
        assert ran.returncode in (0, 1), ran.stderr
        assert json.loads(ran.stdout)


@on_linux
def test_a_port_that_is_taken_is_told_with_who_has_it(commands: list[list[str]], port: int, tmp_path: Path) -> None:
    assert commands
    second = ended(begin(project(tmp_path, PROTECTED, template=FLAT), "--stay", "--port", str(port)))
    assert second.code == 3
    told = f"port {port} cannot be used at 127.0.0.1: Address already in use (a local cloud"
    assert told in " ".join(second.err.split())


@on_linux
def test_a_cloud_stays_until_ctrl_c(commands: list[list[str]], stays: subprocess.Popen[str]) -> None:
    assert commands
    assert ended(stays, signal.SIGINT).code == 0
