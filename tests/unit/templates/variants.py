"""What template.yaml becomes: every variant that its parameters make of it."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from cfnlint.config import ConfigMixIn
from cfnlint.decode import decode_str
from cfnlint.runner import Runner

from tests.template import load, rendering, text_of

OWN_QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"
OWN = {"QueueArn": OWN_QUEUE, "DeadLetterQueueArn": f"{OWN_QUEUE}-dead"}
VARIANTS: dict[str, dict[str, str]] = {
    "standard": {},
    "fifo": {"Fifo": "true"},
    "own queue": {name: f"{arn}.fifo" for name, arn in OWN.items()} | {"Fifo": "true"},
    "dead letters at once": {"DeadLetterAtOnce": "true"},
    "own queue, dead letters at once": {**OWN, "DeadLetterAtOnce": "true"},
    "own queue, no dead letters": {"QueueArn": OWN_QUEUE},
    "own key": {"KmsKeyArn": KEY},
    "own key and queue": {"KmsKeyArn": KEY, "QueueArn": OWN_QUEUE},
    "no api": {"MakeApi": load()["Parameters"]["MakeApi"]["Default"]},
    "traced, and alarms sent": {"Tracing": "Active", "AlarmTopicArn": TOPIC},
}
MADE_HERE = [variant for variant, parameters in VARIANTS.items() if "QueueArn" not in parameters]
every_variant = pytest.mark.parametrize("variant", VARIANTS)
variants_with_api = pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "no api"])
variants_with_queues = pytest.mark.parametrize("variant", MADE_HERE)

TABLES = ("Records", "Accounts", "Entries", "Transfers")
QUEUES = ("Queue", "DeadLetterQueue")


@cache
def _rendered(variant: str, parameters: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return rendering(**{"MakeApi": "true"} | VARIANTS[variant] | dict(parameters)).rendered()


def rendered(variant: str = "standard", **parameters: str) -> dict[str, Any]:
    """With its API, unless the variant has none."""
    return _rendered(variant, tuple(parameters.items()))


def properties(variant: str, resource: str) -> dict[str, Any]:
    return dict(rendered(variant)["Resources"][resource]["Properties"])


def of_type(variant: str, type: str, **parameters: str) -> dict[str, dict[str, Any]]:
    """The properties of all resources of a type, by name."""
    resources = rendered(variant, **parameters)["Resources"].items()
    return {name: each["Properties"] for name, each in resources if each["Type"] == type}


def alarms(variant: str, **parameters: str) -> dict[str, dict[str, Any]]:
    """The consumer's alarms."""
    found = of_type(variant, "AWS::CloudWatch::Alarm", **parameters)
    return {name: each for name, each in found.items() if "Api" not in name}


def widgets(variant: str, dashboard: str = "Dashboard", **parameters: str) -> list[dict[str, Any]]:
    body = rendered(variant, **parameters)["Resources"][dashboard]["Properties"]["DashboardBody"]
    return list(json.loads(text_of(body))["widgets"])


def mapping(variant: str) -> dict[str, Any]:
    return dict(properties(variant, "Consumer")["Events"]["Messages"]["Properties"])


def statements(variant: str, resource: str) -> dict[str, dict[str, Any]]:
    """The statements of a role or a policy, by their names."""
    held = properties(variant, resource)
    documents = [each["PolicyDocument"] for each in held.get("Policies", [held])]
    return {each["Sid"]: each for document in documents for each in document["Statement"]}


def consumers(variant: str) -> dict[str, dict[str, Any]]:
    return statements(variant, "ConsumerRole") | statements(variant, "LedgerPolicy")


def apis(variant: str) -> dict[str, dict[str, Any]]:
    return {} if variant == "no api" else statements(variant, "ApiRole")


def operators(variant: str) -> dict[str, dict[str, Any]]:
    return statements(variant, "OperatorPolicy")


def has_dead_letters(variant: str) -> bool:
    return "DeadLetterQueueUrl" in rendered(variant)["Outputs"]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def actions(statements: dict[str, dict[str, Any]]) -> set[str]:
    return {action for each in statements.values() for action in listed(each["Action"])}


def resources_of(statements: dict[str, dict[str, Any]], action: str) -> dict[str, Any]:
    """The resource of each statement that allows this, by its name."""
    return {sid: each["Resource"] for sid, each in statements.items() if action in listed(each["Action"])}


@cache
def linter() -> Runner:
    return Runner(ConfigMixIn(regions=["us-east-1"], include_checks=["I"]))


def problems(text: str) -> list[str]:
    decoded, unreadable = decode_str(text)
    matches = unreadable or linter().validate_template(decoded or {})
    return [f"{match.rule.id} {match.message} at {match.path}" for match in matches]
