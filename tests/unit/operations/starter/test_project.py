"""What a new project holds for each choice."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
from typing import Any

import pytest
from cfnlint.config import ConfigMixIn
from cfnlint.decode import cfn_yaml, decode_str
from cfnlint.runner import Runner

from harness.cloud import ROOT
from idempotent_receiver.operations.starter.project import COMPONENT, Project, contents
from tests.template import COMPONENT as SHIPPED

QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
OWN_QUEUE = "arn:aws:sqs:us-east-1:123456789012:order-totals"
CHOICES: dict[str, dict[str, Any]] = {
    "plain": {},
    "fifo": {"fifo": True},
    "async": {"asynchronous": True},
    "body field": {"key": ("body_field", "order_id")},
    "nested field": {"key": ("body_field", "order.id"), "fifo": True},
    "attribute": {"key": ("message_attribute", "order-id")},
    "own queue": {"queue_arn": QUEUE},
    "container": {"container": True},
}
every_choice = pytest.mark.parametrize("choice", CHOICES)
MOST_LINES = 20


def made(choice: str) -> dict[str, str]:
    project = Project(name="order-totals", **CHOICES[choice])
    return contents(project, requirement="idempotent-receiver~=0.1", requirement_dev="idempotent-receiver[cli]~=0.1")


def template(choice: str) -> dict[str, Any]:
    return dict(cfn_yaml.loads(made(choice)["template.yaml"]))


@every_choice
def test_no_placeholder_is_left(choice: str) -> None:
    assert not [path for path, text in made(choice).items() if "<<" in text]


@every_choice
def test_its_handler_has_twenty_lines_at_most_and_says_what_was_chosen(choice: str) -> None:
    text = made(choice)["src/order_totals/handler.py"]
    assert len([line for line in text.splitlines() if line.strip()]) <= MOST_LINES
    tree = ast.parse(text)
    (handler,) = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)]
    assert isinstance(handler, ast.AsyncFunctionDef) == bool(CHOICES[choice].get("asynchronous"))
    strategy, argument = CHOICES[choice].get("key", ("message_id", ""))
    own_key = strategy != "message_id"
    (imported,) = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module != "pydantic"]
    own = [strategy] if own_key else []
    assert [each.name for each in imported.names] == ["DynamoDBStore", "Transaction", *own, "sqs_consumer"]
    assert ('os.environ["RECORDS_TABLE"], "order-totals")' in text) == own_key, "such a key needs a namespace"
    key = f'key={strategy}("{argument}"), ' if own_key else ""
    assert f'@sqs_consumer(store, {key}sqs=boto3.client("sqs"), effects=' in text


@pytest.mark.parametrize(
    ("full", "cli"),
    [
        ("idempotent-receiver[cli,local,testing]~=0.1", "idempotent-receiver[cli]~=0.1"),
        (
            "./vendor/the_library-0.1-py3-none-any.whl[cli,local,testing]",
            "./vendor/the_library-0.1-py3-none-any.whl[cli]",
        ),
    ],
)
def test_with_an_image_it_has_two_files_more_which_run_its_handler_by_receiver_work(full: str, cli: str) -> None:
    with_image, plain = (
        contents(Project(name="order-totals", container=each), requirement="the library", requirement_dev=full)
        for each in (True, False)
    )
    assert with_image.keys() - plain.keys() == {"Dockerfile", ".dockerignore"}
    assert f"-r requirements.txt '{cli}'" in with_image["Dockerfile"]
    assert 'ENTRYPOINT ["receiver", "work"]' in with_image["Dockerfile"]
    assert "order_totals.handler:lambda_handler" in with_image["README.md"]
    assert "docker" not in plain["README.md"]
    allowed = {line[1:] for line in with_image[".dockerignore"].splitlines() if line.startswith("!")}
    assert {"requirements.txt", "src", "vendor"} == allowed


@every_choice
def test_lambda_takes_its_answer_message_by_message_and_within_the_queues_limits(choice: str) -> None:
    resources = template(choice)["Resources"]
    event = resources["Consumer"]["Properties"]["Events"]["Messages"]["Properties"]
    assert event["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    fifo = bool(CHOICES[choice].get("fifo"))
    assert (event["BatchSize"], event.get("MaximumBatchingWindowInSeconds")) == ((10, None) if fifo else (25, 1))
    assert resources["Receiver"]["Properties"]["Parameters"].get("Fifo") == ("true" if fifo else None)


@every_choice
def test_its_template_sets_parameters_that_the_component_has_and_reads_outputs_that_it_has(choice: str) -> None:
    component, resources = cfn_yaml.loads(made(choice)[COMPONENT]), template(choice)["Resources"]
    given = resources["Receiver"]["Properties"]["Parameters"]
    needed = {name for name, each in component["Parameters"].items() if "Default" not in each}
    assert needed <= set(given) <= set(component["Parameters"])
    read = set(re.findall(r"Receiver\.Outputs\.(\w+)", made(choice)["template.yaml"]))
    assert {"ConsumerName", "RoleArn", "QueueArn", "RecordsTable"} <= read
    assert read <= set(component["Outputs"])
    strategy, argument = CHOICES[choice].get("key", ("message_id", ""))
    told = given.get("KeyStrategy", component["Parameters"]["KeyStrategy"]["Default"])
    assert told == (f"{strategy}:{argument}" if argument else strategy), "as `receiver` must know it"
    assert given.get("Namespace") == ("order-totals" if argument else None)
    own = CHOICES[choice].get("queue_arn")
    assert template(choice).get("Parameters", {}).get("QueueArn", {}).get("Default") == own
    assert given.get("QueueArn") == ({"Ref": "QueueArn"} if own else None)
    assert given.get("DeadLetterQueueArn") == ({"Ref": "DeadLetterQueueArn"} if own else None)


def test_function_and_component_have_one_name_and_one_timeout() -> None:
    """They are no outputs, which `sam local` could not resolve there."""
    for text, prefix in ((made("plain")["template.yaml"], ""), (with_second(), "Refunds")):
        found = cfn_yaml.loads(text)
        told = found["Resources"][f"{prefix}Receiver"]["Properties"]["Parameters"]
        assert found["Resources"][f"{prefix}Consumer"]["Properties"]["FunctionName"] == told["FunctionName"]
        assert found["Globals"]["Function"]["Timeout"] == told["FunctionTimeout"] == {"Ref": "FunctionTimeout"}
        assert "Fn::GetAtt" not in told["FunctionName"]
    names = [each["Properties"]["Parameters"]["FunctionName"] for each in receivers(with_second())]
    assert names == [{"Ref": "AWS::StackName"}, {"Fn::Sub": "${AWS::StackName}-refunds"}]


@every_choice
def test_its_messages_are_claimed_unless_its_parameter_says_otherwise(choice: str) -> None:
    found = template(choice)
    assert found["Parameters"]["Effects"]["Default"] == "any"
    assert found["Parameters"]["Effects"]["AllowedValues"] == ["any", "transaction"]
    consumer = found["Resources"]["Consumer"]["Properties"]
    assert consumer["Environment"]["Variables"]["EFFECTS"] == {"Ref": "Effects"}
    handler = made(choice)["src/order_totals/handler.py"]
    assert 'effects=os.environ.get("EFFECTS") or "any")' in handler
    assert "tx: Transaction" in handler


def receivers(text: str) -> list[dict[str, Any]]:
    resources = cfn_yaml.loads(text)["Resources"].values()
    return [each for each in resources if each["Type"] == "AWS::CloudFormation::Stack"]


@every_choice
def test_its_template_is_clean(choice: str) -> None:
    decoded, unreadable = decode_str(made(choice)["template.yaml"])
    linter = Runner(ConfigMixIn(regions=["us-east-1"], include_checks=["I"]))
    found = unreadable or linter.validate_template(decoded or {})
    kept_by_the_component = {("I3011", "Receiver")}  # which says of each of its own resources whether it is kept
    left = [each for each in found if (each.rule.id, (each.path or [""])[1]) not in kept_by_the_component]
    assert [f"{match.rule.id} {match.message}" for match in left] == []


ORDERS = ({"customer": "alice", "cents": 1250}, {"customer": "alice", "cents": 750}, {"customer": "bob", "cents": 300})


def expected_record(choice: str, number: int) -> dict[str, Any]:
    """A message as Lambda hands it over, with a key where the handler looks for it."""
    strategy, argument = CHOICES[choice].get("key", ("message_id", ""))
    order, fifo, key = ORDERS[number - 1], "fifo" in CHOICES[choice], f"order-{number}"
    group = {"MessageGroupId": order["customer"], "MessageDeduplicationId": key, "SequenceNumber": f"{number:020}"}
    times = {"SentTimestamp": "1800000000000", "ApproximateFirstReceiveTimestamp": "1800000000001"}
    attribute = {"order-id": {"stringValue": key, "dataType": "String"}}
    return {
        "messageId": f"5f2c1d64-0001-4000-8000-00000000000{number}",
        "receiptHandle": f"handle-{number}",
        "body": json.dumps({**({"order": {"id": key}} if argument == "order.id" else {"order_id": key}), **order}),
        "attributes": {"ApproximateReceiveCount": "1", **times, **(group if fifo else {})},
        "messageAttributes": attribute if strategy == "message_attribute" else {},
        "eventSource": "aws:sqs",
        "eventSourceARN": CHOICES[choice].get("queue_arn") or OWN_QUEUE + (".fifo" if fifo else ""),
        "awsRegion": "us-east-1",
    }


@every_choice
def test_its_events_are_such_as_lambda_hands_over(choice: str) -> None:
    records = [expected_record(choice, number) for number in (1, 2, 3)]
    events = {name: json.loads(made(choice)[f"events/{name}.json"]) for name in ("order", "orders")}
    assert events == {"order": {"Records": records[:1]}, "orders": {"Records": records}}


@every_choice
def test_its_readme_sends_what_its_queue_and_its_handler_take(choice: str) -> None:
    _, _, sent = made(choice)["README.md"].partition("aws sqs send-message --queue-url QUEUE_URL ")
    *options, named, body = shlex.split(sent.partition("\n```")[0])
    record = expected_record(choice, 1)
    group = ["--message-group-id", "alice", "--message-deduplication-id", "1"]
    attribute = ["--message-attributes", "order-id={DataType=String,StringValue=order-1}"]
    needed = group if "MessageGroupId" in record["attributes"] else attribute if record["messageAttributes"] else []
    assert (options, named, body) == (needed, "--message-body", record["body"])


def test_its_tests_do_not_run_with_the_developers_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that writes by a client of its own would do so thousands of times, and for real."""
    real = {"AWS_ACCESS_KEY_ID": "real", "AWS_SECRET_ACCESS_KEY": "real", "AWS_SESSION_TOKEN": "real"}
    environment = {**real, "AWS_PROFILE": "production"}
    monkeypatch.setattr(os, "environ", environment)
    exec(made("plain")["tests/conftest.py"], {})
    monkeypatch.undo()
    assert not {"real", "production"} & {*environment.values()}
    assert environment["AWS_ACCESS_KEY_ID"] == environment["AWS_SECRET_ACCESS_KEY"] == "test"


def test_the_component_is_the_shipped_one() -> None:
    assert made("plain")[COMPONENT] == SHIPPED.read_text()


def test_what_it_builds_for_lambda_is_what_its_template_says() -> None:
    """One place says it, or a function would be built for what it does not run on."""
    functions = template("plain")["Globals"]["Function"]
    assert (functions["Runtime"], functions["Architectures"]) == ("python3.13", ["arm64"])
    _, _, recipe = made("plain")["Makefile"].partition("\nstated = ")
    assert recipe
    assert "3.13" not in recipe
    assert "$(call stated,Architectures)" in recipe


def test_its_makefile_works_wherever_the_project_is_moved() -> None:
    """A script in an environment begins with the path at which that was made: nothing is there, or the old copy."""
    scripts = set(re.findall(r"(?m)^\t.*?(\.(?:venv|tools/sam)/bin/\S+)", made("plain")["Makefile"]))
    assert scripts == {".venv/bin/python", ".venv/bin/$(PIP)", ".tools/sam/bin/python", ".tools/sam/bin/$(PIP)"}
    assert re.search(r"(?m)^PIP = python -m pip ", made("plain")["Makefile"])


def test_a_wheel_that_was_replaced_is_installed() -> None:
    """Pip keeps what it has of the same version."""
    (recipe,) = re.findall(r"(?ms)^\.venv/\.complete: (.*?)\n\n", made("plain")["Makefile"])
    assert "$(wildcard vendor/*.whl)" in recipe
    assert "-m venv --clear .venv" in recipe


def test_its_readme_is_one_screen_and_names_commands_that_there_are() -> None:
    readme = made("plain")["README.md"]
    assert len(readme.splitlines()) <= 50
    targets = set(re.findall(r"(?m)^([a-z]+):.*## ", made("plain")["Makefile"]))
    assert set(re.findall(r"\bmake ([a-z]+)", readme)) <= targets


def test_a_second_consumer_at_parity_costs_forty_lines_at_most() -> None:
    lines = second_consumer().splitlines()
    assert len([line for line in lines if line.strip()]) <= 40
    first, second = (cfn_yaml.loads(text)["Resources"] for text in (made("plain")["template.yaml"], with_second()))
    ours, theirs = second["RefundsConsumer"]["Properties"], first["Consumer"]["Properties"]
    assert ours.keys() == theirs.keys(), "at parity"
    assert ours["Events"]["Messages"]["Properties"].keys() == theirs["Events"]["Messages"]["Properties"].keys()


def second_consumer() -> str:
    """The lines that docs/component.md adds to a template for a second consumer."""
    text = (ROOT / "docs/component.md").read_text().partition("\n## A second consumer\n")[2].partition("\n## ")[0]
    return "".join(re.findall(r"(?ms)^```yaml\n(.*?)^```", text))


def with_second() -> str:
    """A project's template with it."""
    return made("plain")["template.yaml"].replace("  Totals:\n", second_consumer() + "\n  Totals:\n")


def test_the_second_shares_the_first_ones_records() -> None:
    parameters = cfn_yaml.loads(with_second())["Resources"]["RefundsReceiver"]["Properties"]["Parameters"]
    assert parameters["RecordsTable"] == {"Fn::GetAtt": ["Receiver", "Outputs.RecordsTable"]}
    shipped = cfn_yaml.load(str(SHIPPED))
    assert shipped["Resources"]["Records"]["Condition"] == "MakeTable"
    assert shipped["Conditions"]["MakeTable"] == {"Fn::Equals": [{"Ref": "RecordsTable"}, ""]}
