"""What consumer.yaml does for a template of one's own, beyond what the example's template shows."""

from __future__ import annotations

from typing import Any

from tests.template import COMPONENT, load, rendering
from tests.unit.templates.variants import statements_in, wide

STACK = "arn:aws:cloudformation:us-east-1:123456789012:stack/orders/0f1e2d3c"
TABLES = [f"arn:aws:dynamodb:us-east-1:123456789012:table/{name}" for name in ("totals", "orders")]


def component(**parameters: str) -> dict[str, Any]:
    return rendering(load(COMPONENT), StackId=STACK, FunctionName="orders", **parameters).rendered()


def statements(rendered: dict[str, Any], resource: str) -> dict[str, dict[str, Any]]:
    return statements_in(rendered["Resources"][resource]["Properties"])


def test_the_role_reaches_the_tables_that_are_named_and_no_others() -> None:
    found = statements(component(TableArns=",".join(TABLES)), "ConsumerRole")
    granted = found["HandleMessages"]
    assert granted["Resource"] == TABLES
    assert {"dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:ConditionCheckItem"} <= set(granted["Action"])
    assert wide(found) == set()
    assert "HandleMessages" not in statements(component(), "ConsumerRole")


def test_a_shared_records_table_is_not_made_again_and_everything_points_at_it() -> None:
    shared = component(RecordsTable="records")
    assert "Records" not in shared["Resources"]
    arn = {"Fn::Sub": "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table/records"}
    assert statements(shared, "ConsumerRole")["ClaimAndSettle"]["Resource"] == arn
    assert statements(shared, "OperatorPolicy")["ReadRecords"]["Resource"] == arn
    assert [shared["Outputs"][name]["Value"] for name in ("RecordsTable", "RecordsTableArn")] == ["records", arn]
    assert '"records"' in str(shared["Resources"]["Dashboard"]["Properties"]["DashboardBody"])


def test_an_operator_may_look_up_the_stack_and_the_component_in_it() -> None:
    """A stack must say who it is: with a default, a forgotten one would only show when somebody needs the policy."""
    found = statements(component(), "OperatorPolicy")["FindTheStack"]
    assert found["Resource"] == [STACK, {"Ref": "AWS::StackId"}]
    assert {"cloudformation:DescribeStacks", "cloudformation:DescribeStackResources"} == set(found["Action"])
    assert not [name for name in ("StackId", "FunctionName") if "Default" in load(COMPONENT)["Parameters"][name]]


def test_its_outputs_say_what_receiver_must_know_of_the_code() -> None:
    said = {"KeyStrategy": "body_field:order_id", "Namespace": "orders", "Envelope": "detail"}
    told = component(**said)["Outputs"]
    assert {name: told[name]["Value"] for name in said} == said
    assert not {"Namespace", "Envelope"} & set(component()["Outputs"]), "an empty one would be none"
    assert component()["Outputs"]["KeyStrategy"]["Value"] == "message_id"
