"""What template.yaml and a starter's template promise of queues, function and tables, in every variant."""

from __future__ import annotations

import importlib
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from aws_lambda_powertools.shared import constants as powertools

from idempotent_receiver.operations.description import Description, description_in
from tests.starter import made
from tests.template import TEMPLATE, WATCH, load, parsed, text_of, watched_by
from tests.unit.templates.variants import (
    ALLOWED,
    GONE,
    KEY,
    MADE_HERE,
    QUEUES,
    STATEFUL,
    TABLES,
    VARIANTS,
    changes,
    consumers,
    every_variant,
    mapping,
    of_type,
    properties,
    rendered,
    resources_of,
    variables_in,
    variables_read,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DAY_SECONDS = 86_400
SQSS_RETENTION_SECONDS = 4 * DAY_SECONDS
"""Of a queue that does not say."""
OUTPUTS = {"QueueUrl", "RecordsTable", "ConsumerDescription", "ConsumerName", "ConsumerLogGroup"}
OVER_TLS_ALONE = {"Effect": "Deny", "Principal": "*", "Condition": {"Bool": {"aws:SecureTransport": "false"}}}
MADE_BY_WATCH = {"HistoryTable": "History", "ArchiveBucket": "Archive", "OperatorPolicyArn": "OperatorPolicy"}


def test_the_template_is_read_in_one_sitting() -> None:
    assert len(TEMPLATE.read_text().splitlines()) <= 200
    assert len(load()["Parameters"]) <= 10


@every_variant
def test_every_reference_names_something_that_exists(variant: str) -> None:
    """Conditions may remove what another part refers to, and cfn-lint checks no reference within a function."""
    named = {name.partition(".")[0] for name in references({**rendered(variant), "Transform": None})}
    assert {name for name in named if not name.startswith("AWS::")} <= {*rendered(variant)["Resources"]}


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


@every_variant
def test_the_outputs_name_what_receiver_looks_up(variant: str) -> None:
    """What an existing queue's redrive policy names, it finds there."""
    outputs = rendered(variant)["Outputs"]
    of_its_own = {"DeadLetterQueueUrl"} if variant in MADE_HERE else set()
    assert {*outputs} - {"QueueArn", "Envelope", "Namespace", "DashboardName"} == {
        *OUTPUTS,
        *MADE_BY_WATCH,
        *of_its_own,
    }
    assert {name: outputs[name]["Value"]["Ref"] for name in MADE_BY_WATCH} == MADE_BY_WATCH
    own = VARIANTS[variant].queue_arn
    url = "https://sqs.AWS::Region.AWS::URLSuffix/" + "/".join(own.split(":")[4:]) if own else "Queue"
    assert text_of(outputs["QueueUrl"]["Value"]) == url


# Queues.


@pytest.mark.parametrize("variant", MADE_HERE)
def test_a_message_stays_hidden_for_six_timeouts_and_the_window(variant: str) -> None:
    window = mapping(variant).get("MaximumBatchingWindowInSeconds", 0)
    shortest = 6 * properties(variant, "Consumer")["Timeout"] + window
    assert shortest <= properties(variant, "Queue")["VisibilityTimeout"] <= 12 * 60 * 60, "SQS takes no more"


@pytest.mark.parametrize("variant", MADE_HERE)
def test_queues_retry_keep_and_encrypt(variant: str) -> None:
    """A message is tried at least five times; dead letters outlast messages, and records both."""
    redrive = properties(variant, "Queue")["RedrivePolicy"]
    assert redrive["deadLetterTargetArn"] == {"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}
    assert redrive["maxReceiveCount"] >= 5
    encryption = (KEY, None) if variant == "own key" else (None, True)
    for queue, days in zip(QUEUES, (4, 14), strict=True):
        given = properties(variant, queue)
        assert given.get("MessageRetentionPeriod", SQSS_RETENTION_SECONDS) == days * DAY_SECONDS
        assert bool(given.get("FifoQueue")) == VARIANTS[variant].fifo
        assert (given.get("KmsMasterKeyId"), given.get("SqsManagedSseEnabled")) == encryption
    assert load()["Parameters"]["RecordRetentionDays"]["MinValue"] > 4 + 14


@pytest.mark.parametrize("variant", MADE_HERE)
def test_queues_are_reached_over_tls_alone(variant: str) -> None:
    policy = properties(variant, "QueuePolicy")
    (statement,) = policy["PolicyDocument"]["Statement"]
    assert policy["Queues"] == [{"Ref": queue} for queue in QUEUES]
    assert statement["Resource"] == [{"Fn::GetAtt": [queue, "Arn"]} for queue in QUEUES]
    assert statement | OVER_TLS_ALONE | {"Action": "sqs:*"} == statement


# The function.


@every_variant
def test_alarms_and_metrics_and_log_are_those_of_the_function(variant: str) -> None:
    consumer = properties(variant, "Consumer")
    service = consumer["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]
    watched = [metric for each in of_type(variant, "AWS::CloudWatch::Alarm").values() for metric in watched_by(each)]
    named = {each["Namespace"]: each["Dimensions"][0]["Value"] for each in watched if each["Namespace"] != "AWS/SQS"}
    assert named == {"IdempotentReceiver": service, "AWS/Lambda": {"Ref": "Consumer"}}
    assert consumer["LoggingConfig"] == {"LogGroup": {"Ref": "ConsumerLogGroup"}}, "where logs expire"
    log = properties(variant, "ConsumerLogGroup")
    assert (log["RetentionInDays"], log.get("KmsKeyId")) == (30, VARIANTS[variant].parameters.get("KmsKeyArn"))


def test_failures_are_grouped_by_the_line_of_the_users_own_code() -> None:
    """Not by where a library raised: the causes in one library differ."""
    (query,) = re.findall('"title": "Failures by type".*?"query": "(.*?)"', WATCH.read_text(), re.DOTALL)
    (pattern,) = re.findall(r"parse at /(.*?)/ \|", query)
    lines = {
        (found := re.search(pattern.replace("(?<", "(?P<"), at)) and found["line"]
        for at in (
            "app.charge:7, in botocore.client._make_api_call:1094",
            "app.charge:7, in http.get:3",
            "app.charge:7",
        )
    }
    assert lines == {"app.charge:7"}
    assert " by error_type, line |" in query


@every_variant
def test_the_mapping_reads_the_queue_that_is_meant_message_by_message_within_lambdas_limits(variant: str) -> None:
    given, own = mapping(variant), VARIANTS[variant].queue_arn
    assert own is None or not {*QUEUES, "QueuePolicy"} & set(rendered(variant)["Resources"])
    assert given["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert given["Queue"] == (own or {"Fn::GetAtt": ["Queue", "Arn"]})
    assert list(resources_of(consumers(variant), "sqs:ReceiveMessage").values()) == [given["Queue"]]
    if VARIANTS[variant].fifo:
        assert (given["BatchSize"], "MaximumBatchingWindowInSeconds" in given) == (10, False)
    else:
        assert given["MaximumBatchingWindowInSeconds"] >= 1, "more than ten messages need a window"


@every_variant
def test_every_variable_that_is_read_is_set_and_every_one_that_is_set_is_read(variant: str) -> None:
    chosen = VARIANTS[variant]
    set_here = {*properties(variant, "Consumer")["Environment"]["Variables"]}
    read_by_others = {value for name, value in vars(powertools).items() if name.endswith("_ENV")}
    absent = set() if chosen.sends_dead_letters else {"DEAD_LETTER_QUEUE_URL"}
    needed, wanted = (
        variables_read("app.consumer")
        if chosen.starter is None
        else variables_in(made(chosen.starter)["src/order_totals/handler.py"])
    )
    assert needed | wanted - absent <= set_here <= needed | wanted | read_by_others


def test_what_sam_local_sets_is_declared_and_set_to_nothing_on_aws() -> None:
    """`sam local invoke` passes no other variable."""
    for variant in ("standard", "starter"):
        assert "AWS_ENDPOINT_URL" not in properties(variant, "Consumer")["Environment"]["Variables"]
        assert "AWS_ENDPOINT_URL: !Ref AWS::NoValue" in VARIANTS[variant].text


def test_every_message_is_claimed_unless_the_parameter_says_otherwise() -> None:
    for variant in ("standard", "starter"):
        for parameters, effects in (({}, "any"), ({"Effects": "transaction"}, "transaction")):
            consumer = rendered(variant, **parameters)["Resources"]["Consumer"]["Properties"]
            assert consumer["Environment"]["Variables"]["EFFECTS"] == effects


@every_variant
def test_dead_letters_are_sent_where_the_role_may_send_them(variant: str) -> None:
    url = properties(variant, "Consumer")["Environment"]["Variables"].get("DEAD_LETTER_QUEUE_URL")
    sent_to = list(resources_of(consumers(variant), "sqs:SendMessage").values())
    at_once = ({"Ref": "DeadLetterQueue"}, [{"Fn::GetAtt": ["DeadLetterQueue", "Arn"]}])
    assert (url, sent_to) == (at_once if VARIANTS[variant].sends_dead_letters else (None, [])), "else SQS moves them"


@pytest.mark.parametrize("parameters", [{}, {"RecordRetentionDays": "45", "Effects": "transaction"}])
def test_the_output_says_of_the_consumer_what_its_code_says(
    parameters: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`receiver` takes a message's key as the consumer does, or it would judge by the wrong record."""
    template = rendered(**parameters)
    for name, value in template["Resources"]["Consumer"]["Properties"]["Environment"]["Variables"].items():
        monkeypatch.setenv(name, text_of(value) or "x")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.delitem(sys.modules, "app.consumer", raising=False)
    code = Description.of(importlib.import_module("app.consumer").lambda_handler)
    assert description_in(text_of(template["Outputs"]["ConsumerDescription"]["Value"])) == code


# Tables, and what is kept of dead letters.


@pytest.mark.parametrize("table", TABLES)
def test_records_expire_and_the_ledger_does_not_and_each_table_is_encrypted_by_ones_own_key(table: str) -> None:
    plain = properties("standard", table)
    assert plain["BillingMode"] == "PAY_PER_REQUEST"
    encryption = {"SSEEnabled": True, "SSEType": "KMS", "KMSMasterKeyId": KEY}
    assert (properties("own key", table)["SSESpecification"], plain.get("SSESpecification")) == (encryption, None)
    expiry = {"AttributeName": "expiration", "Enabled": True} if table == "Records" else None
    assert plain.get("TimeToLiveSpecification") == expiry
    protected = rendered(DeletionProtection="true")["Resources"][table]["Properties"]
    assert (plain["DeletionProtectionEnabled"], protected["DeletionProtectionEnabled"]) == ("false", "true")


def test_of_a_starters_tables_the_records_alone_expire() -> None:
    tables = of_type("starter", "AWS::DynamoDB::Table")
    expiring = {
        name: each["TimeToLiveSpecification"] for name, each in tables.items() if "TimeToLiveSpecification" in each
    }
    assert (set(tables), expiring) == (
        {"Records", "Totals", "History"},
        {"Records": {"AttributeName": "expiration", "Enabled": True}},
    )


@every_variant
def test_no_update_of_the_stack_drops_records_ledger_or_messages(variant: str) -> None:
    """And none that deletes it; only a first deployment that fails takes along what it made."""
    kept = {name: each for name, each in rendered(variant)["Resources"].items() if each["Type"] in STATEFUL}
    expected = {"History", "Archive", *((*QUEUES, "QueuePolicy") if variant in MADE_HERE else ())}
    assert expected <= set(kept)
    for each in kept.values():
        assert (each.get("DeletionPolicy"), each.get("UpdateReplacePolicy")) == ("RetainExceptOnCreate", "Retain")


def test_the_archive_is_encrypted_and_reached_over_tls_alone() -> None:
    (statement,) = properties("standard", "ArchiveOverTlsOnly")["PolicyDocument"]["Statement"]
    assert statement | OVER_TLS_ALONE | {"Action": "s3:*"} == statement
    assert [text_of(each) for each in statement["Resource"]] == ["Archive.Arn", "Archive.Arn/*"]
    (rule,) = properties("own key", "Archive")["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}


# A starter's template, beside this one.

OF_A_STARTER = {
    "Accounts": GONE,
    "Entries": GONE,
    "Totals": ...,
    "Consumer.Properties.Handler": "order_totals.handler.lambda_handler",
    "Consumer.Properties.Tracing": GONE,
    **{
        f"Consumer.Properties.Environment.Variables.{name}": GONE
        for name in ("ACCOUNTS_TABLE", "ENTRIES_TABLE", "POWERTOOLS_LOG_LEVEL", "RECORD_RETENTION_DAYS")
    },
    "Queue.Properties.RedrivePolicy.maxReceiveCount": 50,
    "Consumer.Properties.Environment.Variables.TOTALS_TABLE": {"Ref": "Totals"},
    f"{ALLOWED}.dynamodb:PutItem": GONE,
    f"{ALLOWED}.dynamodb:GetItem.Action": ...,
    f"{ALLOWED}.dynamodb:GetItem.Resource.Fn::GetAtt": ["Totals", "Arn"],
    f"{ALLOWED}.xray:PutTraceSegments": GONE,
    "ConsumerLogGroup.DeletionPolicy": GONE,
    "ConsumerLogGroup.UpdateReplacePolicy": GONE,
    "Queue.Properties.MessageRetentionPeriod": GONE,
    "Records.Properties.DeletionProtectionEnabled": GONE,
}
"""How it differs from template.yaml: another handler and its table, and settings that it leaves to others."""
OF_A_FIFO_STARTER = {"OldestMessageAlarm.Properties.Threshold": 3600, "Dashboard.Properties.DashboardBody.Fn::Sub": ...}
"""Its alarm on the age outlasts the attempts of a message for which its group waits."""


@pytest.mark.parametrize(
    ("variant", "like"),
    [("starter", "dead letters at once"), ("starter, fifo", "fifo, dead letters at once, longer time-outs")],
)
def test_a_starter_has_the_same_resources_by_the_same_names(variant: str, like: str) -> None:
    """Who has read one of them has read the other."""
    found = dict(changes(rendered(like)["Resources"], rendered(variant)["Resources"]))
    meant = OF_A_STARTER | (OF_A_FIFO_STARTER if VARIANTS[variant].fifo else {})
    assert {path: found.get(path) if value is ... else value for path, value in meant.items()} == found


def test_a_starter_with_an_existing_queue_is_one_with_the_edit_for_it() -> None:
    edited = rendered("own queue, no dead letters")["Resources"]
    found = dict(changes(edited, rendered("starter, own queue")["Resources"]))
    assert {*found} == {path for path in OF_A_STARTER if not path.startswith("Queue.")}
    told = rendered("starter, own queue")["Outputs"]["QueueUrl"]["Value"]
    assert text_of(told) == text_of(rendered("own queue, no dead letters")["Outputs"]["QueueUrl"]["Value"])


def test_a_starters_resources_come_in_the_same_order() -> None:
    ours, theirs = ([*parsed(VARIANTS[each].text)["Resources"]] for each in ("standard", "starter"))
    assert [name for name in ours if name in theirs] == [name for name in theirs if name in ours]
