"""The second consumer of examples/orders: in a starter's template, beside the first and like it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from idempotent_receiver.operations.account import stack_outputs
from idempotent_receiver.operations.description import Description, description_in
from tests.examples import second_consumer
from tests.starter import made
from tests.template import parsed, rendering
from tests.unit.operations.cli.stack import CloudFormation
from tests.unit.templates.test_edits import problems
from tests.unit.templates.variants import GONE, changes, statements_in, variables_in

if TYPE_CHECKING:
    from pathlib import Path

CODE, RESOURCES, OUTPUTS = second_consumer()
LIKE_THE_FIRST = {"Queue", "DeadLetterQueue", "QueuePolicy", "Consumer", "ConsumerRole", "ConsumerLogGroup", "Watch"}
DIFFERENT = {
    "Consumer.Properties.Handler": "orders.refunds.lambda_handler",
    "Consumer.Properties.Environment.Variables.POWERTOOLS_SERVICE_NAME": {"Fn::Sub": "${AWS::StackName}-refunds"},
    "Consumer.Properties.Environment.Variables.EFFECTS": GONE,
    "Consumer.Properties.Environment.Variables.DEAD_LETTER_QUEUE_URL": GONE,
    "ConsumerRole.Properties.Policies.Consume.PolicyDocument.Statement.sqs:SendMessage": GONE,
    "Queue.Properties.RedrivePolicy.maxReceiveCount": 5,
    "Watch.Properties.Parameters.Service": {"Fn::Sub": "${AWS::StackName}-refunds"},
    "Watch.Properties.Parameters.Stack": {"Fn::Sub": "${AWS::StackName}/RefundsConsumer"},
    "ConsumerRole.Properties.Policies.Consume.PolicyDocument.Statement.dynamodb:GetItem": GONE,
    "ConsumerRole.Properties.Policies.Consume.PolicyDocument.Statement.dynamodb:UpdateItem": {
        "Effect": "Allow",
        "Action": ["dynamodb:UpdateItem"],
        "Resource": {"Fn::GetAtt": ["Totals", "Arn"]},
    },
    "ConsumerRole.Properties.Policies.Consume.PolicyDocument.Statement.dynamodb:PartiQLInsert.Condition": {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["refunds#*"]}
    },
}


def with_second(template: str) -> str:
    """A starter's template with it."""
    return template.replace("\nOutputs:", f"\n{RESOURCES}\nOutputs:") + OUTPUTS


def both() -> dict[str, Any]:
    return rendering(parsed(with_second(made("plain")["template.yaml"]))).alone()


def test_it_costs_a_hundred_and_ten_lines_at_most() -> None:
    assert len([line for line in (RESOURCES + OUTPUTS).splitlines() if line.strip()]) <= 110


def test_it_has_all_that_the_first_has_and_shares_the_records() -> None:
    resources = both()["Resources"]
    first = {name: resources[name] for name in LIKE_THE_FIRST}
    second = {name: each for name, each in resources.items() if name.startswith("Refunds")}
    unprefixed = json.loads(json.dumps(second).replace("Refunds", "").replace("/Consumer", "/RefundsConsumer"))
    assert dict(changes(first, unprefixed)) == DIFFERENT
    of_the_first = statements_in(first["ConsumerRole"]["Properties"])["dynamodb:PartiQLInsert"]
    assert of_the_first["Resource"] == {"Fn::GetAtt": ["Records", "Arn"]}


def test_a_template_with_it_is_clean(tmp_path: Path) -> None:
    assert problems(with_second(made("plain")["template.yaml"]), tmp_path, informational=False) == []


def test_its_code_has_the_namespace_that_its_role_allows_and_the_variables_that_it_reads() -> None:
    function = both()["Resources"]["RefundsConsumer"]["Properties"]
    needed, wanted = variables_in(CODE)
    assert needed <= {*function["Environment"]["Variables"]}
    assert wanted == set()
    assert 'DynamoDBStore(os.environ["RECORDS_TABLE"], "refunds")' in CODE
    assert function["Handler"] == "orders.refunds.lambda_handler"


def test_receiver_finds_each_by_its_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """And of the second all that it finds of the first, with the description that its code has."""
    monkeypatch.setenv("RECORDS_TABLE", "records")
    second_consumer: dict[str, Any] = {"__name__": "refunds"}
    exec(CODE, second_consumer)
    outputs = {name: str(each["Value"]) for name, each in both()["Outputs"].items()}
    clients = {"cloudformation": CloudFormation(outputs)}
    first, second = (
        stack_outputs(clients.__getitem__, f"transfers/{each}") for each in ("Consumer", "RefundsConsumer")
    )
    assert {*second} == {name for name in first if not name.startswith("Refunds")}
    assert description_in(second["ConsumerDescription"]) == Description.of(second_consumer["lambda_handler"])
    assert "RefundsQueue" in second["QueueUrl"]
