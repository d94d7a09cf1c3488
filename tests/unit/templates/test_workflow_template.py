"""What workflow.yaml promises, and that it agrees with the definition, the code and the documents."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from harness.cloud import ROOT
from tests.template import load, rendering
from tests.unit.templates.variants import (
    CONNECT,
    KEY,
    STATEFUL,
    actions,
    assert_says_what_to_do,
    changes,
    listed,
    statements_in,
    variables_read,
    wide,
)

TEMPLATE = ROOT / "deploy" / "workflow.yaml"
DEFINITION = json.loads((ROOT / "src/app/transfer.asl.json").read_text())
HANDBOOK = (ROOT / "docs/workflow.md").read_text()
RESOURCES: dict[str, Any] = load(TEMPLATE)["Resources"]
FUNCTIONS = {id: each["Properties"] for id, each in RESOURCES.items() if each["Type"] == "AWS::Serverless::Function"}
ALARMS = {id: each["Properties"] for id, each in RESOURCES.items() if each["Type"] == "AWS::CloudWatch::Alarm"}


def statements(role: str) -> dict[str, dict[str, Any]]:
    """A role's own statements, by name, without those for tracing."""
    return statements_in(RESOURCES[role]["Properties"])


def test_the_machine_may_call_its_steps_and_write_its_outcome_and_nothing_else() -> None:
    tasks = [state for state in DEFINITION["States"].values() if state["Type"] == "Task"]
    called = {task["Parameters"]["FunctionName"][2:-1] for task in tasks if "FunctionName" in task["Parameters"]}
    others = {task["Resource"] for task in tasks if "FunctionName" not in task["Parameters"]}
    tables = {task["Parameters"]["TableName"] for task in tasks if "TableName" in task["Parameters"]}
    assert (others, tables) == ({"arn:aws:states:::dynamodb:updateItem"}, {"${Workflows}"})
    told = statements("MachineRole")
    assert told["CallTheSteps"]["Action"] == "lambda:InvokeFunction"
    assert {each["Fn::GetAtt"][0] for each in told["CallTheSteps"]["Resource"]} == called
    assert told["WriteTheOutcome"]["Action"] == "dynamodb:UpdateItem"
    assert told["WriteTheOutcome"]["Resource"] == {"Fn::GetAtt": ["Workflows", "Arn"]}
    assert set(told) == {"CallTheSteps", "WriteTheOutcome"}


def test_every_placeholder_of_the_definition_is_filled_in() -> None:
    placeholders = set(re.findall(r"\$\{(\w+)\}", json.dumps(DEFINITION)))
    machine = RESOURCES["Machine"]["Properties"]
    assert (set(machine["DefinitionSubstitutions"]), machine["StateMachineType"]) == (placeholders, "STANDARD")


@pytest.mark.parametrize("id", FUNCTIONS)
def test_each_function_has_its_handler_its_target_and_the_variables_that_it_reads(id: str) -> None:
    module = FUNCTIONS[id]["Handler"].removesuffix(".lambda_handler")
    assert module.rpartition(".")[2] == id.lower()
    assert "lambda_handler" in (ROOT / "src" / f"{module.replace('.', '/')}.py").read_text()
    assert id in re.findall(r"(?m)^\$\(addprefix build-,(.*)\): TEMPLATE", (ROOT / "Makefile").read_text())[0].split()
    given = set(load(TEMPLATE)["Globals"]["Function"]["Environment"]["Variables"])
    assert variables_read(module)[0] <= given | set(FUNCTIONS[id].get("Environment", {}).get("Variables", {}))


def test_orphans_are_found_by_an_index_of_the_workflows_alone() -> None:
    (index,) = RESOURCES["Workflows"]["Properties"]["GlobalSecondaryIndexes"]
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["status", "in_progress_expiration"]
    assert FUNCTIONS["Sweep"]["Environment"]["Variables"]["ORPHANS_INDEX"] == index["IndexName"]
    for table in (RESOURCES["Steps"], load()["Resources"]["Records"]):
        assert "GlobalSecondaryIndexes" not in table["Properties"]


def test_nothing_that_it_keeps_is_dropped_with_the_stack() -> None:
    kept = {name: each for name, each in RESOURCES.items() if each["Type"] in STATEFUL}
    assert {"Workflows", "Steps", "Unreconciled"} <= {*kept}
    policies = {(each.get("DeletionPolicy"), each.get("UpdateReplacePolicy")) for each in kept.values()}
    assert policies == {("RetainExceptOnCreate", "Retain")}


def test_a_key_is_remembered_as_long_as_an_executions_name_is() -> None:
    retention = load(TEMPLATE)["Parameters"]["RecordRetentionDays"]
    assert retention["MinValue"] == retention["Default"] == 90


def test_no_permission_reaches_further_than_its_resource() -> None:
    """An execution's name is derived from the key, so a role cannot name it in advance."""
    for role in (id for id, each in RESOURCES.items() if each["Type"] == "AWS::IAM::Role"):
        assert wide(statements(role)) <= {"FindExecutions"}, role


def test_each_alarm_names_the_paragraph_that_says_what_to_do_and_is_on_the_dashboard() -> None:
    body = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    first, *others = json.loads(body)["widgets"]
    shown = {tuple(line[:2]) for each in others for line in each["properties"].get("metrics", [])}
    ours = [each["MetricName"] for each in ALARMS.values() if "service" in str(each)]
    assert {("${MetricsNamespace}", name) for name in ours} == {each for each in shown if each[0][0] == "$"}
    assert sorted(first["properties"]["alarms"]) == sorted(f"${{{id}.Arn}}" for id in ALARMS)
    for id, alarm in ALARMS.items():
        assert_says_what_to_do(alarm)
        assert id in HANDBOOK


def test_an_operator_may_do_what_the_handbook_says_and_nothing_to_the_records() -> None:
    allowed = actions(statements("OperatorPolicy"))
    typed = set(re.findall(r"(?m)^aws (\w+) ([a-z-]+)", HANDBOOK.partition("\n## Operating it\n")[2]))
    assert {("logs", "tail"), ("lambda", "invoke"), ("sqs", "receive-message")} <= typed
    services, calls = {"stepfunctions": "states"}, {"tail": "FilterLogEvents", "invoke": "InvokeFunction"}
    assert {
        f"{services.get(service, service)}:{calls.get(call, call.title().replace('-', ''))}" for service, call in typed
    } <= allowed
    document = RESOURCES["OperatorPolicy"]["Properties"]["PolicyDocument"]
    keys = [each["Fn::If"][0] for each in document["Statement"] if "Fn::If" in each]
    assert keys == ["HasKey", "HasMachineKey"], "what is encrypted can be read"
    assert not [action for action in allowed if re.match(r".*\*|dynamodb:.*(Put|Update|Delete|Write|PartiQL)", action)]


def test_a_step_that_died_is_retried_until_its_lease_has_ended() -> None:
    """Its claim outlives it by the margin; the retries must outlast both, with average jitter."""
    for name in ("debit", "credit", "receipt", "refund"):
        (again,) = DEFINITION["States"][name]["Retry"]
        waits = [min(again["MaxDelaySeconds"], again["IntervalSeconds"] * 2**n) for n in range(again["MaxAttempts"])]
        assert sum(waits) / 2 > 3 * (FUNCTIONS[name.capitalize()]["Timeout"] + 3)


# Its switches.

BOUNDARY = "arn:aws:iam::123456789012:policy/boundary"
VPC = {"SubnetIds": ["subnet-0a1b2c3d", "subnet-4e5f6a7b"], "SecurityGroupIds": ["sg-0a1b2c3d"]}
IN_VPC = {"Subnets": "subnet-0a1b2c3d,subnet-4e5f6a7b", "SecurityGroups": "sg-0a1b2c3d"}
BESIDE = {
    "QueueUrl": "https://sqs.example.com/orders",
    "QueueArn": "arn:aws:sqs:us-east-1:123456789012:orders",
    "AccountsTable": "accounts",
    "EntriesTable": "entries",
}
ROLES = ("Machine", "Posting", "Refund", "Receipt", "Start", "Reconcile", "Sweep")
RUN = "MachineRole.Properties.Policies.Run.PolicyDocument.Statement"
LOG_ARN = {"Fn::GetAtt": ["Log", "Arn"]}

SWITCHES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "permissions boundary": (
        {"PermissionsBoundary": BOUNDARY},
        {f"Resources.{role}Role.Properties.PermissionsBoundary": BOUNDARY for role in ROLES},
    ),
    "VPC": (
        IN_VPC,
        {
            "Globals.Function.VpcConfig": VPC,
            "Resources.WriteLogPolicy.Properties.PolicyDocument.Statement.ConnectToVpc": {
                "Sid": "ConnectToVpc",
                **CONNECT,
            },
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
    return rendering(load(TEMPLATE), **BESIDE, **parameters).rendered()


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


@pytest.mark.parametrize("switch", SWITCHES)
def test_a_switch_changes_what_is_meant_and_nothing_else(switch: str) -> None:
    parameters, expected = SWITCHES[switch]
    found = dict(changes(workflow(), workflow(**parameters)))
    assert {path: found.get(path) if value is ... else value for path, value in expected.items()} == found
    for path in (path for path, value in expected.items() if value is ...):
        assert_narrow(found[path])
    assert {load(TEMPLATE)["Parameters"][name]["Default"] for name in parameters} <= {"", "false", "OFF"}


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


def test_the_access_log_is_that_of_the_other_api() -> None:
    its = load(ROOT / "deploy/api.yaml")["Resources"]["RestApi"]["Properties"]["AccessLogSetting"]["Fn::If"][1]
    expected = {"DestinationArn": LOG_ARN, "Format": its["Format"]}
    found = dict(changes(workflow(), workflow(ApiAccessLog="true")))
    assert found == {"Resources.RestApi.Properties.AccessLogSetting": expected}


@pytest.mark.parametrize(
    ("parameters", "refused"),
    [
        ({}, False),
        (IN_VPC, False),
        ({"Subnets": IN_VPC["Subnets"]}, True),
        ({"SecurityGroups": IN_VPC["SecurityGroups"]}, True),
    ],
)
def test_half_a_vpc_is_refused(parameters: dict[str, str], refused: bool) -> None:
    chosen = rendering(load(TEMPLATE), **BESIDE, **parameters)
    assert refused == any(
        not chosen.holds(each["Assert"]) for rule in load(TEMPLATE)["Rules"].values() for each in rule["Assertions"]
    )


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("Subnets", ["", IN_VPC["Subnets"]], ["vpc-1a2b", "subnet-0a1b2c3d, subnet-4e5f6a7b"]),
        ("SecurityGroups", ["", "sg-0a1b2c3d"], ["default", "sg-0a1b2c3d,"]),
        ("PermissionsBoundary", ["", BOUNDARY, "arn:aws:iam::aws:policy/ReadOnlyAccess"], ["boundary"]),
    ],
)
def test_a_value_that_cannot_be_right_is_refused_before_anything_is_made(
    name: str, good: list[str], bad: list[str]
) -> None:
    pattern = load(TEMPLATE)["Parameters"][name]["AllowedPattern"]
    assert [value for value in good if not re.fullmatch(pattern, value)] == []
    assert [value for value in bad if re.fullmatch(pattern, value)] == []
