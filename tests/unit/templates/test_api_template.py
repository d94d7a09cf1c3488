"""What deploy/api.yaml promises, and that it agrees with the code, the documents and the consumer beside it."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from harness.cloud import ROOT
from idempotent_receiver import telemetry
from tests.template import load, rendering, text_of
from tests.unit.templates.variants import (
    KEY,
    TOPIC,
    assert_says_what_to_do,
    changes,
    listed,
    statements_in,
    variables_read,
    wide,
    widgets_of,
)

TEMPLATE = ROOT / "deploy" / "api.yaml"
OPERATING = (ROOT / "docs" / "operating.md").read_text()
BESIDE = {
    "QueueUrl": "https://sqs.us-east-1.amazonaws.com/123456789012/orders",
    "QueueArn": "arn:aws:sqs:us-east-1:123456789012:orders",
    "RecordsTable": "records",
    "EntriesTable": "entries",
}


def resources(**parameters: str) -> dict[str, Any]:
    return dict(rendering(load(TEMPLATE), **BESIDE, **parameters).rendered()["Resources"])


def properties(name: str, **parameters: str) -> dict[str, Any]:
    return dict(resources(**parameters)[name]["Properties"])


def alarms(**parameters: str) -> dict[str, dict[str, Any]]:
    made = resources(**parameters).items()
    return {name: each["Properties"] for name, each in made if each["Type"] == "AWS::CloudWatch::Alarm"}


def test_nobody_calls_it_without_a_signature() -> None:
    assert properties("RestApi")["Auth"] == {"DefaultAuthorizer": "AWS_IAM", "InvokeRole": "NONE"}
    for event in properties("Api")["Events"].values():
        assert event["Properties"]["RestApiId"] == {"Ref": "RestApi"}
        assert "Auth" not in event["Properties"]
    assert "LOCAL_CALLER" not in properties("Api")["Environment"]["Variables"], "only the local cloud has a default"


def test_it_sends_to_the_consumers_queue_and_touches_no_record_of_a_message() -> None:
    allowed = statements_in(properties("ApiRole"))
    sending = [each["Resource"] for each in allowed.values() if "sqs:SendMessage" in listed(each["Action"])]
    assert sending == [BESIDE["QueueArn"]]
    assert properties("Api")["Environment"]["Variables"]["QUEUE_URL"] == BESIDE["QueueUrl"]
    (write,) = [each for each in allowed.values() if "dynamodb:UpdateItem" in listed(each["Action"])]
    assert text_of(write["Resource"]).endswith(":table/records")
    assert write["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["transfers#*"]}}
    assert not re.search("Delete|Scan", str([each["Action"] for each in allowed.values()]))


@pytest.mark.parametrize("traced", [True, False])
def test_every_action_and_resource_is_named_but_for_x_ray_which_knows_no_resources(traced: bool) -> None:
    role = properties("ApiRole", KmsKeyArn=KEY, **({"Tracing": "Active"} if traced else {}))
    assert wide(statements_in(role)) == ({"Trace"} if traced else set())
    ways = statements_in(role)["UseKey"]["Condition"]["StringEquals"]["kms:ViaService"]
    assert [text_of(way).partition(".")[0] for way in ways] == ["sqs", "dynamodb"]
    assert "ManagedPolicyArns" not in role


def test_every_variable_that_is_read_is_set() -> None:
    """Two are empty on AWS."""
    needed, wanted = variables_read("app.api")
    variables = {*load(TEMPLATE)["Resources"]["Api"]["Properties"]["Environment"]["Variables"]}
    assert needed | wanted <= variables
    on_aws = {*properties("Api")["Environment"]["Variables"]}
    assert variables - on_aws == {"AWS_ENDPOINT_URL", "LOCAL_CALLER"}
    assert needed <= on_aws


def test_its_table_and_its_log_are_kept_and_encrypted_as_the_consumers() -> None:
    with_key = resources(KmsKeyArn=KEY, DeletionProtection="true")
    table = with_key["Transfers"]
    assert (table["DeletionPolicy"], table["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
    encryption = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}
    assert table["Properties"]["SSESpecification"] == encryption
    assert table["Properties"]["DeletionProtectionEnabled"] == "true"
    assert not {"SSESpecification", "TimeToLiveSpecification"} & {*properties("Transfers")}
    assert properties("Api")["LoggingConfig"] == {"LogGroup": {"Ref": "ApiLogGroup"}}
    assert with_key["ApiLogGroup"]["Properties"]["KmsKeyId"] == KEY


def test_the_access_log_is_a_switch_and_holds_no_bodies_and_no_keys() -> None:
    found = dict(changes(resources(), resources(ApiAccessLog="true")))
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


def test_each_alarm_is_on_the_dashboard_and_names_the_section_that_says_what_to_do() -> None:
    first, *others = widgets_of(properties("ApiDashboard"))
    assert set(first["properties"]["alarms"]) == {f"{name}.Arn" for name in alarms()}
    for name, alarm in alarms(AlarmTopicArn=TOPIC).items():
        assert_says_what_to_do(alarm)
        assert f"[{name}](" in OPERATING, f"the table has no {name}"
        assert alarm["AlarmActions"] == alarm["OKActions"] == [TOPIC]
    lines = [line for each in others for line in each["properties"].get("metrics", [])]
    ours = {tuple(line[1:4]) for line in lines if line[0] == "IdempotentReceiver"}
    assert ours == {(name, "service", "AWS::StackName") for name in telemetry.CALL_COUNTS}
    assert properties("Api")["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == {"Ref": "AWS::StackName"}


def test_the_dashboard_and_the_alarm_have_one_bound_of_latency() -> None:
    bound = alarms()["ApiLatencyAlarm"]["Threshold"]
    assert bound == properties("Api")["Timeout"] * 1000 / 2
    annotations = [each["properties"].get("annotations") for each in widgets_of(properties("ApiDashboard"))]
    assert {"horizontal": [{"label": "alarm", "value": bound}]} in annotations
