"""What the templates become: every variant that their parameters make of them, and how to look into one."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ROOT
from tests.template import load, rendering, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def statements_in(held: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The statements of a role's or a policy's properties, by their names."""
    documents = [each["PolicyDocument"] for each in held.get("Policies", [held])]
    return {each["Sid"]: each for document in documents for each in document["Statement"] if "Sid" in each}


def statements(variant: str, *resources: str) -> dict[str, dict[str, Any]]:
    there = [name for name in resources if name in rendered(variant)["Resources"]]
    return {sid: each for name in there for sid, each in statements_in(properties(variant, name)).items()}


def consumers(variant: str) -> dict[str, dict[str, Any]]:
    return statements(variant, "ConsumerRole", "LedgerPolicy")


def apis(variant: str) -> dict[str, dict[str, Any]]:
    return statements(variant, "ApiRole")


def operators(variant: str) -> dict[str, dict[str, Any]]:
    return statements(variant, "OperatorPolicy")


def has_dead_letters(variant: str) -> bool:
    return "DeadLetterQueueUrl" in rendered(variant)["Outputs"]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def actions(statements: dict[str, dict[str, Any]]) -> set[str]:
    return {action for each in statements.values() for action in listed(each["Action"])}


def wide(statements: dict[str, dict[str, Any]]) -> set[str]:
    """Whose resource has a wildcard. No action may have one."""
    assert not [action for action in actions(statements) if "*" in action or "?" in action]
    return {sid for sid, each in statements.items() if "*" in json.dumps(each["Resource"])}


def resources_of(statements: dict[str, dict[str, Any]], action: str) -> dict[str, Any]:
    """The resource of each statement that allows this, by its name."""
    return {sid: each["Resource"] for sid, each in statements.items() if action in listed(each["Action"])}


@cache
def variables_read(module: str) -> tuple[set[str], set[str]]:
    """The variables that a module and its own imports read: the required ones and the optional ones."""
    tree = ast.parse((ROOT / "src" / f"{module.replace('.', '/')}.py").read_text())
    text = ast.unparse(tree)
    needed = set(re.findall(r"os\.environ\['(\w+)'\]", text))
    wanted = set(re.findall(r"os\.environ\.get\('(\w+)'", text))
    for imported in _own_imports(tree):
        more, perhaps = variables_read(imported)
        needed, wanted = needed | more, wanted | perhaps
    return needed, wanted


def _own_imports(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("app."):
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from [part for part in parts if (ROOT / "src" / f"{part.replace('.', '/')}.py").exists()] or [
                str(node.module)
            ]


def assert_says_what_to_do(section: str) -> None:
    """As each section that an alarm names does, first of all what to type."""
    assert re.match(r"\n\*\*What to type\.\*\*[^\n]*\n\n```sh\n", section), section[:80]
    assert [each for each in ("**What it means.**", "**What to do.**") if each not in section] == []
