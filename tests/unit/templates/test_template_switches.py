"""What each switch of the templates changes: nothing while it is off, and exactly what is meant when it is on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from harness.cloud import ROOT
from tests.template import COMPONENT, load, rendering
from tests.unit.templates.variants import OWN, OWN_QUEUE, TABLES, listed

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
TOPICS = ["arn:aws:sns:us-east-1:123456789012:orders", "arn:aws:sns:eu-west-1:210987654321:refunds"]
RULE = "arn:aws:events:us-east-1:123456789012:rule/orders"
VPC = {"SubnetIds": ["subnet-0a1b2c3d", "subnet-4e5f6a7b"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
IN_VPC = {"Subnets": "subnet-0a1b2c3d,subnet-4e5f6a7b", "SecurityGroups": "sg-0a1b2c3d"}
CONNECT = {
    "Sid": "ConnectToVpc",
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


def admitted(sid: str, service: str, *sources: str) -> dict[str, Any]:
    """A statement that lets these send to the queue, by a service."""
    return {
        "Sid": sid,
        "Effect": "Allow",
        "Principal": {"Service": f"{service}.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": {"Fn::GetAtt": ["Queue", "Arn"]},
        "Condition": {"ArnEquals": {"aws:SourceArn": list(sources)}},
    }


KEY = "arn:aws:kms:us-east-1:123456789012:key/0f1e2d3c"
WORKFLOW = load(ROOT / "deploy/workflow.yaml")
BESIDE = {
    "QueueUrl": "https://sqs.example.com/orders",
    "QueueArn": OWN_QUEUE,
    "AccountsTable": "accounts",
    "EntriesTable": "entries",
}
ROLES = ("Machine", "Posting", "Refund", "Receipt", "Start", "Reconcile", "Sweep")
RUN = "MachineRole.Properties.Policies.Run.PolicyDocument.Statement"
LOG_ARN = {"Fn::GetAtt": ["Log", "Arn"]}

GONE = "gone"
EVENT = "Consumer.Properties.Events.Messages.Properties"
SENT = "QueuesOverTlsOnly.Properties.PolicyDocument.Statement"
SWITCHES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "permissions boundary": (
        {"PermissionsBoundary": BOUNDARY},
        {f"{role}.Properties.PermissionsBoundary": BOUNDARY for role in ("ConsumerRole", "ApiRole")},
    ),
    "VPC": (
        IN_VPC,
        {f"{function}.Properties.VpcConfig": VPC for function in ("Consumer", "Api")}
        | {
            f"{role}.Properties.Policies.{policy}.PolicyDocument.Statement.ConnectToVpc": CONNECT
            for role, policy in (("ConsumerRole", "Consume"), ("ApiRole", "TakeIn"))
        },
    ),
    "deletion protection": (
        {"DeletionProtection": "true"},
        {f"{table}.Properties.DeletionProtectionEnabled": True for table in (*TABLES, "History")},
    ),
    "topics": ({"SenderTopicArns": ",".join(TOPICS)}, {f"{SENT}.TopicsSend": admitted("TopicsSend", "sns", *TOPICS)}),
    "rules": ({"SenderRuleArns": RULE}, {f"{SENT}.RulesSend": admitted("RulesSend", "events", RULE)}),
    "provisioned pollers": (
        {"ProvisionedPollers": "20"},
        {
            f"{EVENT}.ScalingConfig": GONE,
            f"{EVENT}.ProvisionedPollerConfig": {"MinimumPollers": 2, "MaximumPollers": "20"},
        },
    ),
    "mapping metrics": ({"MappingMetrics": "true"}, {f"{EVENT}.MetricsConfig": {"Metrics": ["EventCount"]}}),
}  # fmt: skip


OF_THE_WORKFLOW: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "permissions boundary": (
        {"PermissionsBoundary": BOUNDARY},
        {f"Resources.{role}Role.Properties.PermissionsBoundary": BOUNDARY for role in ROLES},
    ),
    "VPC": (
        IN_VPC,
        {
            "Globals.Function.VpcConfig": VPC,
            "Resources.WriteLogPolicy.Properties.PolicyDocument.Statement.ConnectToVpc": CONNECT,
        },
    ),
    "deletion protection": (
        {"DeletionProtection": "true"},
        {f"Resources.{table}.Properties.DeletionProtectionEnabled": True for table in ("Workflows", "Steps")},
    ),
    "log of the machine": (
        {"MachineLogLevel": "ERROR"},
        {
            "Resources.Machine.Properties.LoggingConfiguration": {
                "Level": "ERROR",
                "IncludeExecutionData": False,
                "Destinations": [{"CloudWatchLogsLogGroup": {"LogGroupArn": LOG_ARN}}],
            },
            f"Resources.{RUN}.DeliverTheLog": ...,
        },
    ),
    "key of the machine": (
        {"MachineKmsKeyArn": KEY},
        {
            "Resources.Machine.Properties.EncryptionConfiguration": {
                "Type": "CUSTOMER_MANAGED_KMS_KEY",
                "KmsKeyId": KEY,
                "KmsDataKeyReusePeriodSeconds": 300,
            },
            f"Resources.{RUN}.EncryptExecutions": ...,
            "Resources.UseMachineKeyPolicy": ...,
            "Resources.OperatorPolicy.Properties.PolicyDocument.Statement.UseMachineKey": ...,
            **{
                f"Resources.{role}Role.Properties.ManagedPolicyArns.1": {"Ref": "UseMachineKeyPolicy"}
                for role in ("Start", "Reconcile", "Sweep")
            },
        },
    ),
}
"""Of a statement that is not written out, it is checked that it is narrow."""


def workflow(**parameters: str) -> dict[str, Any]:
    """The workflow's template, beside a consumer."""
    return rendering(WORKFLOW, **BESIDE, **parameters).rendered()


def rendered(**parameters: str) -> dict[str, Any]:
    """The template with its API, so that each switch reaches all that it is for."""
    return rendering(MakeApi="true", **parameters).rendered()


def changes(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Where two templates differ, and what is there afterwards. Statements and policies go by their names."""
    before, after = (
        {each.get("Sid", each.get("PolicyName", str(place))): each for place, each in enumerate(node)}
        if isinstance(node, list) and all(isinstance(each, dict) for each in node)
        else node
        for node in (before, after)
    )
    if not (isinstance(before, dict) and isinstance(after, dict)):
        if before != after:
            yield path, after
        return
    for name in sorted({*before, *after}):
        inside = f"{path}.{name}".lstrip(".")
        if name in before and name in after:
            yield from changes(before[name], after[name], inside)
        else:
            yield inside, after.get(name, GONE)


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_is_off_by_default_and_changes_what_is_meant_and_nothing_else(switch: str) -> None:
    parameters, expected = SWITCHES[switch]
    assert dict(changes(rendered()["Resources"], rendered(**parameters)["Resources"])) == expected
    assert {load()["Parameters"][name]["Default"] for name in parameters} <= {"", "false"}


def assert_narrow(made: dict[str, Any]) -> None:
    """Of logs, AWS takes no resource; of keys, it is this one, for this service or state machine alone."""
    for each in made.get("Properties", {"PolicyDocument": {"Statement": [made]}})["PolicyDocument"]["Statement"]:
        asked = listed(each["Action"])
        assert not [action for action in asked if "*" in action]
        if each["Resource"] == "*":
            assert {action.partition(":")[0] for action in asked} == {"logs"}
        else:
            assert (each["Resource"], set(asked) <= {"kms:Decrypt", "kms:GenerateDataKey"}) == (KEY, True)
            assert re.search(r"states\.\$|stateMachine:\*", str(each["Condition"]))


@pytest.mark.parametrize("switch", OF_THE_WORKFLOW)
def test_a_switch_of_the_workflow_changes_what_is_meant_and_nothing_else(switch: str) -> None:
    parameters, expected = OF_THE_WORKFLOW[switch]
    found = dict(changes(workflow(), workflow(**parameters)))
    assert {path: found.get(path) if value is ... else value for path, value in expected.items()} == found
    for path in (path for path, value in expected.items() if value is ...):
        assert_narrow(found[path])
    assert {WORKFLOW["Parameters"][name]["Default"] for name in parameters} <= {"", "false", "OFF"}


def test_a_machine_with_a_key_may_encrypt_its_log() -> None:
    without, on = workflow(MachineKmsKeyArn=KEY), workflow(MachineKmsKeyArn=KEY, MachineLogLevel="ALL")
    encrypted = dict(changes(without, on))[f"Resources.{RUN}.EncryptTheLog"]
    assert (encrypted["Action"], encrypted["Resource"]) == ("kms:GenerateDataKey", KEY)
    assert list(encrypted["Condition"]["StringEquals"]) == ["kms:EncryptionContext:SourceArn"]


def test_every_function_of_the_workflow_has_its_policies_before_it_is_made() -> None:
    """A policy that names its roles comes after them, and perhaps after a function's first invocations."""
    resources = workflow(KmsKeyArn=KEY, MachineKmsKeyArn=KEY)["Resources"]
    assert not [name for name, each in resources.items() if each["Type"] == "AWS::IAM::Policy"]
    for role in ROLES:
        attached = [each["Ref"] for each in resources[f"{role}Role"]["Properties"]["ManagedPolicyArns"]]
        assert ("WriteLogPolicy" in attached) == (role != "Machine")
        assert "UseKeyPolicy" in attached


def test_the_access_log_of_the_api_is_a_switch_and_holds_no_bodies_and_no_keys() -> None:
    found = dict(changes(rendered()["Resources"], rendered(ApiAccessLog="true")["Resources"]))
    assert set(found) == {
        "ApiAccessLogGroup",
        "RestApi.Properties.AccessLogSetting",
        "ApiOperatorPolicy.Properties.PolicyDocument.Statement.ReadTheLogOfTheApi.Resource.1",
    }
    setting = found["RestApi.Properties.AccessLogSetting"]
    assert setting["DestinationArn"] == {"Fn::GetAtt": ["ApiAccessLogGroup", "Arn"]}
    assert "\n" not in setting["Format"], "API Gateway takes one line"
    assert "request_id" in json.loads(setting["Format"]), "and it must name the request"
    logged = set(re.findall(r"\$context\.[\w.]+", setting["Format"]))
    assert not [name for name in logged if re.search("body|header|querystring|\\.path$", name, re.IGNORECASE)]
    of_the_workflow = dict(changes(workflow(), workflow(ApiAccessLog="true")))
    its = {"DestinationArn": LOG_ARN, "Format": setting["Format"]}
    assert of_the_workflow == {"Resources.RestApi.Properties.AccessLogSetting": its}
    assert "ApiAccessLogGroup" not in rendering(ApiAccessLog="true").rendered()["Resources"], "there is no API"


OF_ITS_STACK = {"StackId", "FunctionName"}


@pytest.mark.parametrize(
    ("template", "parameters", "refused"),
    [
        (load(), {}, False),
        (load(), IN_VPC, False),
        (load(), {"Subnets": IN_VPC["Subnets"]}, True),
        (load(), {"SecurityGroups": IN_VPC["SecurityGroups"]}, True),
        (WORKFLOW, IN_VPC | BESIDE, False),
        (WORKFLOW, {"Subnets": IN_VPC["Subnets"]} | BESIDE, True),
        (load(COMPONENT), {"SenderTopicArns": TOPICS[0]}, False),
        (load(COMPONENT), {"SenderTopicArns": TOPICS[0], "QueueArn": OWN_QUEUE}, True),
        (load(COMPONENT), {"SenderRuleArns": RULE, "QueueArn": OWN_QUEUE}, True),
        (load(COMPONENT), {"QueueArn": OWN_QUEUE}, False),
        (load(COMPONENT), {"DeadLetterAtOnce": "true"}, False),
        (load(COMPONENT), {"DeadLetterAtOnce": "true", **OWN}, False),
        (load(COMPONENT), {"DeadLetterAtOnce": "true", "QueueArn": OWN_QUEUE}, True),
    ],
)
def test_what_cannot_take_effect_is_refused(
    template: dict[str, Any], parameters: dict[str, str], refused: bool
) -> None:
    """Else the switch would be on, and do nothing or half of it."""
    chosen = rendering(template, **dict.fromkeys(template["Parameters"].keys() & OF_ITS_STACK, "x"), **parameters)
    assert refused == any(
        chosen.holds(rule.get("RuleCondition")) and not chosen.holds(each["Assert"])
        for rule in template["Rules"].values()
        for each in rule["Assertions"]
    )


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("ProvisionedPollers", ["", "2", "20", "10000"], ["0", "1", "10001", "many"]),
        ("SenderTopicArns", ["", ",".join(TOPICS)], ["*", "arn:aws:sns:*:*:*", RULE, f"{TOPICS[0]},"]),
        ("SenderRuleArns", ["", RULE], ["arn:aws:events:us-east-1:123456789012:rule/*", TOPICS[0]]),
        ("Subnets", ["", IN_VPC["Subnets"]], ["vpc-1a2b", "subnet-0a1b2c3d, subnet-4e5f6a7b"]),
        ("SecurityGroups", ["", "sg-0a1b2c3d"], ["default", "sg-0a1b2c3d,"]),
        ("PermissionsBoundary", ["", BOUNDARY, "arn:aws:iam::aws:policy/ReadOnlyAccess"], ["boundary"]),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_right_is_refused_before_anything_is_made(
    name: str, good: list[str], bad: list[str]
) -> None:
    """A wildcard in a sender's ARN would admit what nobody named."""
    pattern = load()["Parameters"][name]["AllowedPattern"]
    assert [value for value in good if not re.fullmatch(pattern, value)] == []
    assert [value for value in bad if re.fullmatch(pattern, value)] == []


def test_the_templates_take_the_same_values() -> None:
    ours = load()["Parameters"]
    shared = ("SenderTopicArns", "SenderRuleArns", "PermissionsBoundary", "DeletionProtection")
    also = ("Subnets", "SecurityGroups", "PermissionsBoundary", "DeletionProtection", "ApiAccessLog")
    for template, names in ((load(COMPONENT), shared), (WORKFLOW, also)):
        for name in names:
            its = template["Parameters"][name]
            for key in ("Type", "Default", "AllowedPattern", "AllowedValues"):
                assert ours[name].get(key) == its.get(key), (name, key)


def test_the_mapping_waits_for_every_policy_of_the_role() -> None:
    """Its first messages would be denied otherwise. The role's own policies come with the role."""
    resources = rendered()["Resources"]
    policies = {name: each["Properties"] for name, each in resources.items() if each["Type"] == "AWS::IAM::Policy"}
    assert [name for name, each in policies.items() if {"Ref": "ConsumerRole"} in each["Roles"]] == ["LedgerPolicy"]
    assert resources["Consumer"]["DependsOn"] == "LedgerPolicy", "and the mapping refers to the function"
