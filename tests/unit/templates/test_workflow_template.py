"""What workflow.yaml promises, and that it agrees with the definition, the code and the documents."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from harness.cloud import ROOT
from tests.template import COMPONENT, load
from tests.unit.templates.variants import actions, assert_says_what_to_do, statements_in, variables_read, wide

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
    assert id in re.findall(r"(?m)^WORKFLOW_FUNCTIONS := (.*)$", (ROOT / "Makefile").read_text())[0].split()
    given = set(load(TEMPLATE)["Globals"]["Function"]["Environment"]["Variables"])
    assert variables_read(module)[0] <= given | set(FUNCTIONS[id].get("Environment", {}).get("Variables", {}))


def test_orphans_are_found_by_an_index_of_the_workflows_alone() -> None:
    (index,) = RESOURCES["Workflows"]["Properties"]["GlobalSecondaryIndexes"]
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["status", "in_progress_expiration"]
    assert FUNCTIONS["Sweep"]["Environment"]["Variables"]["ORPHANS_INDEX"] == index["IndexName"]
    for table in (RESOURCES["Steps"], load(COMPONENT)["Resources"]["Records"]):
        assert "GlobalSecondaryIndexes" not in table["Properties"]


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
        (named,) = re.findall(r'docs/workflow\.md, "([^"]+)"', alarm["AlarmDescription"])
        assert_says_what_to_do(HANDBOOK.partition(f"\n### {named}\n")[2].partition("\n### ")[0])
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
