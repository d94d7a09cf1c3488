"""What AWS would report of the stack of template.yaml: the facts for doctor, from the template's own values."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cfnlint.decode import cfn_yaml

from harness.cloud import ROOT
from harness.edits import edited, with_values
from idempotent_receiver.operations.description import DAY_SECONDS
from idempotent_receiver.operations.doctor.facts import DeployedFunction, Facts
from tests.template import TEMPLATE, load, rendering, text_of, watched_by

if TYPE_CHECKING:
    from collections.abc import Mapping

ACCOUNT = "123456789012"
URL = f"https://sqs.us-east-1.amazonaws.com/{ACCOUNT}/"
TOPIC = f"arn:aws:sns:us-east-1:{ACCOUNT}:alarms"
ARN = "arn:aws:{service}:us-east-1:" + ACCOUNT + ":{name}"


def resources_of(
    *edits: str, values: Mapping[str, object] | None = None, **parameters: str
) -> dict[str, dict[str, Any]]:
    """The resources of template.yaml with these edits of the documents, values of properties, and parameters."""
    text = with_values(edited(TEMPLATE.read_text(), *edits), **values or {})
    template = cfn_yaml.loads(text)
    return dict(rendering(template, **parameters).rendered()["Resources"])


def facts(*edits: str, values: Mapping[str, object] | None = None, **parameters: str) -> Facts:
    """The facts of the stack of template.yaml, or with these edits, values of properties, and parameters. Its alarms
    have a topic.
    """
    resources = resources_of(*edits, values=values, **{"AlarmTopicArn": TOPIC, **parameters})
    properties = {name: each.get("Properties", {}) for name, each in resources.items()}
    consumer = properties["Consumer"]
    table = properties["Records"]
    settings = {name: text_of(value) for name, value in consumer["Environment"]["Variables"].items()}
    if "DEAD_LETTER_QUEUE_URL" in settings:
        settings["DEAD_LETTER_QUEUE_URL"] = URL + settings["DEAD_LETTER_QUEUE_URL"]
    function = DeployedFunction(
        configuration={
            "FunctionName": "Consumer",
            "Timeout": int(consumer["Timeout"]),
            "Environment": {"Variables": settings},
        },
        instances=None,
        reserved=consumer.get("ReservedConcurrentExecutions"),
        mapping=_mapping(consumer["Events"]["Messages"]["Properties"]),
    )
    return Facts(
        functions=[function],
        account={"ConcurrentExecutions": 1000, "UnreservedConcurrentExecutions": 1000},
        container=None,
        settings=settings,
        queue=_queue("Queue", properties["Queue"]),
        dead_letter_queue=_queue("DeadLetterQueue", properties["DeadLetterQueue"]),
        keys={},
        readers=["Consumer"],
        dead_letter_readers=[],
        named_dead_letter_queue=f"{URL}DeadLetterQueue",
        table={
            "TableName": "Records",
            "TableArn": ARN.format(service="dynamodb", name="table/Records"),
            **{name: table[name] for name in ("KeySchema", "AttributeDefinitions")},
        },
        named_table="Records",
        time_to_live=_time_to_live(table["TimeToLiveSpecification"]),
        denied=[],
        denied_to_the_handler={},
        alarms=[_alarm(each["Properties"]) for each in resources.values() if each["Type"] == "AWS::CloudWatch::Alarm"],
        retention_seconds=int(settings["RECORD_RETENTION_DAYS"]) * DAY_SECONDS,
    )


def facts_outside_lambda(**parameters: str) -> Facts:
    """The facts of the stack of deploy/container.yaml beside that one, whose function reads the queue as well."""
    shipped = facts()
    given = {"QueueArn": shipped.queue["QueueArn"], "RecordsTable": "Records"}  # type: ignore[index]
    given |= dict.fromkeys(
        ("AccountsTable", "EntriesTable", "Repository", "ImageTag", "Subnets", "SecurityGroups"), "x"
    )
    given["AlarmTopicArn"] = TOPIC
    template = rendering(load(ROOT / "deploy" / "container.yaml"), **{**given, **parameters})
    resources = template.rendered()["Resources"]
    (container,) = resources["Task"]["Properties"]["ContainerDefinitions"]
    settings = {each["Name"]: text_of(each["Value"]) for each in container["Environment"]}
    own = [_alarm(each["Properties"]) for each in resources.values() if each["Type"] == "AWS::CloudWatch::Alarm"]
    of_the_queue = [each for each in shipped.alarms if each.get("Namespace") in ("AWS/SQS", None)]  # type: ignore[union-attr]
    return replace(
        shipped,
        container={
            "command": [text_of(each) for each in container["Command"]],
            "stopTimeout": container["StopTimeout"],
            "healthCheck": {"command": container["HealthCheck"]["Command"]},
        },
        settings=settings,
        named_dead_letter_queue=None,  # its stack names none
        alarms=[*of_the_queue, *own],
        retention_seconds=int(settings["RECORD_RETENTION_DAYS"]) * DAY_SECONDS,
    )


def _mapping(source: dict[str, Any]) -> dict[str, Any]:
    return {
        "FunctionArn": ARN.format(service="lambda", name="function:Consumer:live"),
        "FunctionResponseTypes": source["FunctionResponseTypes"],
        "BatchSize": int(source["BatchSize"]),
        "MaximumBatchingWindowInSeconds": int(source.get("MaximumBatchingWindowInSeconds", 0)),
        **{name: source[name] for name in ("ScalingConfig", "ProvisionedPollerConfig") if name in source},
    }


def _queue(name: str, properties: dict[str, Any]) -> dict[str, Any]:
    """A queue's attributes, all of them strings, as in SQS."""
    attributes = {
        "QueueArn": ARN.format(service="sqs", name=name),
        "VisibilityTimeout": str(properties.get("VisibilityTimeout", 30)),
        "MessageRetentionPeriod": str(properties["MessageRetentionPeriod"]),
    }
    if properties.get("FifoQueue"):
        attributes["FifoQueue"] = "true"
    if "SqsManagedSseEnabled" in properties:
        attributes["SqsManagedSseEnabled"] = str(properties["SqsManagedSseEnabled"]).lower()
    if "KmsMasterKeyId" in properties:
        attributes["KmsMasterKeyId"] = properties["KmsMasterKeyId"]
    if "RedrivePolicy" in properties:
        policy = {
            **properties["RedrivePolicy"],
            "deadLetterTargetArn": ARN.format(service="sqs", name="DeadLetterQueue"),
        }
        attributes["RedrivePolicy"] = json.dumps(policy)
    return attributes


def _time_to_live(specification: dict[str, Any]) -> dict[str, Any]:
    return {
        "TimeToLiveStatus": "ENABLED" if specification["Enabled"] else "DISABLED",
        "AttributeName": specification["AttributeName"],
    }


def _alarm(properties: dict[str, Any]) -> dict[str, Any]:
    if "Metrics" in properties:
        return {"Metrics": [{"MetricStat": {"Metric": _metric(each)}} for each in watched_by(properties)]}
    names = ("AlarmActions", "Threshold", "ComparisonOperator")
    return {
        **_metric(properties),
        "ActionsEnabled": True,
        **{each: _number(properties[each]) for each in names if each in properties},
    }


def _number(value: Any) -> Any:
    """A parameter's value is a text."""
    return float(value) if isinstance(value, int | str) and str(value).isdigit() else value


def _metric(properties: dict[str, Any]) -> dict[str, Any]:
    dimensions = [{"Name": each["Name"], "Value": _name(each["Value"])} for each in properties["Dimensions"]]
    return {**{name: properties[name] for name in ("Namespace", "MetricName")}, "Dimensions": dimensions}


def _name(value: Any) -> str:
    """A resource's name: here, its logical id."""
    match value:
        case {"Fn::Select": [_, {"Fn::Split": [_, arn]}]}:
            return _name(arn)
    return text_of(value).partition(".")[0]
