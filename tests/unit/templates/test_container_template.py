"""What container.yaml and the Dockerfile promise, and that they agree with the command, the code and template.yaml."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from harness.cloud import ROOT
from idempotent_receiver.operations.cli import receiver
from tests.consumer_facts import resources_of
from tests.template import load, rendering, text_of
from tests.unit.templates.variants import listed, statements_in, variables_read, wide

TEMPLATE = ROOT / "deploy" / "container.yaml"
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text()
LONGEST_STOP_SECONDS = 120
"""On Fargate."""
GIVEN = {
    "QueueArn": "arn:aws:sqs:us-east-1:123456789012:orders",
    "RecordsTable": "records",
    "AccountsTable": "accounts",
    "EntriesTable": "entries",
    "Repository": "transfers",
    "ImageTag": "1",
    "Subnets": ["subnet-1"],
    "SecurityGroups": ["sg-1"],
}
DEAD = "arn:aws:sqs:us-east-1:123456789012:orders-dead"
KMS_KEY = "arn:aws:kms:us-east-1:123456789012:key/1"
LEDGER = ("PostEntries", "MoveBalances")


def rendered(**parameters: Any) -> dict[str, Any]:
    resources: dict[str, Any] = rendering(load(TEMPLATE), **{**GIVEN, **parameters}).rendered()["Resources"]
    return resources


def container(**parameters: Any) -> dict[str, Any]:
    (found,) = rendered(**parameters)["Task"]["Properties"]["ContainerDefinitions"]
    return dict(found)


def statements(role: str, **parameters: Any) -> dict[str, dict[str, Any]]:
    return statements_in(rendered(**parameters)[role]["Properties"])


def command(**parameters: Any) -> list[str]:
    return [text_of(each) for each in container(**parameters)["Command"]]


def test_the_task_may_do_what_the_function_and_its_handler_may() -> None:
    """Of the two, only the function's role is for its log and its traces, and only the task's is for protection."""
    own = statements("TaskRole", DeadLetterQueueArn=DEAD, KmsKeyArn=KMS_KEY)
    (policy,) = resources_of("Dead letters at once", KmsKeyArn=KMS_KEY)["ConsumerRole"]["Properties"]["Policies"]
    functions = {action for each in policy["PolicyDocument"]["Statement"] for action in listed(each["Action"])}
    of_lambda = {action for action in functions if action.startswith(("logs:", "xray:"))}
    actions = {action for each in own.values() for action in listed(each["Action"])}
    assert actions - functions == {"ecs:UpdateTaskProtection"}
    assert functions - actions == of_lambda
    assert [text_of(own[sid]["Resource"]).rpartition(":")[2] for sid in LEDGER] == ["table/entries", "table/accounts"]
    unasked = {*own} - {"DeadLetter", "UseKey"}
    assert {*own} == {"ReceiveAndAcknowledge", "ClaimAndSettle", "DeadLetter", "UseKey", *LEDGER, "ProtectItself"}
    assert {*statements("TaskRole")} == unasked


@pytest.mark.parametrize(("role", "reaching"), [("TaskRole", {"ProtectItself"}), ("ExecutionRole", {"LogIn"})])
def test_no_permission_reaches_further_than_it_must(role: str, reaching: set[str]) -> None:
    """ECR's log-in has no resource, and a task's id is ECS's choice."""
    assert wide(statements(role, DeadLetterQueueArn=DEAD)) == reaching


def test_the_command_is_one_that_receiver_understands() -> None:
    """Also at the bounds of each parameter."""
    work: Any = get_command(receiver.app).commands["work"]  # type: ignore[attr-defined]  # it is a group
    parameters = load(TEMPLATE)["Parameters"]
    numbers = ("Processes", "Concurrency", "LeaseSeconds", "DrainSeconds")
    for bound in ("Default", "MinValue", "MaxValue"):
        typed = command(**{name: parameters[name][bound] for name in numbers})
        taken = work.make_context("work", typed).params
        assert taken["handler"] == "app.consumer:lambda_handler"
        assert taken["queue_url"] == "https://sqs.AWS::Region.AWS::URLSuffix/123456789012/orders"
        assert [taken[name] for name in ("processes", "concurrency", "lease_seconds", "drain_seconds")] == [
            parameters[name][bound] for name in numbers
        ]


def test_a_task_may_drain_before_it_is_killed() -> None:
    stop = container()["StopTimeout"]
    assert load(TEMPLATE)["Parameters"]["DrainSeconds"]["MaxValue"] < stop <= LONGEST_STOP_SECONDS


def test_the_worker_is_given_the_variables_that_it_reads() -> None:
    given = {each["Name"] for each in container()["Environment"]}
    assert variables_read("app.consumer")[0] <= given
    assert "DEAD_LETTER_QUEUE_URL" not in given
    dead = {each["Name"]: each["Value"] for each in container(DeadLetterQueueArn=DEAD)["Environment"]}
    assert text_of(dead["DEAD_LETTER_QUEUE_URL"]).endswith("/123456789012/orders-dead")


def test_the_health_check_looks_at_the_file_that_the_worker_touches_where_it_may_write() -> None:
    found = container()
    (path,) = [word.partition("=")[2] for word in command() if word.startswith("--health-file=")]
    assert path in shlex.split(found["HealthCheck"]["Command"][1])[2]
    (mounted,) = found["MountPoints"]
    assert (found["ReadonlyRootFilesystem"], mounted["ReadOnly"]) == (True, False)
    assert path.startswith(mounted["ContainerPath"] + "/")
    assert mounted["ContainerPath"] in json.loads(instructions("VOLUME")[-1])


def test_a_worker_may_load_for_five_minutes_before_it_is_killed() -> None:
    """One that is killed while it loads a model would be killed for ever."""
    probe = container()["HealthCheck"]
    assert probe["StartPeriod"] + probe["Interval"] * probe["Retries"] >= 300
    assert probe["StartPeriod"] <= 300  # ECS takes no longer one
    assert f"\n{probe['Command'][1]} " in (ROOT / "docs" / "containers.md").read_text()


def test_the_scaling_follows_visible_messages_for_each_running_task() -> None:
    policy = rendered()["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    metrics = {each["Id"]: each for each in policy["CustomizedMetricSpecification"]["Metrics"]}
    assert [id for id, each in metrics.items() if each["ReturnData"]] == ["backlog"]
    assert set(re.findall(r"[a-z]+", metrics["backlog"]["Expression"])) == metrics.keys() - {"backlog"}
    assert metrics["visible"]["MetricStat"]["Metric"]["Dimensions"] == [{"Name": "QueueName", "Value": "orders"}]
    assert metrics["tasks"]["MetricStat"]["Stat"] == "SampleCount"
    assert rendered()["Tasks"]["Properties"]["MinCapacity"] >= 1
    assert "DesiredCount" not in rendered()["Service"]["Properties"]


def instructions(name: str) -> list[str]:
    return re.findall(rf"(?m)^{name} (.+)$", DOCKERFILE)


def test_the_image_runs_the_worker_as_a_user_without_rights_where_it_finds_the_handler() -> None:
    assert json.loads(instructions("ENTRYPOINT")[-1]) == ["receiver", "work"]
    assert int(instructions("USER")[-1].partition(":")[0]) > 0
    assert f"COPY src/app {instructions('WORKDIR')[-1]}/app" in DOCKERFILE


def test_all_that_the_image_copies_is_there_and_not_ignored() -> None:
    allowed = {
        line[1:]
        for line in (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = [line.split() for line in instructions("COPY") if "--from" not in line]
    for path in (each for words in copied for each in words[:-1]):
        assert (ROOT / path).exists(), path
        assert any(path == each or path.startswith(f"{each}/") for each in allowed), path
