"""What container.yaml and the Dockerfile promise, and that they agree with the command, the code and template.yaml."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

import pytest
from typer.main import get_command

from idempotent_receiver.operations.cli import receiver
from local.cloud import ROOT
from tests.template import COMPONENT, load, rendering, text_of
from tests.unit.templates.test_workflow_template import variables_read

TEMPLATE = ROOT / "deploy" / "container.yaml"
DOCKERFILE = (ROOT / "Dockerfile").read_text()
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


def rendered(**parameters: Any) -> dict[str, Any]:
    resources: dict[str, Any] = rendering(load(TEMPLATE), **{**GIVEN, **parameters}).rendered()["Resources"]
    return resources


def container(**parameters: Any) -> dict[str, Any]:
    (found,) = rendered(**parameters)["Task"]["Properties"]["ContainerDefinitions"]
    return dict(found)


def statements(role: str, **parameters: Any) -> dict[str, dict[str, Any]]:
    (policy,) = rendered(**parameters)[role]["Properties"]["Policies"]
    return {each["Sid"]: each for each in policy["PolicyDocument"]["Statement"]}


def actions(statement: dict[str, Any]) -> set[str]:
    found = statement["Action"]
    return {found} if isinstance(found, str) else set(found)


def of_the_component(sid: str) -> dict[str, Any]:
    (policy,) = load(COMPONENT)["Resources"]["ConsumerRole"]["Properties"]["Policies"]
    plain = [each.get("Fn::If", [None, each])[1] for each in policy["PolicyDocument"]["Statement"]]
    (found,) = [each for each in plain if each["Sid"] == sid]
    return dict(found)


def command(**parameters: Any) -> list[str]:
    return [text_of(each) for each in container(**parameters)["Command"]]


# Its role.


@pytest.mark.parametrize("sid", ["ReceiveAndAcknowledge", "ClaimAndSettle", "DeadLetter", "UseKey"])
def test_the_task_may_do_what_the_function_may(sid: str) -> None:
    own = statements("TaskRole", DeadLetterQueueArn=DEAD, KmsKeyArn="arn:aws:kms:us-east-1:123456789012:key/1")
    assert actions(own[sid]) == actions(of_the_component(sid))


def test_the_handler_may_do_what_it_may_on_lambda() -> None:
    policy = load()["Resources"]["LedgerPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    own = statements("TaskRole")
    assert {each["Sid"]: each["Action"] for each in policy} == {
        sid: own[sid]["Action"] for sid in ("PostEntries", "MoveBalances")
    }
    assert text_of(own["PostEntries"]["Resource"]).endswith(":table/entries")
    assert text_of(own["MoveBalances"]["Resource"]).endswith(":table/accounts")


def test_what_nobody_asked_for_is_not_allowed() -> None:
    expected = {"ReceiveAndAcknowledge", "ClaimAndSettle", "PostEntries", "MoveBalances", "ProtectItself"}
    assert set(statements("TaskRole")) == expected
    assert set(statements("TaskRole", DeadLetterQueueArn=DEAD)) == expected | {"DeadLetter"}


@pytest.mark.parametrize("role", ["TaskRole", "ExecutionRole"])
def test_no_permission_reaches_further_than_it_must(role: str) -> None:
    """ECR's log-in has no resource, and a task's id is ECS's choice."""
    found = statements(role, DeadLetterQueueArn=DEAD)
    assert not [sid for sid, each in found.items() if any("*" in action for action in actions(each))]
    wide = {sid for sid, each in found.items() if "*" in json.dumps(each["Resource"])}
    assert wide == {"TaskRole": {"ProtectItself"}, "ExecutionRole": {"LogIn"}}[role]


# Its container.


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
    assert variables_read("app.consumer") <= given
    assert "DEAD_LETTER_QUEUE_URL" not in given
    dead = {each["Name"]: each["Value"] for each in container(DeadLetterQueueArn=DEAD)["Environment"]}
    assert text_of(dead["DEAD_LETTER_QUEUE_URL"]).endswith("/123456789012/orders-dead")


def test_the_health_check_looks_at_the_file_that_the_worker_touches_where_it_may_write() -> None:
    found = container()
    (path,) = [word.partition("=")[2] for word in command() if word.startswith("--health-file=")]
    assert path in shlex.split(found["HealthCheck"]["Command"][1])[2]
    assert found["ReadonlyRootFilesystem"]
    (mounted,) = found["MountPoints"]
    assert path.startswith(mounted["ContainerPath"] + "/")
    assert not mounted["ReadOnly"]
    assert mounted["ContainerPath"] in json.loads(instructions("VOLUME")[-1])


# Its scaling.


def test_the_scaling_follows_visible_messages_for_each_running_task() -> None:
    policy = rendered()["Backlog"]["Properties"]["TargetTrackingScalingPolicyConfiguration"]
    metrics = {each["Id"]: each for each in policy["CustomizedMetricSpecification"]["Metrics"]}
    assert [id for id, each in metrics.items() if each["ReturnData"]] == ["backlog"]
    assert set(re.findall(r"[a-z]+", metrics["backlog"]["Expression"])) == metrics.keys() - {"backlog"}
    assert metrics["visible"]["MetricStat"]["Metric"]["Dimensions"] == [{"Name": "QueueName", "Value": "orders"}]
    assert metrics["tasks"]["MetricStat"]["Stat"] == "SampleCount"
    assert rendered()["Tasks"]["Properties"]["MinCapacity"] >= 1
    assert "DesiredCount" not in rendered()["Service"]["Properties"]


def test_every_parameter_is_described_or_speaks_for_itself_and_is_in_a_group() -> None:
    template = load(TEMPLATE)
    groups = template["Metadata"]["AWS::CloudFormation::Interface"]["ParameterGroups"]
    assert [name for group in groups for name in group["Parameters"]] == list(template["Parameters"])
    plain = {name for name, each in template["Parameters"].items() if "Description" not in each}
    assert plain == {"MaxTasks", "LogRetentionDays", "MetricsNamespace"}


# Its image.


def instructions(name: str) -> list[str]:
    return re.findall(rf"(?m)^{name} (.+)$", DOCKERFILE)


def test_the_image_runs_the_worker_as_a_user_without_rights() -> None:
    assert json.loads(instructions("ENTRYPOINT")[-1]) == ["receiver", "work"]
    assert int(instructions("USER")[-1].partition(":")[0]) > 0


def test_all_that_the_image_copies_is_there_and_not_ignored() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = [line.split() for line in instructions("COPY") if "--from" not in line]
    for path in (each for words in copied for each in words[:-1]):
        assert (ROOT / path).exists(), path
        assert any(path == each or path.startswith(f"{each}/") for each in allowed), path


def test_the_handler_is_where_the_worker_looks_for_it() -> None:
    """In the current folder."""
    workdir = instructions("WORKDIR")[-1]
    assert f"COPY src/app {workdir}/app" in DOCKERFILE
