"""What the templates become: every variant that edits and parameters make of them, and how to look into one."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ROOT
from harness.edits import edited
from tests.starter import CHOICES, made
from tests.template import TEMPLATE, parsed, rendering, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

EXISTING_QUEUE, EXISTING_TABLE = "A queue that you already have", "A table of records that is already there"
AT_ONCE, LONGER, GRADUAL = "Dead letters at once", "Longer time-outs", "Gradual deployments"
ATTEMPTS = "Attempts of a message's own"
OWN_QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
OWN = {"QueueArn": OWN_QUEUE, "DeadLetterQueueArn": f"{OWN_QUEUE}-dead"}
OWN_FIFO = {name: f"{arn}.fifo" for name, arn in OWN.items()}
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
TOPIC = "arn:aws:sns:us-east-1:123456789012:alarms"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """template.yaml, or the template of a choice of `receiver init`, with these edits and parameters."""

    edits: tuple[str, ...] = ()
    parameters: dict[str, str] = field(default_factory=dict)
    starter: str | None = None

    @property
    def text(self) -> str:
        """The template."""
        text = TEMPLATE.read_text() if self.starter is None else made(self.starter)["template.yaml"]
        return edited(text, *self.edits)

    @property
    def queue_arn(self) -> str | None:
        """The ARN of an existing queue."""
        return self.parameters.get("QueueArn") or CHOICES.get(self.starter or "", {}).get("queue_arn")

    @property
    def fifo(self) -> bool:
        """Whether its queue is one."""
        return "FIFO" in self.edits or bool(CHOICES.get(self.starter or "", {}).get("fifo"))

    @property
    def sends_dead_letters(self) -> bool:
        """Whether the consumer itself sends them."""
        return AT_ONCE in self.edits or (self.starter is not None and self.queue_arn is None)


VARIANTS = {
    "standard": Variant(),
    "fifo": Variant(edits=("FIFO",)),
    "dead letters at once": Variant(edits=(AT_ONCE,)),
    "fifo, dead letters at once, longer time-outs": Variant(edits=("FIFO", AT_ONCE, LONGER)),
    "own queue": Variant(edits=(EXISTING_QUEUE,), parameters=OWN),
    "own queue, no dead letters": Variant(
        edits=(EXISTING_QUEUE,), parameters={"QueueArn": OWN_QUEUE, "DeadLetterQueueArn": ""}
    ),
    "own fifo queue and table": Variant(
        edits=("FIFO", LONGER, EXISTING_QUEUE, EXISTING_TABLE), parameters=OWN_FIFO | {"RecordsTable": "records"}
    ),
    "own key": Variant(parameters={"KmsKeyArn": KEY}),
    "own key and queue": Variant(edits=(EXISTING_QUEUE,), parameters={"KmsKeyArn": KEY, **OWN}),
    "traced, and alarms sent": Variant(parameters={"Tracing": "Active", "AlarmTopicArn": TOPIC}),
    "starter": Variant(starter="plain"),
    "starter, fifo": Variant(starter="fifo", edits=(LONGER,)),
    "starter, own queue": Variant(starter="own queue"),
    "starter, own fifo queue": Variant(starter="own fifo queue"),
    "starter, alarms sent": Variant(starter="plain", parameters={"AlarmTopicArn": TOPIC}),
}
MADE_HERE = [name for name, variant in VARIANTS.items() if variant.queue_arn is None]
TABLES = ("Records", "Accounts", "Entries", "History")
STATEFUL = {
    "AWS::DynamoDB::Table",
    "AWS::SQS::Queue",
    "AWS::SQS::QueuePolicy",
    "AWS::S3::Bucket",
    "AWS::S3::BucketPolicy",
}
"""What is kept when a stack is deleted, with what protects it."""
QUEUES = ("Queue", "DeadLetterQueue")
ALLOWED = "ConsumerRole.Properties.Policies.Consume.PolicyDocument.Statement"
CONNECT = {
    "Effect": "Allow",
    "Action": [
        "ec2:CreateNetworkInterface",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeSubnets",
        "ec2:DeleteNetworkInterface",
        "ec2:AssignPrivateIpAddresses",
        "ec2:UnassignPrivateIpAddresses",
    ],
    "Resource": "*",
    "Condition": {"Null": {"lambda:SourceFunctionArn": "true"}},
}
"""What Lambda needs of a role in a VPC, as in AWSLambdaVPCAccessExecutionRole, but not for the function's own calls."""
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@cache
def _rendered(variant: str, parameters: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    chosen = VARIANTS[variant]
    return rendering(parsed(chosen.text), **chosen.parameters | dict(parameters)).rendered()


def rendered(variant: str = "standard", **parameters: str) -> dict[str, Any]:
    return _rendered(variant, tuple(parameters.items()))


def properties(variant: str, resource: str) -> dict[str, Any]:
    return dict(rendered(variant)["Resources"][resource]["Properties"])


def of_type(variant: str, type: str, **parameters: str) -> dict[str, dict[str, Any]]:
    """The properties of all resources of a type, by name."""
    resources = rendered(variant, **parameters)["Resources"].items()
    return {name: each["Properties"] for name, each in resources if each["Type"] == type}


def alarms(variant: str, **parameters: str) -> dict[str, dict[str, Any]]:
    return of_type(variant, "AWS::CloudWatch::Alarm", **parameters)


def widgets(variant: str, **parameters: str) -> list[dict[str, Any]]:
    return widgets_of(rendered(variant, **parameters)["Resources"]["Dashboard"]["Properties"])


def widgets_of(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return list(json.loads(text_of(dashboard["DashboardBody"]))["widgets"])


def mapping(variant: str) -> dict[str, Any]:
    return dict(properties(variant, "Consumer")["Events"]["Messages"]["Properties"])


def name_of(statement: dict[str, Any]) -> str:
    """Its Sid, or else what it is about: its first action, and the service that may."""
    service = statement.get("Principal", {}) if isinstance(statement.get("Principal"), dict) else {}
    return str(statement.get("Sid") or " by ".join([listed(statement["Action"])[0], *service.values()]))


def statements_in(held: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The statements of a role's or a policy's properties, by their names, without those that a condition decides."""
    documents = [each["PolicyDocument"] for each in held.get("Policies", [held])]
    decided = [each for document in documents for each in document["Statement"] if "Fn::If" not in each]
    found = {name_of(each): each for each in decided}
    assert len(found) == len(decided), "two of one name"
    return found


GONE = "gone"


def changes(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Where two templates differ, and what is there afterwards. Statements and policies go by their names."""
    before, after = (
        {_label(each, place): each for place, each in enumerate(node)}
        if isinstance(node, list) and all(isinstance(each, dict) for each in node)
        else node
        for node in (before, after)
    )
    if not (isinstance(before, dict) and isinstance(after, dict)) or _function_of(before) != _function_of(after):
        if before != after:
            yield path, after
        return
    for name in sorted({*before, *after}):
        inside = f"{path}.{name}".lstrip(".")
        if name in before and name in after:
            yield from changes(before[name], after[name], inside)
        else:
            yield inside, after.get(name, GONE)


def _function_of(node: dict[str, Any]) -> str:
    """Which of CloudFormation's functions this calls, if it does."""
    (name, *others) = node or [""]
    return name if not others and (name == "Ref" or name.startswith("Fn::")) else ""


def _label(each: dict[str, Any], place: int) -> str:
    return name_of(each) if "Effect" in each else str(each.get("PolicyName", place))


def consumers(variant: str) -> dict[str, dict[str, Any]]:
    return statements_in(properties(variant, "ConsumerRole"))


def operators(variant: str) -> dict[str, dict[str, Any]]:
    return statements_in(properties(variant, "OperatorPolicy"))


def has_dead_letters(variant: str) -> bool:
    return "DeadLetterAlarm" in rendered(variant)["Resources"]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def actions(statements: dict[str, dict[str, Any]]) -> set[str]:
    return {action for each in statements.values() for action in listed(each["Action"])}


def wide(statements: dict[str, dict[str, Any]]) -> set[str]:
    """Whose resource has a wildcard. No action may have one."""
    assert not [action for action in actions(statements) if "*" in action or "?" in action]
    return {name for name, each in statements.items() if "*" in json.dumps(each["Resource"])}


def resources_of(statements: dict[str, dict[str, Any]], action: str) -> dict[str, Any]:
    """The resource of each statement that allows this, by its name."""
    return {name: each["Resource"] for name, each in statements.items() if action in listed(each["Action"])}


@cache
def variables_read(module: str) -> tuple[set[str], set[str]]:
    """The variables that a module and its own imports read: the required ones and the optional ones."""
    code = (ROOT / "src" / f"{module.replace('.', '/')}.py").read_text()
    needed, wanted = variables_in(code)
    for imported in _own_imports(ast.parse(code)):
        more, perhaps = variables_read(imported)
        needed, wanted = needed | more, wanted | perhaps
    return needed, wanted


def variables_in(code: str) -> tuple[set[str], set[str]]:
    """The same of this code alone."""
    text = ast.unparse(ast.parse(code))
    return set(re.findall(r"os\.environ\['(\w+)'\]", text)), set(re.findall(r"os\.environ\.get\('(\w+)'", text))


def _own_imports(tree: ast.Module) -> Iterable[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("app."):
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from [part for part in parts if (ROOT / "src" / f"{part.replace('.', '/')}.py").exists()] or [
                str(node.module)
            ]


def assert_says_what_to_do(alarm: dict[str, Any]) -> None:
    """The section that an alarm names says first of all what to type."""
    page, named = re.findall(r'(docs/\w+\.md), "([^"]+)"', alarm["AlarmDescription"])[0]
    (heading,) = re.findall(rf"(?m)^##+ {re.escape(named)}$", (text := (ROOT / page).read_text()))
    level = heading.partition(" ")[0]
    section = text.partition(f"\n{heading}\n")[2].partition(f"\n{level} ")[0]
    assert re.match(r"\n\*\*What to type\.\*\*[^\n]*\n\n```sh\n", section), section[:80]
    assert [each for each in ("**What it means.**", "**What to do.**") if each not in section] == []
