"""A project of one's own, as its user makes it: from the wheel, by pip and make alone, on the local cloud."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ACCOUNT, REGION, ROOT
from idempotent_receiver.local.deployment import Stack, describe_function
from tests.e2e import making
from tests.e2e.deployed import eventually
from tests.e2e.making import UNAFFECTED
from tests.examples import second_consumer

if TYPE_CHECKING:
    from tests.e2e.deployed import Aws

UV = ROOT / ".tools" / "uv" / "bin" / "uv"
OWN_QUEUE = f"arn:aws:sqs:{REGION}:{ACCOUNT}:own-orders"
CHOICES = {
    "orders": (),
    "fifo-orders": ("--fifo", "--async"),
    "keyed_orders": ("--key", "body_field:order_id", "--queue-arn", OWN_QUEUE),
}
TOTALS = {"alice": 2000, "bob": 300}
"""What events/orders.json comes to, however often it is delivered."""
FIRST_CENTS = 1250


@dataclass(frozen=True)
class Project:
    """A project that `receiver init` has made."""

    folder: Path
    environment: dict[str, str]

    def make(self, *arguments: str) -> str:
        return run("make", *arguments, cwd=self.folder, env=self.environment)

    def event(self, name: str) -> dict[str, Any]:
        return dict(json.loads((self.folder / "events" / f"{name}.json").read_text()))


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] = UNAFFECTED, status: int = 0) -> str:
    done = making.run(*command, cwd=cwd, env=env, status=status)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def environment(aws: Aws) -> dict[str, str]:
    """A user's: nothing of this project's own, and credentials for the local cloud."""
    if not aws.functions_are_processes:
        pytest.skip("functions run in containers there, and these are built for this machine")
    kept = {name: value for name, value in UNAFFECTED.items() if not name.startswith(("AWS_", "PYTHON", "LOCALSTACK"))}
    credentials = {"AWS_ACCESS_KEY_ID": ACCOUNT, "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": REGION}
    here = {"PYTHON": sys.executable, "BUILD_FOR": "host"}
    return {**kept, **credentials, "AWS_ENDPOINT_URL": aws.endpoint_url, **here}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(UV, "build", "--quiet", "--wheel", "--out-dir", folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def venv(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """What `make test` sets up in each project, made once."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", f"{wheel}[cli,local,testing]")
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("projects")


def started(home: Path, venv: Path, environment: dict[str, str], name: str, *options: str) -> Project:
    """A new project, which finds its tools installed."""
    run(venv / "bin" / "receiver", "init", name, *options, cwd=home, env=environment)
    folder = home / name
    (folder / ".venv").symlink_to(venv)
    (folder / ".venv" / ".complete").touch()
    (folder / ".tools").symlink_to(ROOT / ".tools")
    return Project(folder, environment)


@pytest.fixture(scope="module", params=CHOICES)
def project(request: pytest.FixtureRequest, home: Path, venv: Path, environment: dict[str, str]) -> Project:
    return started(home, venv, environment, request.param, *CHOICES[request.param])


@pytest.fixture(scope="module")
def stack(project: Project, aws: Aws) -> Stack:
    """Built for this machine, and deployed: once as its user does it, and otherwise sooner."""
    if project.folder.name == "keyed_orders":
        aws.client("sqs").create_queue(QueueName=OWN_QUEUE.rpartition(":")[2])
    project.make("build")
    return deploy_built(project, aws, project.folder.name.replace("_", "-"))


def deploy_built(project: Project, aws: Aws, name: str) -> Stack:
    """`sam deploy` as typed, but for what a test must say: it ships what was built, and nothing else."""
    options = ["--stack-name", name, "--no-confirm-changeset", "--no-fail-on-empty-changeset", "--no-progressbar"]
    sam = [project.folder / ".tools/sam/bin/python", "-m", "samcli", "deploy", *options]
    run(*sam, "--parameter-overrides", "DeadLetterArrivals=false", cwd=project.folder, env=project.environment)
    return describe_function(aws, name)


def totals(aws: Aws, stack: Stack) -> dict[str, int]:
    items = aws.client("dynamodb").scan(TableName=stack.resources["Totals"], ConsistentRead=True)["Items"]
    return {each["customer"]["S"]: int(each["cents"]["N"]) for each in items}


def invoke(aws: Aws, function: str, event: dict[str, Any]) -> Any:
    return json.loads(aws.client("lambda").invoke(FunctionName=function, Payload=json.dumps(event))["Payload"].read())


# Each option.


def test_its_tests_pass(project: Project) -> None:
    assert "4 passed" in project.make("test")


def test_a_duplicate_has_no_second_effect(project: Project, stack: Stack, aws: Aws) -> None:
    for _ in range(2):
        assert invoke(aws, stack.resources["Consumer"], project.event("orders")) == {"batchItemFailures": []}
    assert totals(aws, stack) == TOTALS


def test_messages_come_through_its_queue_and_count_by_their_key(project: Project, stack: Stack, aws: Aws) -> None:
    """Sent twice, a body is two messages, and one order where its key is in the body."""
    queue, body = stack.outputs["QueueUrl"], project.event("order")["Records"][0]["body"]
    before = totals(aws, stack).get("alice", 0)
    for number in range(2):
        group = {"MessageGroupId": "alice", "MessageDeduplicationId": str(number)} if queue.endswith(".fifo") else {}
        aws.client("sqs").send_message(QueueUrl=queue, MessageBody=body, **group)
    keyed = project.folder.name == "keyed_orders"
    wanted = before + (0 if keyed else 2 * FIRST_CENTS)
    counts = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    eventually(
        lambda: aws.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=counts)["Attributes"],
        lambda seen: set(seen.values()) == {"0"} and totals(aws, stack)["alice"] == wanted,
        what=f"the queue is empty, and alice has {wanted}",
    )


def test_doctor_finds_nothing_wrong(project: Project, stack: Stack, aws: Aws, venv: Path) -> None:
    expire(aws, stack)
    status = 1 if project.folder.name == "keyed_orders" else 0  # its queue was made with SQS's defaults
    told = json.loads(
        run(
            venv / "bin" / "receiver", "doctor", "--stack", stack.name, "--json", env=project.environment, status=status
        )
    )
    assert told["unchecked"] == []
    found = {each["check"] for each in told["findings"]}
    assert found == ({"visibility", "receives", "encryption"} if status else set())


def expire(aws: Aws, stack: Stack) -> None:
    """CloudFormation does this on AWS; the local cloud passes over a table's TimeToLiveSpecification."""
    specification = {"Enabled": True, "AttributeName": "expiration"}
    aws.client("dynamodb").update_time_to_live(
        TableName=stack.resources["Records"], TimeToLiveSpecification=specification
    )


def test_the_operators_command_finds_its_records(project: Project, stack: Stack, venv: Path) -> None:
    key = "order-1" if project.folder.name == "keyed_orders" else project.event("order")["Records"][0]["messageId"]
    shown = run(venv / "bin" / "receiver", "trace", key, "--stack", stack.name, env=project.environment)
    assert "COMPLETED" in shown


def test_only_the_data_path_is_deployed(project: Project, stack: Stack) -> None:
    built = project.folder / ".aws-sam" / "build" / "Consumer"
    library = {path.name for path in (built / "idempotent_receiver").iterdir()}
    assert {"sqs", "dynamodb"} <= library
    assert not library & {"operations", "testing", "local", "__main__.py"}
    assert not list(built.rglob("watch.yaml"))
    assert not (built / "boto3").exists()


# Once is enough.


@pytest.fixture(scope="module")
def plain(home: Path, venv: Path, environment: dict[str, str]) -> Project:
    """The project without an option, which the tests above have made, if they ran."""
    made = home / "orders"
    return Project(made, environment) if made.exists() else started(home, venv, environment, "orders")


def test_its_tests_notice_a_mapping_that_would_delete_failed_messages(plain: Project) -> None:
    template = plain.folder / "template.yaml"
    shipped = template.read_text()
    template.write_text(shipped.replace("FunctionResponseTypes: [ReportBatchItemFailures]", "Enabled: true"))
    try:
        told = run("make", "test", cwd=plain.folder, env=plain.environment, status=2)
    finally:
        template.write_text(shipped)
    assert "1 failed, 3 passed" in told


def test_make_local_tries_it(plain: Project) -> None:
    without_cloud = {name: value for name, value in plain.environment.items() if not name.startswith("AWS_")}
    told = run("make", "local", cwd=plain.folder, env=without_cloud)
    assert "4 messages: 4 once" in told
    assert "workers killed: before recording the result; before responding" in told


def test_the_code_that_was_edited_and_built_is_the_code_that_runs(plain: Project, aws: Aws, tmp_path: Path) -> None:
    """No build is older than what was typed: `sam deploy` ships the last `sam build`, which has the last edit."""
    project = copied(plain, tmp_path)
    handler = project.folder / "src/orders/handler.py"
    written = handler.read_text()
    for cents, built in ((1, True), (2, False), (3, True)):
        handler.write_text(written.replace(':cents": order.cents', f':cents": order.cents * {cents}'))
        if built:
            project.make("build")
        stack = deploy_built(project, aws, "edited")
        event = project.event("order")
        event["Records"][0]["messageId"] = f"edited-{cents}"
        before = totals(aws, stack).get("alice", 0)
        assert invoke(aws, stack.resources["Consumer"], event) == {"batchItemFailures": []}
        assert totals(aws, stack)["alice"] - before == FIRST_CENTS * (cents if built else cents - 1)


def copied(project: Project, folder: Path) -> Project:
    """The project as it is, in another place."""
    into = folder / project.folder.name
    shutil.copytree(project.folder, into, symlinks=True, ignore=shutil.ignore_patterns(".aws-sam"))
    return Project(into, project.environment)


def test_a_second_consumer_shares_the_records_and_is_found_by_its_name(
    plain: Project, tmp_path: Path, venv: Path, aws: Aws
) -> None:
    """As examples/orders has it, with its code."""
    project = copied(plain, tmp_path)
    code, resources, outputs = second_consumer()
    (project.folder / "src/orders/refunds.py").write_text(code)
    template = project.folder / "template.yaml"
    template.write_text(template.read_text().replace("\nOutputs:", f"\n{resources}\nOutputs:") + outputs)
    project.make("build")
    stack = deploy_built(project, aws, "both")

    first, second = plain.event("order"), plain.event("orders")
    second["Records"][0]["messageId"] = "5f2c1d64-0001-4000-8000-000000000009"
    for function, event in (("Consumer", first), ("RefundsConsumer", second), ("RefundsConsumer", second)):
        assert invoke(aws, stack.resources[function], event) == {"batchItemFailures": []}
    assert totals(aws, stack) == {"alice": FIRST_CENTS - TOTALS["alice"], "bob": -TOTALS["bob"]}
    records = aws.client("dynamodb").scan(TableName=stack.resources["Records"])["Items"]
    assert sorted(each["id"]["S"].partition("#")[0] == "refunds" for each in records) == [False, True, True, True]

    expire(aws, stack)
    receiver = venv / "bin" / "receiver"
    told = run(receiver, "doctor", "--stack", "both", env=plain.environment, status=2)
    assert "give --stack both/Consumer or --stack both/RefundsConsumer" in " ".join(told.split())
    for consumer in ("Consumer", "RefundsConsumer"):
        told = run(receiver, "doctor", "--stack", f"both/{consumer}", env=plain.environment)
        assert "0 findings" in told
