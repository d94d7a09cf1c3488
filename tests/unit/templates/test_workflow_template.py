"""What workflow.yaml promises, and that it agrees with the definition, the code and the documents."""

from __future__ import annotations

import ast
import json
import re
from typing import Any

import pytest

from local.cloud import ROOT
from tests.template import COMPONENT, load

TEMPLATE = ROOT / "deploy" / "workflow.yaml"
DEFINITION = json.loads((ROOT / "src/app/transfer.asl.json").read_text())
HANDBOOK = (ROOT / "docs/workflow.md").read_text()
RESOURCES: dict[str, Any] = load(TEMPLATE)["Resources"]
FUNCTIONS = {id: each for id, each in RESOURCES.items() if each["Type"] == "AWS::Serverless::Function"}
ROLES = {id: each for id, each in RESOURCES.items() if each["Type"] == "AWS::IAM::Role"}
ALARMS = {id: each for id, each in RESOURCES.items() if each["Type"] == "AWS::CloudWatch::Alarm"}


def statements(role: str) -> dict[str, dict[str, Any]]:
    """A role's own statements, by name, without those for tracing."""
    (policy,) = RESOURCES[role]["Properties"]["Policies"]
    return {each["Sid"]: each for each in policy["PolicyDocument"]["Statement"] if "Sid" in each}


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
    assert set(RESOURCES["Machine"]["Properties"]["DefinitionSubstitutions"]) == placeholders
    assert RESOURCES["Machine"]["Properties"]["StateMachineType"] == "STANDARD"


@pytest.mark.parametrize("id", FUNCTIONS)
def test_each_function_has_its_handler_and_its_target(id: str) -> None:
    module = FUNCTIONS[id]["Properties"]["Handler"].removesuffix(".lambda_handler")
    assert module.rpartition(".")[2] == id.lower()
    assert "lambda_handler" in (ROOT / "src" / f"{module.replace('.', '/')}.py").read_text()
    makefile = (ROOT / "Makefile").read_text()
    assert id in re.findall(r"(?m)^WORKFLOW_FUNCTIONS := (.*)$", makefile)[0].split()


def variables_read(module: str) -> set[str]:
    """The variables that a module's functions require, including those of its own imports."""
    tree = ast.parse((ROOT / "src" / f"{module.replace('.', '/')}.py").read_text())
    found = {
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and ast.unparse(node.value) == "os.environ"
        and isinstance(node.slice, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("app."):
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            own = [part for part in parts if (ROOT / "src" / f"{part.replace('.', '/')}.py").exists()]
            for part in own or [str(node.module)]:
                found |= variables_read(part)
    return found


@pytest.mark.parametrize("id", FUNCTIONS)
def test_each_function_is_given_the_variables_that_it_reads(id: str) -> None:
    properties = FUNCTIONS[id]["Properties"]
    given = set(load(TEMPLATE)["Globals"]["Function"]["Environment"]["Variables"])
    given |= set(properties.get("Environment", {}).get("Variables", {}))
    assert variables_read(properties["Handler"].removesuffix(".lambda_handler")) <= given


def test_orphans_are_found_by_an_index_of_the_workflows_alone() -> None:
    (index,) = RESOURCES["Workflows"]["Properties"]["GlobalSecondaryIndexes"]
    assert [key["AttributeName"] for key in index["KeySchema"]] == ["status", "in_progress_expiration"]
    assert FUNCTIONS["Sweep"]["Properties"]["Environment"]["Variables"]["ORPHANS_INDEX"] == index["IndexName"]
    assert "GlobalSecondaryIndexes" not in RESOURCES["Steps"]["Properties"]
    records = load(COMPONENT)["Resources"]["Records"]["Properties"]
    assert "GlobalSecondaryIndexes" not in records


def test_a_key_is_remembered_as_long_as_an_executions_name_is() -> None:
    retention = load(TEMPLATE)["Parameters"]["RecordRetentionDays"]
    assert retention["MinValue"] == retention["Default"] == 90


def test_no_permission_reaches_further_than_its_resource() -> None:
    for role in ROLES:
        for sid, statement in statements(role).items():
            actions, resource = statement["Action"], statement["Resource"]
            assert "*" not in str(actions), (role, sid)
            # An execution's name is derived from the key, so a role cannot name it in advance.
            assert "*" not in json.dumps(resource) or sid == "FindExecutions", (role, sid)


def test_the_consumers_template_knows_nothing_of_the_workflow() -> None:
    assert "StateMachine" not in (ROOT / "template.yaml").read_text() + COMPONENT.read_text()


@pytest.mark.parametrize("id", ALARMS)
def test_each_alarm_names_the_paragraph_that_says_what_to_do(id: str) -> None:
    described = ALARMS[id]["Properties"]["AlarmDescription"]
    named = re.search(r'docs/workflow\.md, "([^"]+)"', described)
    assert named is not None
    section = HANDBOOK.partition(f"\n### {named[1]}\n")[2].partition("\n### ")[0]
    assert re.match(r"\n\*\*What to type\.\*\*[^\n]*\n\n```sh\n", section), "it begins with what to type"
    assert "**What it means.**" in section
    assert "**What to do.**" in section


def test_every_alarm_is_on_the_dashboard_and_in_the_table() -> None:
    body = RESOURCES["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"]
    first, *others = json.loads(body)["widgets"]
    shown = {tuple(line[:2]) for each in others for line in each["properties"].get("metrics", [])}
    ours = [each["Properties"]["MetricName"] for each in ALARMS.values() if "service" in str(each)]
    assert {("${MetricsNamespace}", name) for name in ours} == {each for each in shown if each[0][0] == "$"}
    assert sorted(first["properties"]["alarms"]) == sorted(f"${{{id}.Arn}}" for id in ALARMS)
    assert {id for id in ALARMS if id in HANDBOOK} == set(ALARMS)


def test_an_operator_may_do_what_the_handbook_says_and_nothing_to_the_records() -> None:
    document = RESOURCES["OperatorPolicy"]["Properties"]["PolicyDocument"]
    listed = [each["Action"] for each in document["Statement"] if "Sid" in each]
    allowed = {action for each in listed for action in ([each] if isinstance(each, str) else each)}
    typed = set(re.findall(r"(?m)^aws (\w+) ([a-z-]+)", HANDBOOK.partition("\n## Operating it\n")[2]))
    assert {("logs", "tail"), ("lambda", "invoke"), ("sqs", "receive-message")} <= typed
    services, calls = {"stepfunctions": "states"}, {"tail": "FilterLogEvents", "invoke": "InvokeFunction"}
    needed = {
        f"{services.get(service, service)}:{calls.get(call, call.title().replace('-', ''))}" for service, call in typed
    }
    assert needed <= allowed
    keys = [each["Fn::If"][0] for each in document["Statement"] if "Fn::If" in each]
    assert keys == ["HasKey", "HasMachineKey"], "what is encrypted can be read"
    assert not [action for action in allowed if re.match(r".*\*|dynamodb:.*(Put|Update|Delete|Write|PartiQL)", action)]


def test_a_step_that_died_is_retried_until_its_lease_has_ended() -> None:
    """Its claim outlives it by the margin; the retries must outlast both, with average jitter."""
    for name in ("debit", "credit", "receipt", "refund"):
        (again,) = DEFINITION["States"][name]["Retry"]
        waits = [min(again["MaxDelaySeconds"], again["IntervalSeconds"] * 2**n) for n in range(again["MaxAttempts"])]
        assert sum(waits) / 2 > 3 * (FUNCTIONS[name.capitalize()]["Properties"]["Timeout"] + 3)
