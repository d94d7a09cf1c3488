"""Doctor on a deployed stack: nothing on the one that is shipped, and a fault of each kind by its name."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from harness.cloud import ACCOUNT, REGION
from harness.deploy import deploy
from idempotent_receiver.operations.doctor.checks import Finding, Unchecked, examine
from idempotent_receiver.operations.doctor.facts import consumer_of, gather
from idempotent_receiver.operations.doctor.roles import ON_ANY_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from harness.deploy import Stack
    from tests.e2e.deployed import Aws


@pytest.fixture(scope="module")
def stack(aws: Aws, build: Path) -> Iterator[Stack]:
    """The template as it is shipped. It is broken and repaired here, so no other test may use it."""
    name = f"doctor-{uuid4().hex[:8]}"
    yield deploy(aws, name=name, code=build)  # type: ignore[arg-type]  # it has the clients, and no more is asked
    aws.client("cloudformation").delete_stack(StackName=name)


def examined(aws: Aws, stack: Stack) -> list[Finding | Unchecked]:
    return examine(gather(aws.client, consumer_of(aws.client, stack.name)))


@contextmanager
def queue_attribute(aws: Aws, stack: Stack, queue: str, name: str, value: str) -> Iterator[None]:
    sqs, url = aws.client("sqs"), stack.resources[queue]
    before = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"].get(name, "")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={name: value})
    yield
    sqs.set_queue_attributes(QueueUrl=url, Attributes={name: before})


@contextmanager
def mapping(aws: Aws, stack: Stack, spoiled: dict[str, Any], mended: dict[str, Any]) -> Iterator[None]:
    functions, uuid = aws.client("lambda"), stack.resources["ConsumerMessages"]
    functions.update_event_source_mapping(UUID=uuid, **spoiled)
    yield
    functions.update_event_source_mapping(UUID=uuid, **mended)


@contextmanager
def time_to_live_is_off(aws: Aws, stack: Stack) -> Iterator[None]:
    for enabled in (False, True):
        aws.client("dynamodb").update_time_to_live(
            TableName=stack.resources["Records"],
            TimeToLiveSpecification={"Enabled": enabled, "AttributeName": "expiration"},
        )
        if not enabled:
            yield


@contextmanager
def variable(aws: Aws, stack: Stack, name: str, value: str) -> Iterator[None]:
    functions, function = aws.client("lambda"), stack.resources["Consumer"]
    before = functions.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    for variables in ({**before, name: value}, before):
        functions.update_function_configuration(FunctionName=function, Environment={"Variables": variables})
        # It answers at once and changes a moment later, here as at AWS: what is looked at in between is neither.
        functions.get_waiter("function_updated_v2").wait(
            FunctionName=function, WaiterConfig={"Delay": 1, "MaxAttempts": 30}
        )
        if variables is not before:
            yield


@contextmanager
def denied(aws: Aws, stack: Stack, action: str, role: str = "ConsumerRole") -> Iterator[None]:
    iam, role = aws.client("iam"), stack.resources[role]
    statement = {"Effect": "Deny", "Action": action, "Resource": "*"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_role_policy(RoleName=role, PolicyName="Spoil", PolicyDocument=document)
    yield
    iam.delete_role_policy(RoleName=role, PolicyName="Spoil")


@contextmanager
def alarm_is_gone(aws: Aws, stack: Stack, name: str) -> Iterator[None]:
    cloudwatch = aws.client("cloudwatch")
    (alarm,) = cloudwatch.describe_alarms(AlarmNames=[stack.resources[name]])["MetricAlarms"]
    cloudwatch.delete_alarms(AlarmNames=[alarm["AlarmName"]])
    yield
    kept = ("AlarmName", "Namespace", "MetricName", "Dimensions", "Statistic", "Period", "EvaluationPeriods")
    settings = {each: alarm[each] for each in (*kept, "Threshold", "ComparisonOperator")}
    cloudwatch.put_metric_alarm(**settings)


@contextmanager
def alarm_is(aws: Aws, stack: Stack, name: str, **changes: Any) -> Iterator[None]:
    cloudwatch = aws.client("cloudwatch")
    (alarm,) = cloudwatch.describe_alarms(AlarmNames=[stack.resources[name]])["MetricAlarms"]
    kept = ("AlarmName", "Namespace", "MetricName", "Dimensions", "Statistic", "Period", "EvaluationPeriods")
    settings = {each: alarm[each] for each in (*kept, "Threshold", "ComparisonOperator", "ActionsEnabled")}
    cloudwatch.put_metric_alarm(**{**settings, **changes})
    yield
    cloudwatch.put_metric_alarm(**settings)


@contextmanager
def reserved_without_a_maximum(aws: Aws, stack: Stack, reserved: int) -> Iterator[None]:
    functions, function = aws.client("lambda"), stack.resources["Consumer"]
    bound = {"ScalingConfig": {"MaximumConcurrency": 10}}
    with mapping(aws, stack, {"ScalingConfig": {}}, bound):
        functions.put_function_concurrency(FunctionName=function, ReservedConcurrentExecutions=reserved)
        yield
        functions.delete_function_concurrency(FunctionName=function)


@contextmanager
def dead_letters_are_consumed(aws: Aws, stack: Stack) -> Iterator[None]:
    functions, sqs = aws.client("lambda"), aws.client("sqs")
    attributes = sqs.get_queue_attributes(QueueUrl=stack.resources["DeadLetterQueue"], AttributeNames=["QueueArn"])
    made = functions.create_event_source_mapping(
        FunctionName=stack.resources["Consumer"], EventSourceArn=attributes["Attributes"]["QueueArn"]
    )
    yield
    functions.delete_event_source_mapping(UUID=made["UUID"])


@contextmanager
def table_of_another_key(aws: Aws, stack: Stack) -> Iterator[None]:
    name = f"{stack.name}-another"
    aws.client("dynamodb").create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "name", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "name", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with variable(aws, stack, "RECORDS_TABLE", name):
        yield
    aws.client("dynamodb").delete_table(TableName=name)


FAULTS: dict[str, Callable[[Aws, Stack], Any]] = {
    "partial-responses": lambda aws, stack: mapping(
        aws, stack, {"FunctionResponseTypes": []}, {"FunctionResponseTypes": ["ReportBatchItemFailures"]}
    ),
    "visibility": lambda aws, stack: queue_attribute(aws, stack, "Queue", "VisibilityTimeout", "180"),
    "ttl": time_to_live_is_off,
    "record-retention": lambda aws, stack: variable(aws, stack, "RECORD_RETENTION_DAYS", "18"),
    "account-limit": lambda aws, stack: mapping(
        aws, stack, {"ScalingConfig": {"MaximumConcurrency": 1000}}, {"ScalingConfig": {"MaximumConcurrency": 10}}
    ),
    "permissions": lambda aws, stack: denied(aws, stack, "dynamodb:PartiQLUpdate"),
    "alarms": lambda aws, stack: alarm_is_gone(aws, stack, "LostClaimsAlarm"),
    "alarms: actions off": lambda aws, stack: alarm_is(aws, stack, "ErrorsAlarm", ActionsEnabled=False),
    "alarms: never reached": lambda aws, stack: alarm_is(aws, stack, "UnsettledAlarm", Threshold=1e6),
    "concurrency: two": lambda aws, stack: reserved_without_a_maximum(aws, stack, 2),
    "concurrency: none": lambda aws, stack: reserved_without_a_maximum(aws, stack, 0),
    "queue-retention": lambda aws, stack: queue_attribute(aws, stack, "Queue", "MessageRetentionPeriod", "60"),
    "dead-letter-queue: own": lambda aws, stack: variable(
        aws, stack, "DEAD_LETTER_QUEUE_URL", stack.outputs["QueueUrl"]
    ),
    "dead-letter-queue: another": lambda aws, stack: variable(
        aws, stack, "DEAD_LETTER_QUEUE_URL", f"{stack.outputs['QueueUrl']}-another"
    ),
    "dead-letter-queue: denies": lambda aws, stack: queue_attribute(
        aws, stack, "DeadLetterQueue", "RedriveAllowPolicy", '{"redrivePermission": "denyAll"}'
    ),
    "one-consumer": dead_letters_are_consumed,
    "table-of-records: missing": lambda aws, stack: variable(aws, stack, "RECORDS_TABLE", "missing"),
    "table-of-records: another key": table_of_another_key,
}
"""By its check and, where it has several, the fault. The unit tests have all of every check."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_by_its_check_alone(aws: Aws, stack: Stack, fault: str) -> None:
    """But that the role may not use another table or queue, or that nothing expires there, is one, too."""
    with FAULTS[fault](aws, stack):
        found = {each.check for each in examined(aws, stack) if isinstance(each, Finding)}
    check, detail = fault.partition(":")[::2]
    assert {check} <= found <= ({check, "permissions", "ttl"} if detail else {check})
    assert examined(aws, stack) == []


def test_a_copied_role_is_told_what_it_lacks(aws: Aws, stack: Stack) -> None:
    """An action with its resource; and a table of the handler's own that only the copy's variables name."""
    with denied(aws, stack, "sqs:ChangeMessageVisibility"), variable(aws, stack, "TOTALS_TABLE", "totals"):
        facts = gather(aws.client, consumer_of(aws.client, stack.name))
    assert facts.denied == [f"sqs:ChangeMessageVisibility on {stack.outputs['QueueArn']}"]
    assert isinstance(facts.denied_to_the_handler, dict)
    assert facts.denied_to_the_handler["TOTALS_TABLE"] == ("totals", [f"dynamodb:{each}" for each in ON_ANY_TABLE])


def asked_of(aws: Aws, stack: Stack) -> set[str]:
    """The actions that it asks AWS for."""
    asked: set[str] = set()
    clients: dict[str, Any] = {}

    def client(service: str) -> Any:
        if service not in clients:
            clients[service] = aws.client(service)
            clients[service].meta.events.register("before-call", note)
        return clients[service]

    def note(model: Any, **_: Any) -> None:
        asked.add(f"{model.service_model.signing_name}:{model.name}".replace("monitoring:", "cloudwatch:"))

    gather(client, consumer_of(client, stack.name))
    for each in clients.values():
        each.meta.events.unregister("before-call", note)
    assert asked
    return asked


def allowed_by(aws: Aws, policy: str) -> set[str]:
    """The actions of a managed policy."""
    document = aws.client("iam").get_policy_version(PolicyArn=policy, VersionId="v1")["PolicyVersion"]["Document"]
    listed = [each["Action"] for each in document["Statement"]]
    return {action for each in listed for action in ([each] if isinstance(each, str) else each)}


def test_all_that_it_asks_for_is_in_the_operators_policy(aws: Aws, stack: Stack) -> None:
    assert asked_of(aws, stack) - allowed_by(aws, stack.outputs["OperatorPolicyArn"]) == set()


# The command.


@dataclass(frozen=True)
class Ran:
    """What came of a command."""

    status: int
    out: str
    err: str


def receiver(aws: Aws, *arguments: str, out: int = subprocess.PIPE) -> Ran:
    """Run the command in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "idempotent_receiver", *arguments, "--endpoint-url", aws.endpoint_url],
        env={**os.environ, "AWS_ACCESS_KEY_ID": ACCOUNT, "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": REGION}
        | {"AWS_DEFAULT_REGION": REGION, "TERM": "xterm-256color"},
        stdout=out,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    return Ran(ran.returncode, ran.stdout or "", ran.stderr)


def test_the_example_in_its_help_runs_and_ends_well_on_the_shipped_stack(aws: Aws, stack: Stack) -> None:
    example, *_ = re.findall(r"(?m)^ *receiver (doctor .*)$", receiver(aws, "doctor", "--help").out)
    ran = receiver(aws, *example.replace("transfers", stack.name).split())
    assert (ran.status, ran.err) == (0, "")
    assert ran.out.strip().endswith("19 checks: 19 passed, 0 findings, 0 not checked.")
