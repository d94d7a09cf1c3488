"""What each edit that the documents describe changes in template.yaml, and in a starter's: what is meant, no more."""

from __future__ import annotations

import re
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
from cfnlint.config import ConfigMixIn
from cfnlint.runner import Runner

from harness.cloud import ROOT
from harness.edits import EditError, edited, edits, with_values
from tests.starter import made
from tests.template import TEMPLATE, WATCH, parsed, rendering
from tests.unit.templates.variants import (
    ALLOWED,
    AT_ONCE,
    ATTEMPTS,
    CONNECT,
    EXISTING_QUEUE,
    EXISTING_TABLE,
    GONE,
    GRADUAL,
    LONGER,
    OWN,
    OWN_QUEUE,
    VARIANTS,
    changes,
)

if TYPE_CHECKING:
    from pathlib import Path

FUNCTION = "Resources.Consumer.Properties"
EVENT = f"{FUNCTION}.Events.Messages.Properties"
STATEMENT = f"Resources.{ALLOWED}"
SENT = "Resources.QueuePolicy.Properties.PolicyDocument.Statement"
DEAD_LETTER_QUEUE = {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
OF_THE_TABLE = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/records"


def admitted(service: str, source: str) -> dict[str, Any]:
    """A statement that lets this one send to the queue, by a service."""
    return {
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": {"Fn::GetAtt": ["Queue", "Arn"]},
        "Condition": {
            "ArnEquals": {
                "aws:SourceArn": [{"Fn::Sub": f"arn:aws:{service}:${{AWS::Region}}:${{AWS::AccountId}}:{source}"}]
            }
        },
    }


EDITS: dict[str, dict[str, Any]] = {
    "Another runtime or architecture": {f"{FUNCTION}.Runtime": "python3.14", f"{FUNCTION}.Architectures": ["x86_64"]},
    "FIFO": {
        "Resources.Queue.Properties.FifoQueue": True,
        "Resources.Queue.Properties.DeduplicationScope": "messageGroup",
        "Resources.Queue.Properties.FifoThroughputLimit": "perMessageGroupId",
        "Resources.DeadLetterQueue.Properties.FifoQueue": True,
        f"{EVENT}.BatchSize": 10,
        f"{EVENT}.MaximumBatchingWindowInSeconds": GONE,
    },
    EXISTING_QUEUE: {
        **{f"Resources.{name}": GONE for name in ("Queue", "DeadLetterQueue", "QueuePolicy")},
        f"{EVENT}.Queue": OWN_QUEUE,
        f"{STATEMENT}.sqs:ReceiveMessage.Resource": OWN_QUEUE,
        **{f"Resources.Watch.Properties.Parameters.{name}": arn for name, arn in OWN.items()},
        "Outputs.DeadLetterQueueUrl": GONE,
        "Outputs.QueueArn.Value": OWN_QUEUE,
        "Outputs.QueueUrl.Description": GONE,
        "Outputs.QueueUrl.Value": {"Fn::Sub": "https://sqs.${AWS::Region}.${AWS::URLSuffix}/123456789012/orders"},
    },
    AT_ONCE: {
        f"{FUNCTION}.Environment.Variables.DEAD_LETTER_QUEUE_URL": {"Ref": "DeadLetterQueue"},
        f"{STATEMENT}.sqs:SendMessage": {"Effect": "Allow", "Action": "sqs:SendMessage", "Resource": DEAD_LETTER_QUEUE},
    },
    ATTEMPTS: {
        "Outputs.ConsumerDescription.Value": '{"key":"message_id","payload":{},"envelope":"detail || Message",'
        '"retention_days":30,"effects":"any","max_attempts":10}',
        "Resources.Queue.Properties.RedrivePolicy.maxReceiveCount": 50,
    },
    LONGER: {"Resources.Queue.Properties.VisibilityTimeout": 5401, f"{FUNCTION}.Timeout": 900},
    "Senders": {
        f"{SENT}.sqs:SendMessage by sns.amazonaws.com": admitted("sns", "orders"),
        f"{SENT}.sqs:SendMessage by events.amazonaws.com": admitted("events", "rule/orders"),
    },
    "In a VPC": {
        f"{FUNCTION}.VpcConfig": {"SubnetIds": ["subnet-0a1b2c3d"], "SecurityGroupIds": ["sg-0a1b2c3d"]},
        f"{STATEMENT}.ec2:CreateNetworkInterface": CONNECT,
    },
    "Pollers that are kept ready": {
        f"{EVENT}.ScalingConfig": GONE,
        f"{EVENT}.ProvisionedPollerConfig": {"MinimumPollers": 2, "MaximumPollers": 20},
    },
    "Metrics of the mapping": {f"{EVENT}.MetricsConfig": {"Metrics": ["EventCount"]}},
    "A permissions boundary": {
        "Resources.ConsumerRole.Properties.PermissionsBoundary": {
            "Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:policy/boundary"
        },
    },
    EXISTING_TABLE: {
        "Resources.Records": GONE,
        f"{FUNCTION}.Environment.Variables.RECORDS_TABLE": "records",
        f"{STATEMENT}.dynamodb:PartiQLInsert.Resource": {"Fn::Sub": OF_THE_TABLE},
        "Resources.Watch.Properties.Parameters.RecordsTable": "records",
        "Outputs.RecordsTable.Value": "records",
    },
    GRADUAL: {
        f"{FUNCTION}.AutoPublishAlias": "live",
        f"{FUNCTION}.AutoPublishCodeSha256": "first",
        f"{FUNCTION}.DeploymentPreference": {
            "Type": "Linear10PercentEvery1Minute",
            "Alarms": [{"Ref": "ReleaseAlarm"}, {"Fn::GetAtt": ["Watch", "Outputs.ErrorsAlarm"]}],
        },
        "Resources.ReleaseAlarm": {
            "Type": "AWS::CloudWatch::Alarm",
            "Properties": {
                "Namespace": "IdempotentReceiver",
                "MetricName": "Failed",
                "Dimensions": [{"Name": "service", "Value": {"Ref": "AWS::StackName"}}],
                "Statistic": "Sum",
                "Period": 60,
                "EvaluationPeriods": 1,
                "Threshold": 20,
                "ComparisonOperator": "GreaterThanThreshold",
                "TreatMissingData": "notBreaching",
            },
        },
    },
}
ADDED = {EXISTING_QUEUE: OWN, EXISTING_TABLE: {"RecordsTable": "records"}, GRADUAL: {"Release": "first"}}
"""Parameters that an edit adds, with values."""
REMOVED = {"Pollers that are kept ready": {"MaximumConcurrency"}}
NOT_FOR_A_STARTER = {
    EXISTING_QUEUE: "`receiver init --queue-arn` makes a project with it",
    "Pollers that are kept ready": "its MaximumConcurrency is no parameter",
    AT_ONCE: "it has them",
    ATTEMPTS: "it has them",
}
every_edit = pytest.mark.parametrize("edit", EDITS)
for_a_starter = pytest.mark.parametrize("edit", [edit for edit in EDITS if edit not in NOT_FOR_A_STARTER])
STARTER = made("plain")["template.yaml"]


def test_there_is_no_other_edit() -> None:
    assert {*edits()} == {*EDITS}


def changed(text: str, edit: str) -> dict[str, Any]:
    before, after = parsed(text), parsed(edited(text, edit))
    assert after["Parameters"].keys() - before["Parameters"].keys() == ADDED.get(edit, {}).keys()
    assert before["Parameters"].keys() - after["Parameters"].keys() == REMOVED.get(edit, set())
    added = rendering(after, **ADDED.get(edit, {})).alone()
    return dict(changes(rendering(before).alone(), added))


@every_edit
def test_an_edit_changes_what_is_meant_and_nothing_else(edit: str) -> None:
    assert changed(TEMPLATE.read_text(), edit) == EDITS[edit]


@for_a_starter
def test_in_a_starter_it_changes_the_same(edit: str) -> None:
    assert changed(STARTER, edit) == EDITS[edit]


@pytest.mark.parametrize("edit", NOT_FOR_A_STARTER)
def test_some_edits_are_for_the_example_alone(edit: str) -> None:
    with pytest.raises(EditError, match="fits 0 places"):
        edited(STARTER, edit)


def test_any_two_edits_go_together_but_for_dead_letters_of_an_existing_queue() -> None:
    """In one order at least. What else an existing queue leaves out belongs to whoever has it."""
    apart = [pair for pair in combinations(EDITS, 2) if not any(map(whole, (pair, pair[::-1])))]
    assert apart == [(EXISTING_QUEUE, AT_ONCE)]


def whole(headings: tuple[str, ...]) -> bool:
    """Whether these edits fit, and leave nothing that refers to what they removed."""
    try:
        text = edited(TEMPLATE.read_text(), *headings)
    except EditError:
        return False
    return set(re.findall(r"!(?:Ref|GetAtt) (\w+)\b(?!:)", text)) <= set(re.findall(r"(?m)^  (\w+):", text))


def test_a_sender_is_named_without_a_wildcard() -> None:
    """It would admit what nobody named."""
    (diff,) = edits()["Senders"]
    sources = re.findall(r"aws:SourceArn': \[(.*?)\]", diff)
    assert len(sources) == 2
    assert not [each for each in sources if "*" in each or "?" in each]


def test_the_time_outs_of_managed_instances_fit_each_other() -> None:
    """As those of the edit do."""
    page = (ROOT / "docs/deploying.md").read_text()
    (said,) = re.findall(r"`Timeout: (\d+)` with `VisibilityTimeout: (\d+)`", page)
    timeout, visibility = map(int, said)
    window = parsed(TEMPLATE.read_text())["Resources"]["Consumer"]["Properties"]["Events"]["Messages"]["Properties"]
    assert visibility == 6 * timeout + window["MaximumBatchingWindowInSeconds"] <= 12 * 60 * 60
    made_of_it = parsed(with_values(TEMPLATE.read_text(), Timeout=timeout, VisibilityTimeout=visibility))
    assert made_of_it["Resources"]["Consumer"]["Properties"]["Timeout"] == timeout == 5400


# Each as cfn-lint sees it.


def problems(text: str, folder: Path, *, informational: bool = True) -> list[str]:
    (folder / "watch.yaml").write_text(WATCH.read_text())
    (folder / "template.yaml").write_text(text)
    checks = ["I"] if informational else []
    config = ConfigMixIn(regions=["us-east-1"], include_checks=checks, templates=[str(folder / "template.yaml")])
    kept_by_itself = ("I3011", "Watch")  # of whose resources each says whether it is kept
    found = [each for each in Runner(config).run() if (each.rule.id, (each.path or [""])[1]) != kept_by_itself]
    return [f"{each.rule.id} {each.message}" for each in found]


@every_edit
def test_an_edited_template_is_clean(edit: str, tmp_path: Path) -> None:
    assert problems(edited(TEMPLATE.read_text(), edit), tmp_path) == []


@for_a_starter
def test_an_edited_starter_is_clean(edit: str, tmp_path: Path) -> None:
    assert problems(edited(STARTER, edit), tmp_path, informational=False) == []


@pytest.mark.parametrize("variant", [name for name, each in VARIANTS.items() if each.starter or len(each.edits) > 1])
def test_what_else_people_deploy_is_clean(variant: str, tmp_path: Path) -> None:
    chosen = VARIANTS[variant]
    assert problems(chosen.text, tmp_path, informational=chosen.starter is None) == []
