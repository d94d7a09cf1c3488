"""What a new project holds for each choice."""

from __future__ import annotations

import ast
import json
import os
import re
from typing import Any

import pytest
from cfnlint.config import ConfigMixIn
from cfnlint.decode import cfn_yaml, decode_str
from cfnlint.runner import Runner

from idempotent_receiver.operations.starter.project import COMPONENT, Project, contents
from local.cloud import ROOT
from tests.template import COMPONENT as SHIPPED

QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
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
    assert (f'key={strategy}("{argument}")' in text) == own_key
    assert ('os.environ["RECORDS_TABLE"], "order-totals")' in text) == own_key, "such a key needs a namespace"


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


@every_choice
def test_its_events_carry_a_key_where_the_handler_looks_for_it(choice: str) -> None:
    for name, count in (("order", 1), ("orders", 3)):
        records = json.loads(made(choice)[f"events/{name}.json"])["Records"]
        assert len(records) == count
        keys = [key_of(record, *CHOICES[choice].get("key", ("message_id", ""))) for record in records]
        assert len(set(keys)) == count
        for record in records:
            fifo = bool(CHOICES[choice].get("fifo"))
            assert record["eventSourceARN"].endswith(".fifo") == fifo
            assert ("MessageGroupId" in record["attributes"]) == fifo


def key_of(record: dict[str, Any], strategy: str, argument: str) -> str:
    if strategy == "message_attribute":
        return str(record["messageAttributes"][argument]["stringValue"])
    if strategy == "message_id":
        return str(record["messageId"])
    found = json.loads(record["body"])
    for part in argument.split("."):
        found = found[part]
    return str(found)


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
    (body,) = re.findall(r"--message-body '(.+)'", readme)
    assert json.loads(body) == json.loads(json.loads(made("plain")["events/order.json"])["Records"][0]["body"])


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
