"""What consumer.yaml does for a template of one's own, beyond what the example's template shows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.template import COMPONENT, load, rendering

STACK = "arn:aws:cloudformation:us-east-1:123456789012:stack/orders/0f1e2d3c"
TABLES = [
    "arn:aws:dynamodb:us-east-1:123456789012:table/totals",
    "arn:aws:dynamodb:us-east-1:123456789012:table/orders",
]


def component(**parameters: str) -> dict[str, Any]:
    return rendering(load(COMPONENT), StackId=STACK, FunctionName="orders", **parameters).rendered()


def statements(rendered: dict[str, Any], resource: str) -> dict[str, dict[str, Any]]:
    properties = rendered["Resources"][resource]["Properties"]
    (document,) = [each["PolicyDocument"] for each in properties.get("Policies", [properties])]
    return {each["Sid"]: each for each in document["Statement"]}


@pytest.mark.parametrize("missing", ["StackId", "FunctionName"])
def test_a_stack_that_does_not_say_who_it_is_is_refused(missing: str) -> None:
    """With a default, a forgotten one would only show when somebody needs the alarm or the policy."""
    assert "Default" not in load(COMPONENT)["Parameters"][missing]


def test_the_role_reaches_the_tables_that_are_named_and_no_others() -> None:
    granted = statements(component(TableArns=",".join(TABLES)), "ConsumerRole")["HandleMessages"]
    assert granted["Resource"] == TABLES
    assert {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem"} <= set(granted["Action"])
    assert not [action for action in granted["Action"] if "*" in action]
    assert "HandleMessages" not in statements(component(), "ConsumerRole")


def test_a_shared_records_table_is_not_made_again_and_everything_points_at_it() -> None:
    shared = component(RecordsTable="records")
    assert "Records" not in shared["Resources"]
    arn = {"Fn::Sub": "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/records"}
    assert statements(shared, "ConsumerRole")["ClaimAndSettle"]["Resource"] == arn
    assert statements(shared, "OperatorPolicy")["ReadRecords"]["Resource"] == arn
    assert shared["Outputs"]["RecordsTable"]["Value"] == "records"
    assert shared["Outputs"]["RecordsTableArn"]["Value"] == arn
    assert '"records"' in str(shared["Resources"]["Dashboard"]["Properties"]["DashboardBody"])


def test_an_operator_may_look_up_the_stack_and_the_component_in_it() -> None:
    found = statements(component(), "OperatorPolicy")["FindTheStack"]
    assert found["Resource"] == [STACK, {"Ref": "AWS::StackId"}]
    assert {"cloudformation:DescribeStacks", "cloudformation:DescribeStackResources"} == set(found["Action"])


def test_its_outputs_say_what_receiver_must_know_of_the_code() -> None:
    told = component(KeyStrategy="body_field:order_id", Namespace="orders", Envelope="detail")["Outputs"]
    assert [told[name]["Value"] for name in ("KeyStrategy", "Namespace", "Envelope")] == [
        "body_field:order_id",
        "orders",
        "detail",
    ]
    assert not {"Namespace", "Envelope"} & set(component()["Outputs"]), "an empty one would be none"
    assert component()["Outputs"]["KeyStrategy"]["Value"] == "message_id"
