"""Doctor on workers outside Lambda: the stack of deploy/container.yaml, and a queue with its table."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.cloud import ROOT
from harness.deploy import deploy
from idempotent_receiver.local.deployment import create
from idempotent_receiver.operations.doctor.checks import Finding, Unchecked, examine
from idempotent_receiver.operations.doctor.facts import consumer_of, gather
from tests.e2e.test_doctor_deployed import (
    allowed_by,
    asked_of,
    denied,
    mapping,
    receiver,
    variable,
)
from tests.unit.templates.test_container_template import GIVEN, TEMPLATE, container

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.deploy import Stack
    from tests.e2e.deployed import Aws

NOT_HERE = re.compile(r"(?s)\n  Tasks:\n.*?(?=\n  # The queues' alarms)")
"""The scaling, whose resources the local cloud does not know."""


@pytest.fixture(scope="module")
def consumer(aws: Aws, build: Path) -> Iterator[Stack]:
    """The shipped function's stack, whose queue the workers read as well."""
    name = f"doctor-{uuid4().hex[:8]}"
    yield deploy(aws, name=name, code=build)  # type: ignore[arg-type]  # it has the clients, and no more is asked
    aws.client("cloudformation").delete_stack(StackName=name)


@pytest.fixture(scope="module")
def stack(aws: Aws, consumer: Stack) -> Iterator[Stack]:
    """The containers' stack, beside that one."""
    name = f"containers-{uuid4().hex[:8]}"
    given = {**GIVEN, "Subnets": "subnet-1", "SecurityGroups": "sg-1"}
    given |= {each: consumer.outputs[each] for each in ("QueueArn", "RecordsTable")}
    made = create(aws, name, NOT_HERE.sub("", TEMPLATE.read_text()), given)
    with task(aws, made, healthCheck={"command": container()["HealthCheck"]["Command"]}):  # lost by the local cloud
        yield made
    aws.client("cloudformation").delete_stack(StackName=name)


def examined(aws: Aws, stack: Stack) -> list[Finding | Unchecked]:
    return examine(gather(aws.client, consumer_of(aws.client, stack.name)))


@contextmanager
def task(aws: Aws, stack: Stack, **changes: Any) -> Iterator[None]:
    """Another revision of the task, with its container changed."""
    ecs, where = aws.client("ecs"), (stack.outputs["ClusterName"], stack.outputs["ServiceName"])
    (service,) = ecs.describe_services(cluster=where[0], services=[where[1]])["services"]
    before = service["taskDefinition"]
    definition = ecs.describe_task_definition(taskDefinition=before)["taskDefinition"]
    kept = {each: definition[each] for each in ("family", "taskRoleArn", "executionRoleArn", "networkMode")}
    (own,) = definition["containerDefinitions"]
    changed = ecs.register_task_definition(**kept, containerDefinitions=[{**own, **changes}])["taskDefinition"]
    ecs.update_service(cluster=where[0], service=where[1], taskDefinition=changed["taskDefinitionArn"])
    yield
    ecs.update_service(cluster=where[0], service=where[1], taskDefinition=before)


FAULTS: dict[str, Callable[[Aws, Stack, Stack], Any]] = {
    "partial-responses": lambda aws, _, consumer: mapping(
        aws, consumer, {"FunctionResponseTypes": []}, {"FunctionResponseTypes": ["ReportBatchItemFailures"]}
    ),
    "permissions": lambda aws, stack, _: denied(aws, stack, "ecs:UpdateTaskProtection", role="TaskRole"),
    "one-table": lambda aws, _, consumer: variable(aws, consumer, "RECORDS_TABLE", "another"),
    "stop-timeout": lambda aws, stack, _: task(aws, stack, stopTimeout=90),
    "health-check": lambda aws, stack, _: task(aws, stack, healthCheck={"command": ["CMD-SHELL", "true"]}),
}


@pytest.mark.parametrize("check", FAULTS)
def test_a_fault_is_found_by_its_check_alone(aws: Aws, stack: Stack, consumer: Stack, check: str) -> None:
    with FAULTS[check](aws, stack, consumer):
        found = examined(aws, stack)
    assert [(type(each), each.check) for each in found] == [(Finding, check)]
    assert examined(aws, stack) == []


def test_a_queue_and_a_table_are_looked_at_without_a_stack(aws: Aws, consumer: Stack, tmp_path: Path) -> None:
    given = ("--queue", consumer.outputs["QueueUrl"], "--table", consumer.outputs["RecordsTable"])
    described = tmp_path / "consumer.json"
    described.write_text('{"retention_days": 30}')
    ran = receiver(aws, "doctor", *given, "--consumer", str(described), "--json")
    assert (ran.status, ran.err) == (0, "")
    said = json.loads(ran.out)
    assert said["findings"] == []
    assert [each["check"] for each in said["unchecked"]] == [
        *("dead-letter-queue", "permissions", "stop-timeout", "health-check")
    ]
    assert {each["why"] for each in said["unchecked"]} == {
        "the task can be read only for a stack created from deploy/container.yaml: give --stack"
    }
    with FAULTS["partial-responses"](aws, consumer, consumer):
        ran = receiver(aws, "doctor", *given, "--json")
    assert ran.status == 1
    assert [each["check"] for each in json.loads(ran.out)["findings"]] == ["partial-responses"]
    assert "record-retention" in [each["check"] for each in json.loads(ran.out)["unchecked"]]


def test_the_command_takes_the_containers_stack(aws: Aws, stack: Stack) -> None:
    ran = receiver(aws, "doctor", "--stack", stack.name)
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.strip().endswith("22 checks: 22 passed, 0 findings, 0 not checked.")


def test_all_that_it_asks_for_is_documented(aws: Aws, stack: Stack, consumer: Stack) -> None:
    asked, allowed = asked_of(aws, stack), allowed_by(aws, consumer.outputs["OperatorPolicyArn"])
    doctor = (ROOT / "docs" / "operating.md").read_text().partition("\n## Doctor\n")[2].partition("\n## ")[0]
    assert {action for action in asked - allowed if f"`{action}`" not in doctor} == set()
    assert "ecs:DescribeServices" in asked
