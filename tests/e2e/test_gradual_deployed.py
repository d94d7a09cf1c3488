"""The gradual deployment of docs/component.md: its edit of the example's template, expanded and deployed.

The local cloud has no CodeDeploy, so there the alias moves at once.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from harness.cloud import ACCOUNT, REGION
from harness.deploy import TEMPLATE, deploy
from harness.edits import edited
from idempotent_receiver.operations.doctor.checks import examine
from idempotent_receiver.operations.doctor.facts import consumer_of, gather
from idempotent_receiver.operations.mappings import mappings_of
from tests.e2e.deployed import Deployed
from tests.e2e.permissions import Permission, allowed
from tests.sam import expanded

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.deployed import Aws


def gradual(release: str) -> str:
    """The edited template, as it is deployed for this release.

    SAM reads the parameter's value; the local cloud hands it defaults only.
    """
    text, parameter = edited(TEMPLATE.read_text(), "Gradual deployments"), "\n  Release: {"
    assert text.count(parameter) == 1
    return text.replace(parameter, f"{parameter}Default: {release}, ")


def test_sam_makes_an_alias_that_alarms_roll_back() -> None:
    (made,) = expanded(gradual("first"))
    assert made["ConsumerMessages"]["Properties"]["FunctionName"] == {"Ref": "ConsumerAliaslive"}
    group = made["ConsumerDeploymentGroup"]["Properties"]
    assert [each["Name"] for each in group["AlarmConfiguration"]["Alarms"]] == [
        {"Ref": "ReleaseAlarm"},
        {"Fn::GetAtt": ["Watch", "Outputs.ErrorsAlarm"]},
    ]
    assert "DEPLOYMENT_STOP_ON_ALARM" in group["AutoRollbackConfiguration"]["Events"]
    assert "CodeDeployLambdaAliasUpdate" in made["ConsumerAliaslive"]["UpdatePolicy"]


@pytest.fixture(scope="module")
def bank(aws: Aws, build: Path) -> Iterator[Deployed]:
    name = f"gradual-{uuid4().hex[:8]}"
    text = at_once(gradual("first"))
    stack = deploy(aws, name=name, code=build, template=text)  # type: ignore[arg-type]  # it has the clients
    yield Deployed(aws, stack, [], [])
    aws.client("cloudformation").delete_stack(StackName=name)


def at_once(text: str) -> str:
    """The same without CodeDeploy."""
    return text.replace("      DeploymentPreference:\n", "      DeploymentPreference:\n        Enabled: false\n")


def test_messages_go_to_the_alias(bank: Deployed) -> None:
    (mapping,) = mappings_of(bank.aws.client("lambda"), bank.stack.outputs["QueueArn"])
    assert mapping.function == f"{bank.stack.outputs['ConsumerName']}:live"
    (key,) = bank.send(bank.transfer(bank.new_account(10), bank.new_account(0), 10))
    bank.settled(key)


def test_doctor_finds_nothing(bank: Deployed) -> None:
    assert examine(gather(bank.aws.client, consumer_of(bank.aws.client, bank.stack.name))) == []


def test_the_operators_policy_reaches_the_alias_and_its_mapping(bank: Deployed) -> None:
    by_name = {each["Sid"]: each for each in bank.operators_statements()}
    alias = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:{bank.stack.outputs['ConsumerName']}:live"
    assert allowed(Permission("lambda:GetFunctionConfiguration", alias), [by_name["LookAtTheFunction"]])
    patterns = by_name["SwitchTheMapping"]["Condition"]["ArnLike"]["lambda:FunctionArn"]
    assert any(fnmatchcase(alias, pattern) for pattern in patterns)
