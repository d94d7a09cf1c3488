"""What template.yaml promises of its queues, its functions and its tables, in every variant."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.shared import constants as powertools

from harness.cloud import ROOT
from idempotent_receiver import message_id
from tests.template import load, text_of, watched_by
from tests.unit.templates.variants import (
    KEY,
    MADE_HERE,
    QUEUES,
    TABLES,
    VARIANTS,
    apis,
    consumers,
    every_variant,
    has_dead_letters,
    listed,
    mapping,
    of_type,
    properties,
    rendered,
    resources_of,
    variables_read,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

MADE_FOR_THE_API = {"RestApi", "Api", "ApiRole", "ApiLogGroup", "ApiOperatorPolicy", "Transfers", "ApiDashboard"} | {
    *("ApiErrorsAlarm", "ApiServerErrorsAlarm", "ApiLatencyAlarm"),
}
OUTPUTS = {"QueueUrl", "QueueArn", "DeadLetterQueueUrl", "RecordsTable", "ConsumerName", "ConsumerLogGroup"}
STACK_NAME = {"Ref": "AWS::StackName"}
OVER_TLS_ALONE = {"Effect": "Deny", "Principal": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}


@every_variant
def test_every_reference_names_something_that_exists(variant: str) -> None:
    """Conditions may remove what another part refers to, and cfn-lint checks no reference within a function."""
    named = {name.partition(".")[0] for name in references({**rendered(variant), "Transform": None})}
    functions = of_type(variant, "AWS::Serverless::Function").items()
    made_by_sam = {f"{name}{event}" for name, each in functions for event in each["Events"]}
    assert {name for name in named if not name.startswith("AWS::")} <= {*rendered(variant)["Resources"], *made_by_sam}
    absent = set() if has_dead_letters(variant) else {"DeadLetterQueueUrl"}
    assert OUTPUTS & set(rendered(variant)["Outputs"]) == OUTPUTS - absent


def references(node: Any) -> Iterator[str]:
    match node:
        case {"Ref": name} | {"Fn::GetAtt": [name, *_]} | {"Fn::GetAtt": str(name)}:
            yield name
        case {"Fn::Sub": [text, dict(given)]}:
            yield from references(list(given.values()))
            yield from (name for name in re.findall(r"\$\{([^}!]+)\}", text) if name not in given)
        case {"Fn::Sub": str(text)}:
            yield from re.findall(r"\$\{([^}!]+)\}", text)
        case dict():
            assert not {key for key in node if key.startswith("Fn::If")}, "a condition was not decided"
            yield from references(list(node.values()))
        case list():
            for part in node:
                yield from references(part)


def test_unless_its_parameter_asks_for_it_nothing_of_the_api_is_made() -> None:
    assert not MADE_FOR_THE_API & set(rendered("no api")["Resources"])
    assert set(rendered("standard")["Resources"]) >= MADE_FOR_THE_API
    assert not [name for name in rendered("no api")["Outputs"] if name.startswith("Api")]


# Queues.


@pytest.mark.parametrize("timeout", load()["Parameters"]["FunctionTimeout"]["AllowedValues"])
def test_a_message_stays_hidden_for_six_timeouts_and_the_longest_window(timeout: str) -> None:
    queue = rendered(FunctionTimeout=timeout)["Resources"]["Queue"]["Properties"]
    shortest = 6 * int(timeout) + load()["Parameters"]["BatchWindow"]["MaxValue"]
    assert shortest <= queue["VisibilityTimeout"] <= 12 * 60 * 60, "SQS takes no more"


@pytest.mark.parametrize("variant", MADE_HERE)
def test_queues_retry_keep_and_encrypt(variant: str) -> None:
    """A message is tried at least five times; dead letters outlast messages; encrypted at rest and on the way."""
    redrive = properties(variant, "Queue")["RedrivePolicy"]
    assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    assert min(redrive["maxReceiveCount"], load()["Parameters"]["MaxReceiveCount"]["MinValue"]) >= 5
    fifo = True if variant == "fifo" else None
    encryption = (KEY, None) if variant == "own key" else (None, True)
    for queue, days in zip(QUEUES, (4, 14), strict=True):
        given = properties(variant, queue)
        assert (given["MessageRetentionPeriod"], given.get("FifoQueue")) == (days * 86_400, fifo)
        assert (given.get("KmsMasterKeyId"), given.get("SqsManagedSseEnabled")) == encryption
    policy = properties(variant, "QueuesOverTlsOnly")
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert policy["Queues"] == [{"Ref": queue} for queue in QUEUES]
    assert statement["Resource"] == [{"Fn::GetAtt": [queue, "Arn"]} for queue in QUEUES]
    assert statement | OVER_TLS_ALONE | {"Action": "sqs:*"} == statement


# The functions.


@every_variant
def test_the_function_has_the_name_that_alarms_metrics_and_policies_go_by(variant: str) -> None:
    consumer = properties(variant, "Consumer")
    assert consumer["FunctionName"] == consumer["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"] == STACK_NAME
    watched = [metric for each in of_type(variant, "AWS::CloudWatch::Alarm").values() for metric in watched_by(each)]
    named = [each["Dimensions"][0]["Value"] for each in watched if each["Namespace"] != "AWS/SQS"]
    assert set(map(str, named)) - {str({"Ref": "Api"})} == {str(STACK_NAME)}
    for name, function in of_type(variant, "AWS::Serverless::Function").items():
        assert function["LoggingConfig"] == {"LogGroup": {"Ref": f"{name}LogGroup"}}, "where logs expire"
        assert properties(variant, f"{name}LogGroup").get("KmsKeyId") == VARIANTS[variant].get("KmsKeyArn")


@every_variant
def test_the_mapping_reads_the_queue_that_is_meant_message_by_message_within_lambdas_limits(variant: str) -> None:
    given, own = mapping(variant), VARIANTS[variant].get("QueueArn")
    assert own is None or not {*QUEUES, "QueuesOverTlsOnly"} & set(rendered(variant)["Resources"])
    assert given["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert given["Queue"] == (own or {"Fn::GetAtt": ["Queue", "Arn"]})
    assert rendered(variant)["Outputs"]["QueueArn"]["Value"] == given["Queue"]
    assert list(resources_of(consumers(variant), "sqs:ReceiveMessage").values()) == [given["Queue"]]
    if VARIANTS[variant].get("Fifo"):
        assert (given["BatchSize"] <= 10, "MaximumBatchingWindowInSeconds" in given) == (True, False)
    else:
        assert given["MaximumBatchingWindowInSeconds"] >= 1, "more than ten messages need a window"


@pytest.mark.parametrize("variant", [variant for variant in VARIANTS if variant != "no api"])
def test_nobody_calls_the_api_without_a_signature_and_it_touches_no_record_of_a_message(variant: str) -> None:
    assert properties(variant, "RestApi")["Auth"] == {"DefaultAuthorizer": "AWS_IAM", "InvokeRole": "NONE"}
    for event in properties(variant, "Api")["Events"].values():
        assert event["Properties"]["RestApiId"] == {"Ref": "RestApi"}
        assert "Auth" not in event["Properties"]
    variables = properties(variant, "Api")["Environment"]["Variables"]
    assert "LOCAL_CALLER" not in variables, "only the local cloud has a default caller"
    allowed, own = apis(variant), VARIANTS[variant].get("QueueArn")
    assert list(resources_of(allowed, "sqs:SendMessage").values()) == [mapping(variant)["Queue"]]
    assert variables["QUEUE_URL"] == (url_of(own) if own else {"Ref": "Queue"})
    (write,) = [each for each in allowed.values() if "dynamodb:UpdateItem" in listed(each["Action"])]
    assert write["Resource"] == {"Fn::GetAtt": ["Records", "Arn"]}
    assert write["Condition"] == {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["transfers#*"]}}
    assert not re.search("Delete|Scan", str([each["Action"] for each in allowed.values()]))


def url_of(arn: str) -> dict[str, str]:
    return {"Fn::Sub": "https://sqs.${AWS::Region}.${AWS::URLSuffix}/" + "/".join(arn.split(":")[4:])}


@every_variant
def test_every_variable_that_is_read_is_set_and_every_one_that_is_set_is_read(variant: str) -> None:
    known_to_powertools = {value for name, value in vars(powertools).items() if name.endswith("_ENV")}
    absent = set() if "DeadLetterAtOnce" in VARIANTS[variant] else {"DEAD_LETTER_QUEUE_URL"}
    functions = of_type(variant, "AWS::Serverless::Function")
    assert set(functions) == ({"Consumer"} if variant == "no api" else {"Consumer", "Api"})
    for function in functions.values():
        needed, wanted = variables_read(function["Handler"].rpartition(".")[0])
        assert (
            needed | wanted - absent <= {*function["Environment"]["Variables"]} <= needed | wanted | known_to_powertools
        )


def test_every_message_is_claimed_unless_the_parameter_says_otherwise() -> None:
    for parameters, effects in (({}, "any"), ({"Effects": "transaction"}, "transaction")):
        consumer = rendered(**parameters)["Resources"]["Consumer"]["Properties"]
        assert consumer["Environment"]["Variables"]["EFFECTS"] == effects


@every_variant
def test_dead_letters_are_sent_where_the_role_may_send_them(variant: str) -> None:
    url = properties(variant, "Consumer")["Environment"]["Variables"].get("DEAD_LETTER_QUEUE_URL")
    sent_to = list(resources_of(consumers(variant), "sqs:SendMessage").values())
    own = VARIANTS[variant].get("DeadLetterQueueArn")
    if "DeadLetterAtOnce" not in VARIANTS[variant]:
        assert (url, sent_to) == (None, []), "SQS moves them"
    elif own:
        assert (url, sent_to) == (url_of(own), [own])
    else:
        assert (url, sent_to) == ({"Ref": "DeadLetterQueue"}, [{"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}])


def test_the_outputs_say_of_the_consumer_what_its_code_says() -> None:
    """`receiver` takes a message's key as the consumer does, or it would judge by the wrong record."""
    tree = ast.parse((ROOT / "src/app/consumer.py").read_text())
    calls = [each for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)]
    (given,) = [{each.arg: each.value for each in one.keywords} for one in calls if one.func.id == "sqs_consumer"]
    outputs = {name: each["Value"] for name, each in rendered(RecordRetentionDays="45")["Outputs"].items()}
    assert not {"key", "Namespace"} & {*given, *outputs}
    assert outputs["KeyStrategy"] == message_id.__name__
    assert outputs["Envelope"] == ast.literal_eval(given["envelope"])
    assert outputs["RecordRetentionDays"] == "45"


# Tables, and what is kept of dead letters.


@pytest.mark.parametrize("table", [*TABLES, "History"])
def test_records_expire_and_the_ledger_does_not_and_each_table_is_encrypted_by_ones_own_key(table: str) -> None:
    plain = properties("standard", table)
    assert plain["BillingMode"] == "PAY_PER_REQUEST"
    encryption = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}
    assert (properties("own key", table)["SSESpecification"], plain.get("SSESpecification")) == (encryption, None)
    expiry = {"AttributeName": "expiration", "Enabled": True} if table == "Records" else None
    assert plain.get("TimeToLiveSpecification") == expiry


@every_variant
def test_no_update_of_the_stack_drops_records_ledger_or_messages(variant: str) -> None:
    stateful = {"AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::S3::Bucket", "AWS::S3::BucketPolicy"}
    kept = {name: each for name, each in rendered(variant)["Resources"].items() if each["Type"] in stateful}
    assert set(TABLES) - (MADE_FOR_THE_API if variant == "no api" else set()) <= set(kept)
    for each in kept.values():
        assert (each.get("DeletionPolicy"), each.get("UpdateReplacePolicy")) == ("Retain", "Retain")


@every_variant
def test_where_there_are_dead_letters_acts_on_them_are_kept_and_they_can_be_archived(variant: str) -> None:
    made, told = {"History", "Archive", "ArchiveOverTlsOnly"}, {"HistoryTable": "History", "ArchiveBucket": "Archive"}
    outputs = {name: each["Value"]["Ref"] for name, each in rendered(variant)["Outputs"].items() if name in told}
    found = (made & set(rendered(variant)["Resources"]), outputs)
    assert found == ((made, told) if has_dead_letters(variant) else (set(), {}))


def test_the_archive_is_encrypted_and_reached_over_tls_alone() -> None:
    (statement,) = properties("standard", "ArchiveOverTlsOnly")["PolicyDocument"]["Statement"]
    assert statement | OVER_TLS_ALONE | {"Action": "s3:*"} == statement
    assert [text_of(each) for each in statement["Resource"]] == ["Archive.Arn", "Archive.Arn/*"]
    (rule,) = properties("own key", "Archive")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
