"""What each switch of the templates changes: nothing while it is off, and exactly what is meant when it is on."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.template import COMPONENT, load, rendering
from tests.unit.test_template import TABLES, problems

if TYPE_CHECKING:
    from collections.abc import Iterator

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
TOPICS = ["arn:aws:sns:us-east-1:123456789012:orders", "arn:aws:sns:eu-west-1:210987654321:refunds"]
RULE = "arn:aws:events:us-east-1:123456789012:rule/orders"
QUEUE = "arn:aws:sqs:us-east-1:123456789012:orders"
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
def test_a_switch_changes_what_is_meant_and_nothing_else(switch: str) -> None:
    parameters, expected = SWITCHES[switch]
    on = rendered(**parameters)
    assert dict(changes(rendered()["Resources"], on["Resources"])) == expected
    assert problems(json.dumps(on)) == []


@pytest.mark.parametrize("switch", SWITCHES)
def test_every_switch_is_off_unless_somebody_turns_it_on(switch: str) -> None:
    for name in SWITCHES[switch][0]:
        assert load()["Parameters"][name]["Default"] in ("", "false")


def test_the_access_log_of_the_api_is_a_switch_and_holds_no_bodies_and_no_keys() -> None:
    on = rendered(ApiAccessLog="true")
    found = dict(changes(rendered()["Resources"], on["Resources"]))
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
    assert problems(json.dumps(on)) == []


def test_without_an_api_there_is_no_access_log() -> None:
    assert "ApiAccessLogGroup" not in rendering(ApiAccessLog="true").rendered()["Resources"]


@pytest.mark.parametrize(
    ("template", "parameters", "refused"),
    [
        (load(), {}, False),
        (load(), IN_VPC, False),
        (load(), {"Subnets": IN_VPC["Subnets"]}, True),
        (load(), {"SecurityGroups": IN_VPC["SecurityGroups"]}, True),
        (load(COMPONENT), {"SenderTopicArns": TOPICS[0]}, False),
        (load(COMPONENT), {"SenderTopicArns": TOPICS[0], "QueueArn": QUEUE}, True),
        (load(COMPONENT), {"SenderRuleArns": RULE, "QueueArn": QUEUE}, True),
        (load(COMPONENT), {"QueueArn": QUEUE}, False),
    ],
)
def test_what_cannot_take_effect_is_refused(
    template: dict[str, Any], parameters: dict[str, str], refused: bool
) -> None:
    """Else the switch would be on, and do nothing or half of it."""
    own = {"StackId": "arn:aws:cloudformation:us-east-1:123456789012:stack/orders/1", "FunctionName": "orders"}
    chosen = rendering(
        template, **{name: own[name] for name in own.keys() & template["Parameters"].keys()}, **parameters
    )
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


def test_the_component_and_the_template_take_the_same_values() -> None:
    ours, its = load()["Parameters"], load(COMPONENT)["Parameters"]
    for name in ("SenderTopicArns", "SenderRuleArns", "PermissionsBoundary", "DeletionProtection"):
        for key in ("Type", "Default", "AllowedPattern", "AllowedValues"):
            assert ours[name].get(key) == its[name].get(key), (name, key)


def test_the_mapping_waits_for_every_policy_of_the_role() -> None:
    """Its first messages would be denied otherwise. The role's own policies come with the role."""
    resources = rendered()["Resources"]
    role = {"Ref": "ConsumerRole"}
    attached = [
        name
        for name, each in resources.items()
        if each["Type"] == "AWS::IAM::Policy" and role in each["Properties"]["Roles"]
    ]
    assert attached == ["LedgerPolicy"]
    assert resources["Consumer"]["DependsOn"] == "LedgerPolicy", "and the mapping refers to the function"
